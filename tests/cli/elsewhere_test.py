"""Commands whose program runs in a container or on another machine."""
import os
import stat

import support
from support import CliTest

# Plays an engine: records its words and what variables it has.
FAKE = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done > "$FAKE_OUT"
printenv SLUICE_BOARDS SLUICE_JOB CUDA_VISIBLE_DEVICES > "$FAKE_OUT.env"
exit 3
"""


class Containers(CliTest):
    def setUp(self):
        super().setUp()
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        for name in ("docker", "podman", "ssh", "srun"):
            path = os.path.join(self.bin, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(FAKE)
            os.chmod(path, stat.S_IRWXU)
        self.out = os.path.join(self.folder, "words")
        self.env.update(PATH=self.bin + ":" + self.env["PATH"], FAKE_OUT=self.out)

    def words(self, *args):
        done = self.call("run", *args)
        self.assertEqual(done.returncode, 3, done.stderr)
        with open(self.out, encoding="utf-8") as file:
            return file.read().splitlines(), done.stderr

    def test_the_options_go_before_the_image(self):
        words, said = self.words("--container", "--", "docker", "run", "--rm", "-e", "X=1", "image", "python", "-v")
        self.assertEqual(words[:4], ["run", "--rm", "-e", "X=1"])
        self.assertEqual(words[-3:], ["image", "python", "-v"])
        shim = str(support.BUILD / "lib/sluice/shim")
        for option in (f"{shim}:{shim}:ro", f"{self.runtime}:{self.runtime}", "--pid=host", "SLUICE_BOARDS", "SLUICE_JOB"):
            self.assertIn(option, words)
        with open(self.out + ".env", encoding="utf-8") as file:
            boards, job, gpu = file.read().splitlines()
        self.assertTrue(boards.startswith(gpu + "=" + self.runtime))
        self.assertGreater(int(job), 0)
        self.assertNotIn("without Sluice", said)

    def test_without_the_option_the_line_says_them(self):
        words, said = self.words("--", "podman", "run", "image")
        self.assertEqual(words, ["run", "image"])
        line = next(line for line in said.splitlines() if "without Sluice" in line)
        self.assertIn("say sluice run --container, or add behind its run: --pid=host -v ", line)
        added, _ = self.words("--container", "--", "podman", "run", "image")
        self.assertTrue(line.endswith(": " + " ".join(added[1:-1])), "the same options")
        self.assertNotIn("without Sluice", self.words("-q", "--", "podman", "run", "image")[1])

    def test_what_cannot_be_added_is_refused(self):
        for command, expected in ((["python", "x.py"], "'python' is no docker run"),
                                  (["docker", "exec", "box", "python"], '"exec" is no run'),
                                  (["docker", "run", "--no-such", "image"], "--no-such is not known"),
                                  (["docker", "compose", "run", "x"], "compose file"),
                                  (["ssh", "far", "ls"], "'ssh' is no docker run")):
            done = self.call("run", "--container", "--", *command)
            self.assertEqual((done.returncode, done.stdout), (2, ""), command)
            self.assertIn(expected, done.stderr)
            self.assert_one_line(done.stderr)
        self.assertFalse(os.path.exists(self.out), "nothing was started")

    def test_another_machine_needs_its_own(self):
        words, said = self.words("--priority", "low", "--", "ssh", "-p", "22", "far", "python", "x.py")
        self.assertEqual(words, ["-p", "22", "far", "python", "x.py"])
        self.assertIn("another machine, whose own Sluice has to run it: "
                      "ssh -p 22 far sluice run --priority low -- python x.py\n", said)
        self.assertIn("srun OPTIONS... sluice run --priority normal -- COMMAND", self.words("--", "srun", "x")[1])


if __name__ == "__main__":
    support.main()
