"""What must be survived on a real GPU as on the emulated one, and what all tests of survival share.

    survive_gpu_test.py TREE [TEST...]              with this machine's driver; TREE is a build tree or a bundle
    survive_gpu_test.py TREE --emulator [TEST...]   with the emulator

SLUICE_SURVIVE_FROZEN_S is how long a gate stays closed in the tests of frozen jobs (3 s).
"""
import glob
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

TREE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
EMULATED = "--emulator" in sys.argv
DEADLINE_S = 90  # when a fact that must come true counts as missing; only a hang reaches it
FROZEN_S = float(os.environ.get("SLUICE_SURVIVE_FROZEN_S", "3"))

# Nobody is held longer than this by something dead or stopped. On the emulator, ten times as long: its machines have few
# cores, which the emulated GPU keeps busy, so a thread that wakes up in time may have to wait for one.
HELD_BY_THE_DEAD_NS = 200_000_000 * (10 if EMULATED else 1)

TURN_BIT = 1 << 62
CLOSERS = (1 << 62) - 1


told_to_end = False


def end(*_):
    """SIGTERM: the test that runs fails, and is cleaned up after; no other one starts."""
    global told_to_end
    told_to_end = True
    raise SystemExit("told to end")


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("never came true: " + what)
        time.sleep(0.01)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Actor:
    """A survive_actor that is told what to do, by itself or as the command of a `sluice run`."""

    def __init__(self, test, prefix=(), env=None):
        self.errors = tempfile.TemporaryFile(dir=test.folder)
        self.process = subprocess.Popen([*prefix, test.actor, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=env or test.env)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.held_back = b""
        test.addCleanup(self.end)
        self.pid = int(self.ask("pid").split()[1])

    def end(self):
        for pid in (self.pid if hasattr(self, "pid") else 0, self.process.pid):
            try:
                if pid and is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def post(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, seconds=DEADLINE_S):
        """The next line of its answers; None where there is none within `seconds`."""
        end = time.monotonic() + seconds
        while b"\n" not in self.held_back:
            left = end - time.monotonic()
            if not select.select([self.process.stdout], [], [], max(left, 0))[0]:
                if seconds < DEADLINE_S:
                    return None
                raise AssertionError("no answer: " + self.said())
            some = os.read(self.process.stdout.fileno(), 65536)
            if not some:
                raise AssertionError("it ended instead of answering: " + self.said())
            self.held_back += some
        line, self.held_back = self.held_back.split(b"\n", 1)
        return line.decode()

    def ask(self, line):
        self.post(line)
        return self.answer()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def count(self):
        return int(self.ask("count").split()[1])

    def exit_code(self):
        return self.process.wait(DEADLINE_S)

    def finish(self):
        """Lets it come to the end of its input."""
        self.process.stdin.close()
        return self.exit_code()


class Board:
    """A GPU's board, seen by a process that takes no part."""

    def __init__(self, test, path):
        env = {name: value for name, value in test.env.items() if not name.startswith("SLUICE_")}
        self.actor = Actor(test, env=env)
        answer = self.actor.ask("map " + path)
        test.assertEqual(answer, "mapped")

    def show(self):
        return json.loads(self.actor.ask("show"))

    def client(self, pid):
        return next((client for client in self.show()["clients"] if client["pid"] == pid and client["live"]), None)

    def gate(self, pid):
        client = self.client(pid)
        return client["gate"] if client else 0

    def ns_until_open(self, pid, since_ns):
        return int(self.actor.ask(f"await-open {pid}").split()[1]) - since_ns


class SurviveTest(unittest.TestCase):
    def setUp(self):
        if told_to_end:
            self.skipTest("told to end")
        # A real driver may refuse to register memory of a file on a disk.
        self.folder = tempfile.mkdtemp(prefix="sluice-survive-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.runtime = os.path.join(self.folder, "runtime")
        os.mkdir(self.runtime, 0o700)
        self.sluice = str(TREE / "bin" / "sluice")
        self.actor = str(TREE / "tests" / "survive_actor")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "LD_"))}
        self.env["SLUICE_RUNTIME_DIR"] = self.runtime
        if EMULATED:
            self.env["SLUICE_DRIVER"] = str(TREE / "lib" / "sluice" / "emulator" / "libcuda.so.1")
        self.reports = 0
        self.addCleanup(self.kill_ours)

    # ---- starting things

    def job(self, priority, *options):
        self.reports += 1
        report = os.path.join(self.folder, f"report-{self.reports}.json")
        job = Actor(self, [self.sluice, "run", "--quiet", "--priority", priority, "--report", report, *options, "--"])
        job.report = lambda: json.loads(pathlib.Path(report).read_text(encoding="utf-8"))
        return job

    def opened(self, priority, *options):
        job = self.job(priority, *options)
        self.assertEqual(job.ask("open"), "open")
        return job

    def board(self):
        paths = glob.glob(os.path.join(self.runtime, "*.board"))
        self.assertEqual(len(paths), 1, paths)
        return Board(self, paths[0])

    def call(self, *args, **kwargs):
        kwargs.setdefault("env", self.env)
        return subprocess.run([self.sluice, *args], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              stdin=subprocess.DEVNULL, **kwargs)

    def alone(self, *commands):
        """Exit code and standard output without Sluice."""
        env = dict(self.env)
        if EMULATED:
            env["LD_LIBRARY_PATH"] = os.path.dirname(env["SLUICE_DRIVER"])
        done = subprocess.run([self.actor, *commands], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              stdin=subprocess.DEVNULL, env=env)
        return done.returncode, done.stdout

    def assert_same_as_alone(self, *commands, **kwargs):
        """Under `sluice run` the commands give the exit code and the output that they give without. Returns what
        `sluice run` and the program said on standard error."""
        done = self.call("run", "--priority", "low", "--", self.actor, *commands, **kwargs)
        self.assertEqual((done.returncode, done.stdout), self.alone(*commands), done.stderr)
        return done.stderr

    # ---- bringing about what is to be survived

    def held_pair(self):
        """A low job with work that a busy high job holds, and which it has been asked to wait for: the sum's answer is
        still to come. Returns both, the board, and that answer."""
        low = self.opened("low")
        high = self.opened("high")
        board = self.board()
        high.ask("spin 100")
        expected = self.give_held_work(low, high, board)
        return low, high, board, expected

    def wait_held(self, low, board):
        wait_until(lambda: board.gate(low.pid) & CLOSERS, "the low job is held")

    def give_held_work(self, low, high, board):
        done = 1
        while True:  # on a crowded machine a busy high job may count as stuck for a moment, and lets go
            self.wait_held(low, board)
            low.ask("work 20")
            low.post("sum")
            done += 20
            seen = high.count()
            wait_until(lambda: high.count() > seen + 3, "the high job works")
            if low.answer(0) is None:
                return f"sum {done}"

    def kill_the_held(self, low, high, board):
        """The high one is none the worse for it."""
        os.kill(low.pid, signal.SIGKILL)
        self.assertEqual(low.exit_code(), 128 + signal.SIGKILL)
        seen = high.count()
        wait_until(lambda: high.count() > seen + 3, "the high job works on")
        self.assertEqual((high.ask("sum"), high.ask("join"), high.finish()), ("sum 1", "joined", 0))
        self.assert_nothing_left(board)

    def assert_soon_open(self, board, low, since_ns):
        self.assertLess(board.ns_until_open(low.pid, since_ns), HELD_BY_THE_DEAD_NS)

    def daemon(self, board):
        wait_until(lambda: board.show()["daemon"], "there is a daemon")
        return board.show()["daemon"]

    # ---- what remains

    def ours(self):
        """Processes that have our runtime directory in their environment."""
        mark = f"SLUICE_RUNTIME_DIR={self.runtime}\0".encode()
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and int(entry) != os.getpid() and \
                        mark in pathlib.Path(f"/proc/{entry}/environ").read_bytes() + b"\0":
                    found.append(int(entry))
            except OSError:
                pass
        return found

    def kill_ours(self):
        for pid in self.ours():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def listed(self):
        listed = self.call("ps", "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return json.loads(listed.stdout)["jobs"]

    def end_daemon(self):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(DEADLINE_S)
                client.connect(os.path.join(self.runtime, "control.sock"))
                client.sendall(b'{"v": 1, "op": "shutdown"}\n')
                while client.recv(4096):
                    pass
        except OSError:
            pass  # there is none

    def assert_nothing_left(self, board=None, daemon_was_killed=False):
        if daemon_was_killed:  # what it left is the next one's to clear away
            self.assertEqual(self.call("run", "--quiet", "--", "true").returncode, 0)
        wait_until(lambda: not self.listed(), "no job is listed")
        if board is not None:
            wait_until(lambda: not board.show()["clients"] and not board.show()["jobs"], "all slots are free")
        self.end_daemon()
        wait_until(lambda: not self.ours(), "no process is left")
        left = [name for name in os.listdir(self.runtime)
                if name != "sluiced.log" and not name.endswith(".lock") and not name.startswith("emulator-")]
        self.assertEqual(left, [])


class Killed(SurviveTest):
    def test_the_high_job_killed_while_it_holds_another(self):
        low, high, board, expected = self.held_pair()
        killed_ns = time.monotonic_ns()
        os.kill(high.pid, signal.SIGKILL)
        self.assert_soon_open(board, low, killed_ns)
        self.assertEqual(low.answer(), expected)
        self.assertEqual((low.finish(), high.exit_code()), (0, 128 + signal.SIGKILL))
        self.assert_nothing_left(board)

    def test_the_high_job_killed_with_its_run_and_the_daemon(self):
        low, high, board, expected = self.held_pair()
        os.kill(self.daemon(board), signal.SIGKILL)
        high.process.kill()
        high.process.wait()
        self.wait_held(low, board)
        killed_ns = time.monotonic_ns()
        os.kill(high.pid, signal.SIGKILL)  # nobody but the held one itself is there to notice
        self.assert_soon_open(board, low, killed_ns)
        self.assertEqual((low.answer(), low.finish()), (expected, 0))
        self.assert_nothing_left(board, daemon_was_killed=True)

    def test_the_low_job_killed_while_it_is_held(self):
        self.kill_the_held(*self.held_pair()[:3])

    def test_the_daemon_killed_while_one_job_holds_another(self):
        low, high, board, expected = self.held_pair()
        os.kill(self.daemon(board), signal.SIGKILL)
        seen = high.count()
        wait_until(lambda: high.count() > seen + 3, "the high job works on")
        self.wait_held(low, board)  # priorities need no daemon
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.answer(), expected)
        self.assertEqual((low.finish(), high.finish()), (0, 0))
        self.assert_nothing_left(board, daemon_was_killed=True)

    def end_daemon_in_a_turn(self, number):
        """Sends `number` to the daemon while it holds one of two equal jobs; returns both and the board."""
        jobs = [self.opened("normal"), self.opened("normal")]
        board = self.board()
        for job in jobs:
            job.ask("spin 100")
        daemon = self.daemon(board)
        held = []

        def somebody_waits():
            held[:] = [job for job in jobs if board.gate(job.pid) & TURN_BIT]
            return held
        wait_until(somebody_waits, "the daemon holds one of two equals")
        sent_ns = time.monotonic_ns()
        os.kill(daemon, number)
        for job in jobs:
            self.assert_soon_open(board, job, sent_ns)
        seen = [job.count() for job in jobs]
        wait_until(lambda: all(job.count() > before + 3 for job, before in zip(jobs, seen)), "both work on")
        for job in jobs:
            self.assertEqual((job.ask("sum"), job.ask("join"), job.finish()), ("sum 1", "joined", 0))
        return board, daemon

    def test_the_daemon_killed_while_it_holds_one_of_two_equals(self):
        board, _ = self.end_daemon_in_a_turn(signal.SIGKILL)
        self.assert_nothing_left(board, daemon_was_killed=True)

    def test_the_daemon_stopped_while_it_holds_one_of_two_equals(self):
        board, daemon = self.end_daemon_in_a_turn(signal.SIGSTOP)
        os.kill(daemon, signal.SIGCONT)
        self.assert_nothing_left(board)


class WaitingForTheHeld(SurviveTest):
    def test_by_an_ipc_event(self):
        low = self.opened("low")
        high = self.opened("high")
        board = self.board()
        event = low.ask("share-event").split()[1]
        self.assertEqual(high.ask("open-event " + event), "opened")
        high.ask("spin 100")
        self.wait_held(low, board)
        low.ask("work 20")
        low.ask("record")
        self.assertEqual((high.ask("follow"), high.ask("work 5"), high.ask("rest")), ("following", "launched", "resting"))
        self.assertEqual(high.ask("sum"), "sum 6")  # only comes if the low job's work gets done
        self.assertEqual(low.ask("sum"), "sum 21")
        self.assertEqual((high.finish(), low.finish()), (0, 0))
        self.assertGreaterEqual(high.report()["stalls"], 1)
        self.assert_nothing_left(board)


class HeldInsideAGraph(SurviveTest):
    PIECES, LAUNCHES = 100, 8  # of 2 ms: 1.6 s, in which another job closes the gate for sure
    SUM = f"sum {1 + PIECES * LAUNCHES}"

    def graph_job(self):
        job = self.opened("low")
        self.assertEqual(job.ask(f"capture {self.PIECES}"), "captured")
        return job

    def launch(self, *jobs):
        for job in jobs:
            for _ in range(self.LAUNCHES):
                self.assertEqual(job.ask("graph"), "launched")

    def test_the_high_job_killed(self):
        low, high = self.graph_job(), self.opened("high")
        board = self.board()
        self.launch(low)
        low.post("sum")
        high.ask("spin 100")
        self.wait_held(low, board)
        seen = high.count()
        wait_until(lambda: high.count() > seen + 3, "the high job works")
        self.assertIsNone(low.answer(0))
        killed_ns = time.monotonic_ns()
        os.kill(high.pid, signal.SIGKILL)
        self.assert_soon_open(board, low, killed_ns)
        self.assertEqual((low.answer(), low.finish()), (self.SUM, 0))
        report = low.report()
        self.assertEqual((report["graphs_gated"], report["graphs_whole"]), (1, 0))
        self.assertGreaterEqual(report["holds"], 1)
        self.assert_nothing_left(board)

    def test_closed_for_long_then_exit_and_end(self):
        witness = self.opened("normal")
        leaves, stays = self.graph_job(), self.graph_job()
        board = self.board()
        self.launch(leaves, stays)
        for job in (leaves, stays):
            self.assertEqual(board.actor.ask(f"freeze {job.pid}"), "frozen")
        stays.post("sum")
        time.sleep(FROZEN_S)  # the time that is to be survived; nothing is awaited
        self.assertIsNone(stays.answer(0))
        leaves.post("exit 6")
        self.assertEqual(leaves.exit_code(), 6, leaves.said())
        self.assertEqual(board.actor.ask(f"thaw {stays.pid}"), "thawed")
        self.assertEqual((stays.answer(), stays.finish(), witness.finish()), (self.SUM, 0, 0))
        self.assert_nothing_left(board)


class LongKernels(SurviveTest):
    """On a GPU such a job is taken off it while it is held, in the middle of a kernel."""

    def held_pair_of_long(self):
        low = self.opened("low")
        low.ask("spin 3000")
        wait_until(lambda: low.count() > 10, "the low job works")
        high = self.opened("high")
        board = self.board()
        high.ask("spin 100")
        self.wait_held(low, board)
        wait_until(lambda: high.count() > 20, "the high job works")
        return low, high, board

    def test_the_high_job_killed_while_a_long_kernel_is_off_the_gpu(self):
        low, high, board = self.held_pair_of_long()
        seen = low.count()
        os.kill(high.pid, signal.SIGKILL)
        wait_until(lambda: low.count() > seen + 10, "the low job works again")
        self.assertEqual((low.ask("join"), low.ask("sum"), low.finish()), ("joined", "sum 1", 0))
        self.assertEqual(low.report()["preempted"] > 0, not EMULATED)
        self.assert_nothing_left(board)

    def test_the_job_killed_whose_long_kernel_is_off_the_gpu(self):
        self.kill_the_held(*self.held_pair_of_long())


class Frozen(SurviveTest):
    """A gate that stays closed, though everybody lives: what hangs must be what would hang anyway, and end well."""

    def test_a_gate_closed_for_long_then_synchronise_allocate_exit_and_kill(self):
        witness = self.opened("normal")  # somebody who could hold the others, or they would not be gated
        jobs = {name: self.opened("low") for name in ("synchronise", "allocate", "exit", "kill", "terminate")}
        board = self.board()
        for job in jobs.values():
            self.assertEqual(board.actor.ask(f"freeze {job.pid}"), "frozen")
            job.ask("work 20")
        jobs["synchronise"].post("sum")
        jobs["allocate"].post("alloc")
        time.sleep(FROZEN_S)  # the time that is to be survived; nothing is awaited
        self.assertIsNone(jobs["synchronise"].answer(0))
        jobs["exit"].post("exit 6")
        os.kill(jobs["kill"].pid, signal.SIGKILL)
        os.kill(jobs["terminate"].pid, signal.SIGTERM)
        for name, code in (("exit", 6), ("kill", 128 + signal.SIGKILL), ("terminate", 128 + signal.SIGTERM)):
            self.assertEqual(jobs[name].exit_code(), code, jobs[name].said())
        for name, answer in (("synchronise", "sum 21"), ("allocate", "allocated")):
            self.assertEqual(board.actor.ask(f"thaw {jobs[name].pid}"), "thawed")
            self.assertEqual(jobs[name].answer(), answer)
            self.assertEqual((jobs[name].ask("sum"), jobs[name].finish()), ("sum 21", 0))
        self.assertEqual(witness.finish(), 0)
        self.assert_nothing_left(board)


def main():
    signal.signal(signal.SIGTERM, end)
    unittest.main(argv=[sys.argv[0]] + [word for word in sys.argv[2:] if word != "--emulator"], verbosity=2)


if __name__ == "__main__":
    main()
