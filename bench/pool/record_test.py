"""Tests of what needs no GPU: how a recording becomes a trace, and how results are judged."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
BENCH_POOL = sys.argv.pop(1)
EMULATOR = sys.argv.pop(1)

import pytorch  # noqa: E402
from record import to_events  # noqa: E402


def entry(action, address, size, stream):
    return {"action": action, "addr": address, "size": size, "stream": stream}


class Record(unittest.TestCase):
    RECORDED = [
        entry("free_requested", 16, 64, 0),  # of before the recording
        entry("segment_alloc", 4096, 1 << 21, 0),
        entry("alloc", 4096, 4000, 0),
        entry("alloc", 8192, 100, 7777),
        entry("free_requested", 4096, 4000, 0),
        entry("free_completed", 4096, 4000, 0),
        entry("alloc", 4096, 0, 0),
        entry("alloc", 4096, 12, 0),
        entry("free_requested", 8192, 100, 7777),
    ]

    def test_blocks_and_streams_are_numbered(self):
        self.assertEqual(to_events(self.RECORDED), [[0, 4000, 0], [1, 100, 1], [0, 0, 0], [0, 12, 0], [1, 0, 1]])

    def test_bench_pool_replays_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            path.write_text(json.dumps({"name": "recorded", "steps": 1, "events": to_events(self.RECORDED)}), "utf-8")
            done = subprocess.run([BENCH_POOL, "--json", "--without-malloc", "-n", "1", str(path)], timeout=120,
                                  capture_output=True, text=True, check=False,
                                  env=dict(os.environ, SLUICE_DRIVER=EMULATOR))
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([row["rival"] for row in found["rows"]], ["cuMemAllocAsync"])
        self.assertEqual(found["rows"][0]["size"], 6)  # the last block is freed at the end
        self.assertEqual(found["capacities"][0]["peak_bytes"], 4100)


class Judge(unittest.TestCase):
    def test_each_limit_is_kept_or_not(self):
        training = {"name": "t", "same_losses": False, "torch_repeats_itself": True, "pool_allocations": 9}
        results = {
            "rows": [{"rival": "cuMemAllocAsync", "name": "t", "ratio": 0.71},
                     {"rival": "PyTorch", "name": "t", "ratio": 0.99}],
            "capacities": [{"allocator": "pool", "name": "t", "ratio": 1.13},
                           {"allocator": "PyTorch", "name": "t", "ratio": 1.5}],
            "training": [training, dict(training, torch_repeats_itself=False),
                         dict(training, same_losses=True, pool_allocations=0)],
        }
        self.assertEqual([measure["holds"] for measure in pytorch.judge(results)],
                         [False, True, False, False, True, False])


class Training(unittest.TestCase):
    class Steps(pytorch.Steps):
        """Runs that print what a training run prints; those named in `broken` fail."""

        def __init__(self, broken=()):
            super().__init__(pathlib.Path(), 60)
            self.broken = broken

        def run(self, name, command, limit_s, environment=None):
            if name in self.broken:
                raise pytorch.Failure(f"{name}: broken")
            times = [90] * pytorch.WARM_UP + ([10] if "--pool" in command else [20])
            return "".join(json.dumps({"name": each, "losses": [1.5, 1.25], "step_us": times,
                                       "pool": {"allocations": 7}}) + "\n" for each in pytorch.PROGRAMS)

    def test_step_times_are_set_against_each_other(self):
        rows = pytorch.train(self.Steps(), pathlib.Path(), 2, 6, {})
        self.assertEqual([row["name"] for row in rows], list(pytorch.PROGRAMS))
        self.assertEqual((rows[0]["step_us"], rows[0]["torch_step_us"], rows[0]["ratio"]), (10, 20, 0.5))
        self.assertEqual((rows[0]["same_losses"], rows[0]["pool_allocations"]), (True, 7))

    def test_a_round_that_breaks_off_leaves_the_one_before(self):
        steps = self.Steps(["train-pool-1"])
        self.assertEqual(len(pytorch.train(steps, pathlib.Path(), 2, 6, {})), 3)
        self.assertEqual(steps.failures, ["train-pool-1: broken"])
        self.assertEqual(pytorch.train(self.Steps(["train-torch-0"]), pathlib.Path(), 2, 6, {}), [])


if __name__ == "__main__":
    unittest.main()
