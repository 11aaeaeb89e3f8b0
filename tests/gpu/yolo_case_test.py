"""Tests of what yolo_case.py makes of its runs; they need no GPU and no PyTorch."""
import unittest

import yolo_case


def run(step_us):
    return {"batch": 16, "images_per_s": 16 / step_us * 1e6}


class Cause(unittest.TestCase):
    def test_the_longer_half_decides(self):
        cause = yolo_case.find_cause({"before": run(400), "same_batch": run(100), "load_only": run(380)})
        self.assertEqual(cause["cause"], "loader")
        self.assertAlmostEqual(cause["gain_ratio"], 0.75)
        cause = yolo_case.find_cause({"before": run(400), "same_batch": run(410), "load_only": run(100)})
        self.assertEqual((cause["cause"], cause["gain_ratio"]), ("gpu", 0))

    def test_without_all_three_there_is_none(self):
        self.assertIsNone(yolo_case.find_cause({"before": run(400), "same_batch": run(100)}))

    def test_workers_leave_processors_for_the_training(self):
        for cores, workers in ((1, "2"), (8, "6"), (64, "12")):
            after = dict((name, options) for name, _, options in yolo_case.variants(cores))["after"]
            self.assertEqual(after[:2], ["--workers", workers])


if __name__ == "__main__":
    unittest.main()
