#!/usr/bin/env python3
"""What shells offer when the user presses Tab. completion_test.py BUILD"""
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import support  # noqa: E402
from support import BUILD, CliTest, wait_until  # noqa: E402

SCRIPTS = ROOT / "packaging/completions"


class Complete(CliTest):
    """The words behind "sluice", the last one begun, as the shells' scripts hand them over."""

    def lines(self, *words):
        done = self.call("__complete", *words)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout.splitlines()

    def words(self, *words):
        return [line.split("\t")[0] for line in self.lines(*words)]

    def test_verbs(self):
        listed = re.findall(r"^ {2}(\w+) {2,}\S", self.call("help").stdout, re.MULTILINE)
        self.assertEqual(["help", *listed], self.words(""))
        self.assertEqual(["stop"], self.words("st"))
        self.assertEqual(["top\twatch the GPUs and the jobs"], self.lines("to"))
        self.assertEqual(["version"], self.words("help", "v"))
        self.assertEqual([], self.words("banana", "--"))

    def test_every_option_of_every_verb(self):
        for verb in self.words(""):
            if verb != "help":
                offered = re.findall(r"^ {2}(?:-\w,)?(--[\w-]+)", self.call(verb, "--help").stdout, re.MULTILINE)
                self.assertEqual(offered, self.words(verb, "--"), verb)

    def test_values(self):
        self.assertEqual(["high", "normal", "low"], self.words("run", "--priority", ""))
        self.assertEqual(["low"], self.words("run", "-q", "-p", "l"))
        self.assertEqual(["--priority=high"], self.words("run", "--priority=h"))
        self.assertEqual(["fp32", "fp16"], self.words("infer", "model.onnx", "--precision", "fp"))
        self.assertEqual([], self.words("run", "--share", ""))

    def test_files(self):
        self.assertEqual([":files *.toml"], self.lines("run", ""))
        self.assertEqual([":files *.onnx"], self.lines("infer", ""))
        self.assertEqual([":files"], self.lines("run", "--report", ""))
        self.assertEqual([":files"], self.lines("optimize", "-o", "x"))

    def test_the_command_is_not_ours(self):
        self.assertEqual([":command 2"], self.lines("run", "--", ""))
        self.assertEqual([":command 4"], self.lines("run", "-p", "low", "--", "python", "--priority", ""))

    def test_gpus(self):
        self.env["SLUICE_EMU_GPUS"] = "2"
        offered = dict(line.split("\t") for line in self.lines("run", "--gpu", ""))
        self.assertEqual(["auto", "0", "1"], list(offered))
        self.assertIn("RTX 2060", offered["1"])

    def test_running_jobs(self):
        self.assertEqual([], self.lines("stop", ""))
        self.start("run", "--name", "sleeper", "--", "sleep", "1000")
        wait_until(lambda: self.lines("stop", ""), "the job is offered")
        self.assertEqual(f"{self.jobs()[0]['id']}\tsleeper", self.lines("stop", "")[0])
        self.assertEqual(0, self.call("stop", "--all").returncode)

    def test_words_offered_as_values_are_taken(self):
        for option in ("--priority", "--linger"):
            for word in self.words("run", option, ""):
                self.assertEqual(0, self.call("run", option, word, "-q", "--", "true").returncode, f"{option} {word}")


class Shells(CliTest):
    def setUp(self):
        super().setUp()
        self.env["PATH"] = f"{BUILD / 'bin'}:{self.env['PATH']}"
        self.write("jobs.toml", "")
        self.write("model.onnx", "")

    def shell(self, name, *args):
        if shutil.which(name) is None:
            self.skipTest(f"{name} is not installed")
        done = subprocess.run([name, *args], env={**self.env, "HOME": self.folder}, cwd=self.folder, timeout=support.DEADLINE_S,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual("", done.stderr)
        return done.stdout.splitlines()

    def bash(self, *words):
        return self.shell("bash", "--norc", "-c", 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; '
                          'printf "%s\\n" "${COMPREPLY[@]}"', "bash", SCRIPTS / "sluice.bash", "sluice", *words)

    def zsh(self, *words):
        shown = ('_describe() { print -rl -- "${(@P)@[-1]}" }; _files() { print -r -- files "$@" }; compset() { : }; '
                 '_normal() { print -r -- "normal $CURRENT: $words" }; ')
        return self.shell("zsh", "-f", "-c", shown + 'file=$1; shift; words=("$@"); CURRENT=$#; set --; source $file',
                          "zsh", SCRIPTS / "_sluice", "sluice", *words)

    def fish(self, line):
        return [offered.split("\t")[0] for offered in
                self.shell("fish", "--no-config", "-c", f"source {SCRIPTS / 'sluice.fish'}; complete -C '{line}'")]

    def test_bash(self):
        self.assertEqual(["stop"], self.bash("st"))
        self.assertEqual(["--linger", "--leave-below"], sorted(self.bash("run", "--l"), reverse=True))
        self.assertEqual(["high", "normal", "low"], self.bash("run", "-p", ""))
        self.assertEqual(["high"], self.bash("run", "--priority", "=", "h"))
        self.assertEqual(["jobs.toml"], self.bash("run", "j"))
        self.assertEqual(["model.onnx"], self.bash("infer", "m"))
        self.assertIn("sleep", self.bash("run", "--", "slee"))
        self.assertEqual(["jobs.toml"], self.bash("run", "--", "cat", "jobs"))

    def test_bash_with_its_own_completions(self):
        """The rest of the line belongs to the command: bash-completion's own function gets it."""
        answer = self.shell("bash", "--norc", "-c", '_command_offset() { COMPREPLY=("from $1"); }; source "$1"; '
                            'COMP_WORDS=(sluice run --priority = low -- cat ""); COMP_CWORD=7; _sluice; echo "${COMPREPLY[@]}"',
                            "bash", SCRIPTS / "sluice.bash")
        self.assertEqual(["from 6"], answer)

    def test_zsh(self):
        self.assertEqual(["stop:end jobs"], self.zsh("st"))
        self.assertEqual(["low:0"], self.zsh("run", "-p", "l"))
        self.assertEqual(["files -g *.toml"], self.zsh("run", ""))
        self.assertEqual(["normal 2: cat j"], self.zsh("run", "--", "cat", "j"))

    def test_fish(self):
        self.assertEqual(["stop"], self.fish("sluice st"))
        self.assertEqual(["--leave-below", "--linger"], sorted(self.fish("sluice run --l")))
        self.assertEqual(["jobs.toml"], self.fish("sluice run jo"))
        self.assertEqual(["jobs.toml"], self.fish("sluice run -- cat jo"))


if __name__ == "__main__":
    support.main()
