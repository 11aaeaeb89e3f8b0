"""Commands whose program runs in a container or on another machine, and programs that find a driver before the shim."""
import os
import shutil
import stat
import subprocess
import unittest

import support
from support import CliTest

# Plays an engine: records its words and what variables it has.
FAKE = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done > "$FAKE_OUT"
printenv SLUICE_BOARDS SLUICE_JOB CUDA_VISIBLE_DEVICES > "$FAKE_OUT.env"
exit 3
"""

# Says whether the driver that it gets by `name` is the shim.
OPENER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* driver = dlopen(argv[1], RTLD_NOW);
  if (driver == NULL) return 2;
  puts(dlsym(driver, "sluice_shim_version") != NULL ? "shim" : "driver");
  return 0;
}
"""

# The same of a driver that it is linked with.
LINKED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
extern int cuInit(unsigned);
int main(void) {
  Dl_info where;
  if (dladdr((void*)&cuInit, &where) == 0) return 2;
  puts(dlsym(dlopen(where.dli_fname, RTLD_NOW), "sluice_shim_version") != NULL ? "shim" : "driver");
  return 0;
}
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


@unittest.skipIf(shutil.which("cc") is None, "needs a C compiler")
class RoadsToTheDriver(CliTest):
    def setUp(self):
        super().setUp()
        self.emulator = str(support.BUILD / "lib/sluice/emulator")

    def program(self, source, *flags):
        path = os.path.join(self.folder, "program")
        subprocess.run(["cc", "-x", "c", self.write("program.c", source), "-o", path, "-x", "none", *flags, "-ldl"], check=True)
        return path

    def driver_of(self, *command):
        done = self.call("run", "--", *command)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr

    def test_both_names(self):
        program = self.program(OPENER)
        for name in ("libcuda.so.1", "libcuda.so"):
            self.assertEqual(self.driver_of(program, name)[0], "shim")

    def test_dt_rpath(self):
        flags = ("-Wl,--disable-new-dtags", "-Wl,-rpath," + self.emulator)
        program = self.program(OPENER, *flags)
        self.assertEqual(subprocess.run([program, "libcuda.so.1"], capture_output=True, text=True, check=True).stdout,
                         "driver\n", "it has a driver in reach")
        got, said = self.driver_of(program, "libcuda.so.1")
        self.assertEqual(got, "shim")
        self.assertIn(f"the DT_RPATH of {program} leads to {self.emulator}/libcuda.so.1; the shim is preloaded", said)
        linked = self.program(LINKED, *flags, os.path.join(self.emulator, "libcuda.so.1"))
        self.assertEqual(self.driver_of(linked)[0], "shim")

    def test_dt_rpath_of_an_interpreter(self):
        program = self.program(OPENER, "-Wl,--disable-new-dtags", "-Wl,-rpath," + self.emulator)
        script = self.write("script", f"#!{program} libcuda.so.1\n")
        os.chmod(script, 0o755)
        self.assertEqual(self.driver_of(script)[0], "shim")

    def test_other_programs_preload_nothing(self):
        for flags in (("-Wl,--enable-new-dtags", "-Wl,-rpath," + self.emulator),
                      ("-Wl,--disable-new-dtags", "-Wl,-rpath,/no/such/folder")):
            got, said = self.driver_of(self.program(OPENER, *flags), "libcuda.so.1")
            self.assertEqual(got, "shim")
            self.assertNotIn("preloaded", said)
        self.assertNotIn("LD_PRELOAD", self.call("run", "-q", "--", "env").stdout)


if __name__ == "__main__":
    support.main()
