"""Tests of what needs no GPU: how a recording becomes a trace, and how results are judged."""
import json
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
                                  capture_output=True, text=True, env={"SLUICE_DRIVER": EMULATOR}, check=False)
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


if __name__ == "__main__":
    unittest.main()
