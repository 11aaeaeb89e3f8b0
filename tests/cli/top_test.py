"""sluice top on a terminal: a pty of some size, keys, a change of size, and the ways out."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import support
from support import BUILD, CliTest, wait_until

PROGRAM = str(BUILD / "bin" / "example_throughput")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>78]|[\x0e\x0f]")


class Terminal:
    """What a program writes to a pty, and how to press its keys."""

    def __init__(self, case, command, env, rows=24, columns=80):
        self.ours, theirs = pty.openpty()
        self.size(rows, columns)
        self.modes = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.theirs = theirs  # kept, so that what it left can be read behind its end
        self.raw = ""
        case.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.ours)
        os.close(self.theirs)

    def size(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.ours], [], [], 0)[0]:
            self.raw += os.read(self.ours, 65536).decode("utf-8", "replace")
        return ESCAPES.sub(" ", self.raw)

    def press(self, keys):
        os.write(self.ours, keys.encode())

    def forget(self):
        self.read()
        self.raw = ""

    def wait_for(self, what):
        wait_until(lambda: re.search(what, self.read()), what)


class Top(CliTest):
    def setUp(self):
        super().setUp()
        self.env["TERM"] = "xterm"

    def open(self, *args, **size):
        return Terminal(self, [self.sluice, "top", "--interval", "100ms", *args], self.env, **size)

    def job(self):
        job = self.start("run", "--priority", "low", "--name", "a-job", "--", PROGRAM, "--seconds", "600")
        wait_until(lambda: [entry for entry in self.jobs() if entry["launches"]], "the job launches")
        return self.jobs()[0]["id"], job

    def priority(self):
        return self.jobs()[0]["priority"]

    def assert_given_back(self, terminal):
        self.assertEqual(termios.tcgetattr(terminal.theirs), terminal.modes)
        terminal.read()
        self.assertIn("\x1b[?1049l", terminal.raw)  # the screen from before

    def test_jobs_cards_and_keys(self):
        number, _ = self.job()
        top = self.open()
        top.wait_for(r"RTX 2060")
        top.wait_for(rf"{number} +low")
        top.wait_for("a-job")
        top.press("h")
        top.wait_for("select a job")
        top.press("j")
        top.press("h")
        wait_until(lambda: self.priority() == 100, "h makes it high")
        top.wait_for(f"job {number} is high now")
        top.press("-")
        wait_until(lambda: self.priority() == 90, "- takes ten")
        top.press("\x1bOB")  # the arrow, in application mode
        top.press("l")
        wait_until(lambda: self.priority() == 0, "l makes it low")
        top.press("q")
        self.assertEqual(top.process.wait(timeout=support.DEADLINE_S), 0)
        self.assert_given_back(top)
        self.assertEqual(top.process.stderr.read(), "")

    def test_another_size(self):
        self.job()
        top = self.open()
        top.wait_for("q quit")
        self.assertNotRegex(top.read(), "SHARE")
        top.forget()
        top.size(50, 160)
        top.wait_for("SHARE")
        top.forget()
        top.size(5, 20)
        top.wait_for("arrows")
        self.assertIsNone(top.process.poll())

    def test_signals_end_it_and_the_terminal_is_given_back(self):
        for end in (signal.SIGTERM, signal.SIGHUP):
            top = self.open()
            top.wait_for("no jobs")
            top.process.send_signal(end)
            self.assertEqual(top.process.wait(timeout=support.DEADLINE_S), 0)
            self.assert_given_back(top)
        top = self.open()
        top.wait_for("no jobs")
        top.press("\x03")
        self.assertEqual(top.process.wait(timeout=support.DEADLINE_S), 0)
        self.assert_given_back(top)

    def test_where_it_cannot_draw_there_is_one_picture(self):
        done = self.call("top", "--interval", "100ms")
        self.assertEqual(done.returncode, 0)
        self.assert_one_line(done.stderr)
        self.assertIn("no terminal: one picture, as with --once", done.stderr)
        self.assertIn("no jobs", done.stdout)
        for name, why in (("dumb", "no cursor"), ("nobody-knows-this", "not known")):
            self.env["TERM"] = name
            top = self.open()
            self.assertEqual(top.process.wait(timeout=support.DEADLINE_S), 0)
            self.assertIn(why, top.process.stderr.read())
            self.assertIn("no jobs", top.read())


if __name__ == "__main__":
    support.main()
