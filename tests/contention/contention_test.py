"""What Sluice is for, on the emulated RTX 2060: the service is nearly as fast as alone where time slicing makes its 99th
percentile at least twice as long, and the batch job keeps most of what is left. Simulated; ratios only.

    contention_test.py [--functional] BUILD

--functional runs the same once and shorter, and judges no times: for builds that a sanitizer slows down.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import fake_mps_control

BUILD = os.path.abspath(sys.argv.pop())
FUNCTIONAL = "--functional" in sys.argv
if FUNCTIONAL:
    sys.argv.remove("--functional")
# A request takes 12 real ms, so that a busy machine, which delays one by a millisecond now and then, does not show.
SCALE = 12
REPEATS, SECONDS = ("1", "0.3") if FUNCTIONAL else ("3", "0.8")



def measured(low_options="", repeats=REPEATS, **environment):
    """The report and its page, of the service beside the batch job."""
    with tempfile.TemporaryDirectory() as out:
        command = [f"{BUILD}/bin/bench_contention", "--emulated", "--scale", str(SCALE), "--repeats", repeats,
                   "--seconds", SECONDS, "--out", out,
                   "--high", f"{BUILD}/bin/example_latency --json --check --rate 100 --work-us 1000 --seed {{repeat}}",
                   "--low", f"{BUILD}/bin/example_throughput --json {low_options}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **environment})
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
        print(done.stdout)
        with open(f"{out}/report.json") as file:
            report = json.load(file)
        with open(f"{out}/report.html") as file:
            return report, file.read()


def jobs_of(report):
    return {setup["name"]: setup["jobs"] for setup in report["setups"]}


class Contention(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report, cls.page = measured()
        cls.jobs = jobs_of(cls.report)

    @unittest.skipIf(FUNCTIONAL, "a sanitizer changes times")
    def test_time_slicing_makes_the_tail_at_least_twice_as_long(self):
        self.assertGreaterEqual(self.jobs["time_slicing"][0]["p99_ratio"], 2)

    @unittest.skipIf(FUNCTIONAL, "a sanitizer changes times")
    def test_sluice_keeps_it_near_alone(self):
        self.assertLessEqual(self.jobs["sluice"][0]["p99_ratio"], 1.3)

    @unittest.skipIf(FUNCTIONAL, "a sanitizer changes times")
    def test_the_low_job_keeps_most_of_what_is_left(self):
        self.assertGreaterEqual(self.jobs["sluice"][1]["kept_ratio"], 0.8)

    @unittest.skipIf(FUNCTIONAL, "a sanitizer changes times")
    def test_there_were_enough_requests(self):
        for setup in self.jobs.values():
            self.assertGreaterEqual(setup[0]["samples"], 150)

    def test_the_low_job_was_gated(self):
        low = self.jobs["sluice"][1]
        self.assertGreater(low["gated"], 0.9 * low["launches"])
        self.assertGreater(low["gates"], 0)  # launches that nobody could hold count as gated, but need no wait

    def test_it_is_labelled_simulated(self):
        self.assertTrue(self.report["simulated"])
        self.assertIn("simulated", self.page)
        self.assertIn("Who held the GPU", self.page)
        self.assertIn("held for", self.page)


class Graphs(unittest.TestCase):
    """The batch job launches graphs of 5 ms: the service is nearly as fast as alone where they have gates inside, and not
    where they are held as a whole. That shows in the median; the tail is the other class's."""
    LOW = "--graph --kernel-us 25 --sync-every 200"

    @classmethod
    def setUpClass(cls):
        cls.inside = jobs_of(measured(cls.LOW, "1")[0])
        cls.whole = jobs_of(measured(cls.LOW, "1", SLUICE_GRAPH_SPACING="0")[0])

    @staticmethod
    def median_ratio(jobs):
        return jobs["sluice"][0]["p50_us"] / jobs["alone"][0]["p50_us"]

    @unittest.skipIf(FUNCTIONAL, "a sanitizer changes times")
    def test_gates_inside_keep_the_service_near_alone(self):
        self.assertLessEqual(self.median_ratio(self.inside), 1.5)
        self.assertGreaterEqual(self.inside["sluice"][1]["kept_ratio"], 0.7)

    @unittest.skipIf(FUNCTIONAL, "a sanitizer changes times")
    def test_held_as_a_whole_they_do_not(self):
        self.assertGreaterEqual(self.median_ratio(self.whole), 1.3 * self.median_ratio(self.inside))

    def test_both_were_gated_at_their_launch(self):
        for jobs in (self.inside, self.whole):
            low = jobs["sluice"][1]
            self.assertGreater(low["gated"], 0.9 * (low["launches"] - 200))  # less what was captured


class WithMps(unittest.TestCase):
    """With a control program that only pretends, and a driver that passes for a real one: what is run, and what is said."""

    def test_both_setups_are_run_under_a_daemon_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = fake_mps_control.machine_with_mps(BUILD, folder)
            environment["LD_LIBRARY_PATH"] = os.path.dirname(environment["SLUICE_DRIVER"])
            jobs = os.path.join(folder, "jobs.toml")
            with open(jobs, "w") as file:
                file.write(f"""
[[job]]
name = "serve"
priority = "high"
command = "{BUILD}/bin/example_latency --json --check --rate 50 --work-us 1000"
[[job]]
name = "batch"
priority = "low"
sm_percentage = 70
command = ["sh", "-c", "env > $SLUICE_LATENCY_FILE.env; exec {BUILD}/bin/example_throughput --json"]
""")
            done = subprocess.run([f"{BUILD}/bin/bench_contention", "--mps", "--repeats", "1", "--seconds", "0.4", "--out",
                                   f"{folder}/out", jobs], capture_output=True, text=True, timeout=280,
                                  env={**os.environ, **environment})
            self.assertEqual(done.returncode, 0, done.stderr)
            told = fake_mps_control.told(folder)
            with open(f"{folder}/out/report.json") as file:
                report = json.load(file)
            for setup in ("mps", "sluice_mps"):
                with open(f"{folder}/out/jobs/{setup}-batch-1.latency.env") as file:
                    environment = file.read()
                self.assertIn("CUDA_MPS_CLIENT_PRIORITY=1\n", environment)
                self.assertIn("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70\n", environment)
        self.assertEqual([entry["command"] for entry in told], ["-d", "quit"] * 3)  # the first only shows that it can be
        self.assertEqual([setup["name"] for setup in report["setups"]],
                         ["alone", "time_slicing", "mps", "sluice", "sluice_mps"])
        jobs = jobs_of(report)
        self.assertIsNone(jobs["mps"][1]["gated"])
        self.assertGreater(jobs["sluice_mps"][1]["gated"], 0)
        self.assertIn(report["best"]["setup"], jobs)
        self.assertTrue(done.stdout.splitlines()[-1].startswith("Best for this mix: "), done.stdout)

    def test_the_emulator_has_none(self):
        done = subprocess.run([f"{BUILD}/bin/bench_contention", "--emulated", "--mps", "--repeats", "1", "--seconds", "0.1",
                               "--out", self.enterContext(tempfile.TemporaryDirectory())], capture_output=True,
                              text=True, timeout=280)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("the emulator has no MPS: leave --mps out", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
