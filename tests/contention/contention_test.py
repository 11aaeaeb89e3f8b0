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

BUILD = os.path.abspath(sys.argv.pop())
FUNCTIONAL = "--functional" in sys.argv
if FUNCTIONAL:
    sys.argv.remove("--functional")
# A request takes 12 real ms, so that a busy machine, which delays one by a millisecond now and then, does not show.
SCALE = 12
REPEATS, SECONDS = ("1", "0.3") if FUNCTIONAL else ("3", "0.8")


class Contention(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as out:
            command = [f"{BUILD}/bin/bench_contention", "--emulated", "--scale", str(SCALE), "--repeats", REPEATS,
                       "--seconds", SECONDS, "--out", out,
                       "--high", f"{BUILD}/bin/example_latency --json --check --rate 100 --work-us 1000 --seed {{repeat}}",
                       "--low", f"{BUILD}/bin/example_throughput --json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=280)
            if done.returncode != 0:
                raise AssertionError(f"exit code {done.returncode}: {done.stderr}")
            print(done.stdout)
            with open(f"{out}/report.json") as file:
                cls.report = json.load(file)
            with open(f"{out}/report.html") as file:
                cls.page = file.read()
        cls.jobs = {setup["name"]: setup["jobs"] for setup in cls.report["setups"]}

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
