"""`sluice run` with programs that use the (emulated) GPU: what they launch is seen, and what misses the shim is named."""
import json
import os
import signal

import support
from support import CliTest, is_alive, wait_until


class WithLaunches(CliTest):
    def setUp(self):
        super().setUp()
        self.example = str(support.BUILD / "bin" / "example_throughput")

    def run_reported(self, *words):
        path = os.path.join(self.folder, "report.json")
        done = self.call("run", "--report", path, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            return json.load(file), done.stderr

    def test_launches_are_counted(self):
        report, said = self.run_reported("-p", "low", "--", self.example, "--seconds", "0.5")
        self.assertGreater(report["launches"], 0)
        self.assertEqual(report["clients"], 1)
        self.assertGreater(report["gpu_time_us"], 0)
        self.assertIsNone(report["bypass"])
        self.assertEqual(report["unseen"], [])
        self.assertRegex(said, r"sluice: job \d+ \(low, simulated\): [\d,]+ of [\d,]+ launches gated, held .+, GPU time ")

    def test_a_running_job_shows_its_process_and_rates(self):
        process = self.start("run", "--", self.example, "--seconds", "1000")
        wait_until(lambda: self.jobs() and self.jobs()[0]["pids"], "a client on the board")
        status = json.loads(self.call("top", "--once", "--json", "--interval", "200ms").stdout)
        self.assertGreater(status["jobs"][0]["launches_per_s"], 0)
        self.assertEqual(status["unmanaged"], [])
        pid = status["jobs"][0]["pids"][0]
        self.assertEqual(self.call("stop", "--all").returncode, 0)
        process.wait(support.DEADLINE_S)
        self.assertFalse(is_alive(pid))

    def test_a_job_whose_run_was_killed_can_be_stopped(self):
        process = self.start("run", "--", self.example, "--seconds", "1000")
        wait_until(lambda: self.jobs() and self.jobs()[0]["pids"], "a client on the board")
        job = self.jobs()[0]
        process.kill()
        process.wait()
        self.assertTrue(is_alive(job["pids"][0]))
        self.assertEqual(self.call("stop", str(job["id"])).returncode, 0)
        self.assertFalse(is_alive(job["pids"][0]))
        self.assertEqual(self.jobs(), [])

    def test_a_process_that_misses_the_shim_is_named_with_the_reason(self):
        emulator = str(support.BUILD / "lib" / "sluice" / "emulator")
        process = self.start("run", "--check-after", "100ms", "--", "env", "LD_LIBRARY_PATH=" + emulator,
                             self.example, "--seconds", "1000")
        line = ""
        while "without the shim" not in line:
            line = process.stderr.readline()
            self.assertNotEqual(line, "", "the note never came")
        self.assertIn("LD_LIBRARY_PATH was reset on the way to it", line)
        process.send_signal(signal.SIGTERM)
        process.wait(support.DEADLINE_S)
        self.assertIn("no CUDA was used; without the shim: process", process.stderr.read())


if __name__ == "__main__":
    support.main()
