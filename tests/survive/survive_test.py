"""What must be survived and needs no real GPU to be shown: survive_test.py BUILD --emulator [TEST...]

SLUICE_SURVIVE_JOBS is how many jobs the tests of many jobs start and end (40).
"""
import os
import resource
import shutil
import signal
import struct
import subprocess
import time

import survive_gpu_test
from survive_gpu_test import SurviveTest, wait_until

JOBS = int(os.environ.get("SLUICE_SURVIVE_JOBS", "40"))


class Stopped(SurviveTest):
    def test_the_high_job_stopped_while_it_holds_another(self):
        low, high, board, expected = self.held_pair()
        stopped_ns = time.monotonic_ns()
        os.kill(high.pid, signal.SIGSTOP)
        self.assert_soon_open(board, low, stopped_ns)
        self.assertEqual(low.answer(), expected)
        seen = low.ask("work 20"), low.ask("sum")  # as often as it likes
        self.assertEqual(seen[0], "launched")
        os.kill(high.pid, signal.SIGCONT)
        self.give_held_work(low, high, board)  # it holds again when it works again
        self.assertEqual(high.ask("join"), "joined")
        low.answer()
        self.assertEqual((low.finish(), high.finish()), (0, 0))
        self.assertGreaterEqual(high.report()["stalls"], 1)
        self.assert_nothing_left(board)


class RunKilled(SurviveTest):
    def test_of_the_high_and_of_the_low_job(self):
        low, high, board, expected = self.held_pair()
        for job in (low, high):
            job.process.kill()
            job.process.wait()
        seen = high.count()
        wait_until(lambda: high.count() > seen + 3, "the high job works on")
        self.wait_held(low, board)  # under the priorities that they had
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.answer(), expected)
        for job in (low, high):
            job.process.stdin.close()
            wait_until(lambda pid=job.pid: not survive_gpu_test.is_alive(pid), "the command's end")
        self.assert_nothing_left(board)


class WaitingByAPipe(SurviveTest):
    def setUp(self):
        super().setUp()
        self.low, self.high, self.board_, self.expected = self.held_pair()
        self.pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(self.pipe)
        self.low.post("write " + self.pipe)  # when it has the sum, which it waits for

    def finish(self):
        self.assertEqual((self.low.answer(), self.low.answer()), (self.expected, "written"))
        self.assertEqual((self.high.finish(), self.low.finish()), (0, 0))
        self.assert_nothing_left(self.board_)

    def test_with_work_that_nobody_waits_for(self):
        self.high.ask("work 5")
        self.high.ask("rest")
        self.assertEqual(self.high.ask("read " + self.pipe), "read hello")
        self.finish()

    def test_in_a_host_function_between_its_kernels(self):
        self.high.ask("call-reader " + self.pipe)
        self.high.ask("work 5")
        self.high.ask("rest")
        self.assertEqual(self.high.ask("sum"), "sum 6")
        self.finish()
        self.assertGreaterEqual(self.high.report()["stalls"], 1)


class Graphs(SurviveTest):
    """What a job says of its graphs at its end, and while it runs."""

    def report_of(self, priority="low", spacing=None):
        if spacing is not None:
            self.env["SLUICE_GRAPH_SPACING"] = spacing
        job = self.opened(priority)
        answers = [job.ask(line) for line in ("capture 20", "graph", "graph", "graph", "sum")]
        self.assertEqual(answers, ["captured"] + 3 * ["launched"] + ["sum 61"])
        listed = self.listed()[0]
        self.assertEqual(job.finish(), 0)
        report = job.report()
        keys = ("graphs_gated", "graphs_whole", "graphs_whole_reason")
        self.assertEqual([listed[key] for key in keys], [report[key] for key in keys])
        return [report[key] for key in keys], report, job.said()

    def test_gates_inside(self):
        graphs, report, _ = self.report_of()
        self.assertEqual(graphs, [1, 0, None])
        self.assertEqual(report["gates"], 2)  # 40 kernels, one before every sixteenth but the first

    def test_another_spacing(self):
        graphs, report, _ = self.report_of(spacing="10")
        self.assertEqual((graphs, report["gates"]), ([1, 0, None], 3))

    def test_none_at_high_priority(self):
        self.assertEqual(self.report_of("high")[0], [0, 3, "captured at high priority"])

    def test_at_high_priority_if_asked_for(self):
        self.assertEqual(self.report_of("high", spacing="4")[0], [1, 0, None])

    def test_none_if_switched_off(self):
        self.assertEqual(self.report_of(spacing="0")[0], [0, 3, "SLUICE_GRAPH_SPACING is 0"])

    def test_a_spacing_that_is_none(self):
        graphs, _, said = self.report_of(spacing="few")
        self.assertEqual(graphs, [1, 0, None])
        self.assertIn("SLUICE_GRAPH_SPACING is 'few'; it takes a number from 0 to 100000; 16 is used", said)

    def test_a_time_slice_that_is_none(self):
        self.env["SLUICE_TIME_SLICE"] = "few"
        self.assertIn("SLUICE_TIME_SLICE is 'few'; it takes microseconds, from 0 to 1000000; 50 is used",
                      self.report_of()[2])


class BrokenBoard(SurviveTest):
    PROGRAM = ("open", "work 20", "alloc", "sum", "exit 3")

    def board_path(self):
        done = self.call("run", "--quiet", "--", "printenv", "SLUICE_BOARDS")
        return done.stdout.split("=", 1)[1].rpartition(":")[0]

    def put_board_of_another_version(self, path):
        new = path + ".new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(struct.pack("<4sIQ", b"SLBD", 99, 1 << 16).ljust(1 << 16, b"\0"))
        os.replace(new, path)

    def test_of_another_version(self):
        path = self.board_path()
        self.end_daemon()
        self.put_board_of_another_version(path)
        said = self.assert_same_as_alone(*self.PROGRAM)
        self.assertRegex(said, r"running without Sluice: .* is of version 99")
        os.unlink(path)
        self.assert_nothing_left()

    def test_replaced_by_one_of_another_version_before_the_program_uses_the_gpu(self):
        job = self.job("low")
        path = self.board_path()
        self.put_board_of_another_version(path)
        self.assertEqual([job.ask(line) for line in ("open", "work 20", "sum")], ["open", "launched", "sum 21"])
        self.assertEqual(job.finish(), 0)
        self.assertEqual(job.said().count("not managed: "), 1, job.said())
        os.unlink(path)
        self.assert_nothing_left()

    def test_deleted_before_the_program_uses_the_gpu(self):
        job = self.job("low")
        os.unlink(self.board_path())
        self.assertEqual([job.ask(line) for line in ("open", "work 20", "sum")], ["open", "launched", "sum 21"])
        self.assertEqual(job.finish(), 0)
        self.assertEqual(job.said().count("not managed: "), 1, job.said())
        self.assert_nothing_left()

    def test_deleted_while_one_job_holds_another(self):
        low, high, board, expected = self.held_pair()
        os.unlink(self.board_path())
        newcomer = self.opened("normal")  # on a board of its own: neither sees the other
        self.assertEqual((newcomer.ask("work 20"), newcomer.ask("sum")), ("launched", "sum 21"))
        self.wait_held(low, board)
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.answer(), expected)
        self.assertEqual((low.finish(), high.finish(), newcomer.finish()), (0, 0, 0))
        self.assert_nothing_left(board)

    def test_deleted_with_its_directory_while_one_job_holds_another(self):
        low, high, board, expected = self.held_pair()
        shutil.rmtree(self.runtime)
        self.wait_held(low, board)
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.answer(), expected)
        self.assertEqual((low.finish(), high.finish()), (0, 0))
        wait_until(lambda: not self.ours(), "no process is left, not even the daemon")

    def test_damaged(self):
        path = self.board_path()
        self.end_daemon()
        for content in (b"", b"SLBD", b"\xff" * 300_000):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            self.assertIn("running without Sluice: ", self.assert_same_as_alone(*self.PROGRAM))
        os.unlink(path)
        self.assert_nothing_left()


class NoRoom(SurviveTest):
    """The memory file system is full or not there. The emulator's machine lies there too, so it is one of its own then."""

    PROGRAM = ("open", "work 20", "alloc", "sum", "exit 3")

    def assert_runs_without(self, said):
        ours = [line for line in said.splitlines() if line.startswith("sluice: ")]
        self.assertIn("running without Sluice: ", ours[0], said)
        self.assertEqual(len(ours), 1, said)

    def test_full(self):
        prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c",
                  f'mount -t tmpfs -o size=64k,mode=700 none "{self.runtime}" && exec "$@"', "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mounting of file systems here")
        words = [self.sluice, "run", "--", self.actor, *self.PROGRAM]
        done = subprocess.run([*prefix, *words], capture_output=True, text=True, env=self.env, check=False)
        self.assertEqual((done.returncode, done.stdout), self.alone(*self.PROGRAM), done.stderr)
        self.assert_runs_without(done.stderr)

    def test_file_size_limit(self):
        said = self.assert_same_as_alone(*self.PROGRAM,
                                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
        self.assert_runs_without(said)

    def test_missing(self):
        for path in ("/proc/none", "/dev/null/none", os.path.join(self.folder, "none", "none")):
            self.assert_runs_without(self.assert_same_as_alone(*self.PROGRAM, env=dict(self.env, SLUICE_RUNTIME_DIR=path)))


class Programs(SurviveTest):
    """Programs that do what programs should not."""

    def test_fork_after_init(self):
        self.assert_same_as_alone("open", "work 20", "fork try-driver", "work 20", "sum", "fork exit 9", "sum", "exit 4")
        self.assert_nothing_left()

    def test_fork_after_init_while_held(self):
        low, high, board, expected = self.held_pair()
        for line in ("fork pid", "fork exit 9", "exec pid"):
            low.post(line)
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.answer(), expected)
        self.assertRegex(low.answer(), r"^pid \d+$")
        self.assertEqual((low.answer(), low.answer()), ("child 7", "child 9"))
        self.assertRegex(low.answer(), r"^pid \d+$")
        self.assertEqual(low.answer(), "child 0")
        self.assertIsNotNone(board.client(low.pid), "a child that ends does not take its parent's slot away")
        self.assertEqual((low.finish(), high.finish()), (0, 0))
        self.assertEqual(low.report()["clients"], 1)
        self.assert_nothing_left(board)

    def test_fork_and_exec_after_init(self):
        program = ("open", "work 20", "exec open;work 5;sum;exit 2", "sum", "exit 4")
        self.assert_same_as_alone(*program)
        job = self.job("low")
        for line in program:
            job.post(line)
        self.assertEqual(job.exit_code(), 4)
        self.assertEqual(job.report()["clients"], 2)
        self.assert_nothing_left()

    def test_fork_before_init(self):
        self.assert_same_as_alone("fork open", "open", "work 20", "sum", "exit 4")
        self.assert_nothing_left()

    def test_64_threads_launching(self):
        low, high, board, expected = self.held_pair()
        low.post("threads 64")
        seen = high.count()
        wait_until(lambda: high.count() > seen + 3, "the high job works on")
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual((low.answer(), low.answer()), (expected, "threads 8416"))
        self.assertEqual((low.finish(), high.finish()), (0, 0))
        self.assert_nothing_left(board)

    def test_64_threads_launching_above_a_held_job(self):
        low, high, board, expected = self.held_pair()
        self.assertEqual(high.ask("threads 64"), "threads 8416")
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.answer(), expected)
        self.assertEqual((low.finish(), high.finish()), (0, 0))
        self.assert_nothing_left(board)

    def test_launches_from_destructors(self):
        self.assertEqual(self.alone("open", "late", "exit 3"), (3, "open\npromised\nlate 2\n"))
        self.assert_same_as_alone("open", "late", "exit 3")
        self.assert_nothing_left()

    def test_launches_from_destructors_while_held(self):
        low, high, board, _ = self.held_pair()
        low.post("late")
        low.post("exit 3")
        self.assertEqual(high.ask("join"), "joined")
        self.assertEqual(low.exit_code(), 3)
        self.assertEqual(high.finish(), 0)
        self.assert_nothing_left(board)

    def test_exit_while_a_thread_launches(self):
        for _ in range(10):
            self.assert_same_as_alone("open", "spin 50", "sum", "leave-while-spinning 5")
        self.assert_nothing_left()

    def test_exit_while_held(self):
        low = self.opened("low")
        high = self.opened("high")
        board = self.board()
        high.ask("spin 100")
        self.wait_held(low, board)
        low.ask("work 20")
        low.post("exit 6")
        self.assertEqual(low.exit_code(), 6)
        self.assertEqual((high.ask("join"), high.finish()), ("joined", 0))
        self.assert_nothing_left(board)


class Many(SurviveTest):
    def test_jobs_started_and_ended(self):
        witness = self.opened("normal")
        board = self.board()
        for _ in range(JOBS):
            self.assertEqual(self.call("run", "--quiet", "--priority", "low", "--", self.actor, "open", "exit 3").returncode, 3)
        wait_until(lambda: len(board.show()["clients"]) == 1 and len(board.show()["jobs"]) == 1, "only the witness is left")
        self.assertEqual((witness.ask("sum"), witness.finish()), ("sum 1", 0))
        self.assert_nothing_left(board)

    def test_processes_of_one_job(self):
        job = self.job("low")
        for _ in range(JOBS):
            job.post("exec open")
        for _ in range(JOBS):
            self.assertEqual((job.answer(), job.answer()), ("open", "child 0"))
        self.assertEqual(job.finish(), 0)
        self.assertEqual(job.report()["clients"], JOBS)
        self.assert_nothing_left()


if __name__ == "__main__":
    survive_gpu_test.main()
