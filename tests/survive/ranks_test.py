"""Ranks of one job on two GPUs are held together, and nothing that happens to one keeps the other: ranks_test.py BUILD
--emulator [TEST...]"""
import glob
import os
import signal
import subprocess
import time

import survive_gpu_test
from survive_gpu_test import CLOSERS, HELD_BY_THE_DEAD_NS, TURN_BIT, Actor, Board, SurviveTest, is_alive, wait_until

# Progress of two ranks counts as equal within this factor. Held by itself, rank 0 had a fourteenth of the other's.
EQUAL = 5


class Ranks(SurviveTest):
    def setUp(self):
        super().setUp()
        self.env["SLUICE_EMU_GPUS"] = "2"

    def started(self, rank, *options):
        """A rank as mpirun starts it: a `sluice run` of its own."""
        env = dict(self.env, OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_SIZE="2",
                   PMIX_NAMESPACE="program-1")
        actor = Actor(self, [self.sluice, "run", "--quiet", "--priority", "low", "--gpu", str(rank), *options, "--"], env)
        self.assertEqual(actor.ask("open"), "open")
        return actor

    def two(self):
        ranks = [self.started(0), self.started(1)]
        return ranks, [self.board_of(rank) for rank in ranks]

    def board_of(self, actor):
        for path in glob.glob(os.path.join(self.runtime, "*.board")):
            board = Board(self, path)
            if board.client(actor.pid):
                return board
            board.actor.finish()
        raise AssertionError("it is on no board")

    def high(self):
        high = self.opened("high", "--gpu", "0")
        high.ask("spin 200")
        return high

    def wait_held_together(self, ranks, boards):
        wait_until(lambda: boards[0].gate(ranks[0].pid) & CLOSERS and boards[1].gate(ranks[1].pid) & TURN_BIT,
                   "both ranks are held")

    def test_they_are_one_job(self):
        ranks, _ = self.two()
        jobs = self.listed()
        self.assertEqual(len(jobs), 1, jobs)
        self.assertEqual(sorted(jobs[0]["pids"]), sorted(rank.pid for rank in ranks))
        self.assertEqual(len(jobs[0]["devices"]), 2)
        done = self.call("stop", str(jobs[0]["id"]))
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in ranks:
            self.assertEqual(rank.exit_code(), 128 + signal.SIGTERM)
        self.assert_nothing_left()

    def test_the_next_program_of_the_launcher_is_another_job(self):
        first = self.started(0)
        other = Actor(self, [self.sluice, "run", "--quiet", "--"], dict(self.env, OMPI_COMM_WORLD_RANK="0",
                      OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_SIZE="2", PMIX_NAMESPACE="program-2"))
        self.assertEqual(other.ask("open"), "open")
        jobs = self.listed()
        self.assertEqual(len(jobs), 2)
        self.assertEqual(len(max(jobs, key=lambda job: job["id"])["devices"]), 2, "a rank sees all GPUs unless told otherwise")
        self.assertEqual((first.finish(), other.finish()), (0, 0))

    def test_a_job_above_on_one_gpu_holds_both_and_lets_both_go(self):
        ranks, boards = self.two()
        for rank in ranks:
            rank.ask("spin 200")
        high = self.high()
        self.wait_held_together(ranks, boards)
        self.assertEqual(high.ask("join"), "joined")
        seen = [rank.count() for rank in ranks]
        wait_until(lambda: all(rank.count() > before + 3 for rank, before in zip(ranks, seen)), "both ranks go on")
        self.assertEqual([rank.ask("join") for rank in ranks], ["joined"] * 2)
        self.assertEqual([actor.finish() for actor in (high, *ranks)], [0, 0, 0])
        self.assert_nothing_left()

    def test_their_progress_stays_equal_beside_a_service(self):
        ranks, _ = self.two()
        for rank in ranks:
            rank.ask("spin 200")
        service = subprocess.Popen(
            [self.sluice, "run", "--quiet", "--priority", "high", "--gpu", "0", "--", str(survive_gpu_test.TREE / "bin" /
             "example_latency"), "--rate", "40", "--work-us", "20000", "--seconds", "1000"], env=self.env,
            stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: (service.kill(), service.wait()))
        wait_until(lambda: any(job["priority"] == 100 and job["launches"] > 100 for job in self.listed()), "the service works")
        before = [rank.count() for rank in ranks]
        wait_until(lambda: ranks[0].count() > before[0] + 60, "rank 0 has moved")
        moved = [rank.count() - start for rank, start in zip(ranks, before)]
        self.assertLess(max(moved) / max(1, min(moved)), EQUAL, f"ranks moved by {moved}")
        for rank in ranks:
            rank.ask("rest")

    def test_a_killed_rank_frees_the_other_in_time(self):
        ranks, boards = self.two()
        for rank in ranks:
            rank.ask("spin 200")
        high = self.high()
        self.wait_held_together(ranks, boards)
        killed_ns = time.monotonic_ns()
        os.kill(ranks[0].pid, signal.SIGKILL)
        self.assertLess(boards[1].ns_until_open(ranks[1].pid, killed_ns), HELD_BY_THE_DEAD_NS)
        seen = ranks[1].count()
        wait_until(lambda: ranks[1].count() > seen + 3, "the other goes on")
        self.assertEqual((high.ask("join"), ranks[1].ask("join")), ("joined", "joined"))
        self.assertEqual((high.finish(), ranks[1].finish()), (0, 0))

    def test_a_killed_daemon_frees_the_rank_that_only_it_held(self):
        ranks, boards = self.two()
        for rank in ranks:
            rank.ask("spin 200")
        self.high()
        self.wait_held_together(ranks, boards)
        daemon = self.daemon(boards[1])
        killed_ns = time.monotonic_ns()
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not is_alive(daemon), "the daemon's end")
        self.assertLess(boards[1].ns_until_open(ranks[1].pid, killed_ns), HELD_BY_THE_DEAD_NS)

    def test_a_job_above_that_waits_for_the_other_rank_goes_on(self):
        ranks, boards = self.two()
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        ranks[0].ask("spin 200")
        high = self.high()
        wait_until(lambda: boards[0].gate(ranks[0].pid) & CLOSERS, "rank 0 is held")
        ranks[1].ask("work 20")
        ranks[1].post("sum")
        ranks[1].post("write " + pipe)  # when it has the sum, which it waits for, while it is held with rank 0
        high.ask("call-reader " + pipe)
        high.ask("work 5")
        high.ask("rest")
        self.assertEqual(high.ask("sum"), "sum 6")
        self.assertEqual((ranks[1].answer(), ranks[1].answer()), ("sum 21", "written"))
        ranks[0].ask("join")
        self.assertEqual([actor.finish() for actor in (high, *ranks)], [0, 0, 0])


if __name__ == "__main__":
    survive_gpu_test.main()
