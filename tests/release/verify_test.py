#!/usr/bin/env python3
"""docs/verify.md: its steps without a GPU, typed as they stand there, show what it says. verify_test.py BUILD"""
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import support  # noqa: E402
from support import BUILD, CliTest, wait_until  # noqa: E402

STEP = re.compile(r"```sh\n(.*?)```\n(?:```\n(.*?)```\n)?", re.DOTALL)
NUMBER = r"\d[\d.,]*(?: (?:B|KiB|MiB|GiB|ns|us|ms|s|h|%))?"


def pattern(line):
    """What a line may look like: other numbers and units, other blanks between columns."""
    parts = re.split(NUMBER, re.sub(r"GPU-[\w-]+", "GPU-1", line))
    return r"\s*" + NUMBER.join(r"\s+".join(re.escape(word) for word in part.split(" ")).replace(r"\s+\s+", r"\s+")
                                for part in parts).replace(r"GPU\-", r"GPU\-[\w-]*") + r"\s*"


def missing(expected, shown):
    """The expected lines that none of the shown ones looks like."""
    shown = [re.sub(r"GPU-[\w-]+", "GPU-1", line) for line in shown]
    return [line for line in expected if not any(re.fullmatch(pattern(line), other) for other in shown)]


class Verify(CliTest):
    def test_the_steps_without_a_gpu(self):
        if Path("/dev/nvidiactl").exists():
            self.skipTest("an NVIDIA driver is installed")
        del self.env["SLUICE_DRIVER"]  # as a user has it: the emulated card takes the driver's place
        self.env["PATH"] = f"{BUILD / 'bin'}:{self.env['PATH']}"
        text = (ROOT / "docs/verify.md").read_text()
        steps = STEP.findall(text[text.index("## Without a GPU"):text.index("## With a GPU")])
        self.assertGreater(len(steps), 5)
        for commands, expected in steps:
            for command in commands.splitlines():
                if command.endswith("&"):
                    self.start_in_background(command.rstrip("& "))
                else:
                    shown = self.type(command, expected.splitlines() if command == commands.splitlines()[-1] else [])
                    self.lines_before = shown if command != commands.splitlines()[-1] else []

    lines_before = ()

    def start_in_background(self, command):
        name = re.search(r"--name (\w+)", command)[1]
        self.start(*command.split()[1:])
        wait_until(lambda: any(job["name"] == name for job in self.jobs()), f"{name} is there")

    def type(self, command, expected):
        """Types it until what it shows is as expected."""
        names = {job["name"]: job["id"] for job in self.jobs()}
        command = re.sub(r"sluice stop \d+", f"sluice stop {names.get('serve')}", command)
        shown = []

        def as_expected():
            done = subprocess.run(["bash", "-c", command], env=self.env, cwd=self.folder, timeout=support.DEADLINE_S, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
            shown[:] = [*self.lines_before, *done.stdout.splitlines()]
            return not missing(expected, shown)
        try:
            wait_until(as_expected, command)
        except AssertionError:
            self.fail(f"'{command}' shows\n" + "\n".join(shown) + "\nand not\n" + "\n".join(missing(expected, shown)))
        return shown


class Patterns(unittest.TestCase):
    def test_numbers_may_differ_and_words_not(self):
        self.assertEqual([], missing(["JOB  1,648  566 ms  a"], ["JOB 7  1.2 s    a"]))
        self.assertEqual(["held by 3"], missing(["held by 3"], ["running"]))
        self.assertEqual([], missing(["on GPU-65d0 x"], ["on GPU-1-2 x"]))


if __name__ == "__main__":
    support.main()
