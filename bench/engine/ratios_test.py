#!/usr/bin/env python3
"""Tests of ratios.py; run with the Python of .deps/venv. Exit code 77 where numpy is missing."""

import math
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy; run bench/engine/setup", file=sys.stderr)
    sys.exit(77)

import ratios


class RoundRatios(unittest.TestCase):
    def test_compares_within_a_round(self):
        # The machine is ten times slower in the second round; the ratio is the same.
        rounds = [([1.0, 1.2, 9.0], [2.4, 2.4, 2.4]), ([12.0], [24.0])]
        self.assertEqual(ratios.round_ratios(rounds), [0.5, 0.5])

    def test_refuses_an_empty_block(self):
        for rounds in ([], [([1.0], [])]):
            with self.assertRaises(ValueError):
                ratios.round_ratios(rounds)

    def test_summary_keeps_the_spread(self):
        found = ratios.summary([1.2, 0.9, 1.0])
        self.assertEqual((found["median"], found["min"], found["max"]), (1.0, 0.9, 1.2))


class RelativeL2(unittest.TestCase):
    def error(self, actual, expected):
        return ratios.relative_l2(np.array(actual), np.array(expected))

    def test_is_relative_to_the_expected(self):
        self.assertAlmostEqual(self.error([3.0, 4.5], [3.0, 4.0]), 0.1)

    def test_takes_no_overflow_of_half_precision(self):
        expected = np.full(100, 60000, np.float16)
        self.assertEqual(ratios.relative_l2(expected, expected), 0.0)

    def test_zeros(self):
        self.assertEqual(self.error([0.0, 0.0], [0.0, 0.0]), 0.0)
        self.assertEqual(self.error([0.0, 1e-9], [0.0, 0.0]), math.inf)

    def test_not_finite(self):
        self.assertEqual(self.error([math.nan, 1.0], [1.0, 1.0]), math.inf)
        self.assertEqual(self.error([math.inf, 1.0], [-math.inf, 1.0]), math.inf)
        self.assertEqual(self.error([math.inf, math.nan, 1.0], [math.inf, math.nan, 1.0]), 0.0)

    def test_shapes_names_and_types_have_to_agree(self):
        self.assertEqual(self.error([[1.0]], [1.0]), math.inf)
        a, b = np.float32([1]), np.float64([1])
        self.assertEqual(ratios.largest_error({"x": a}, {"x": b}), math.inf)
        self.assertEqual(ratios.largest_error({"x": a}, {"y": a}), math.inf)
        self.assertEqual(ratios.largest_error({"x": a, "y": 2 * a}, {"x": a, "y": a}), 1.0)


class ForJson(unittest.TestCase):
    def test_writes_null_for_infinity(self):
        report = {"rows": [{"error": math.inf, "ratio": 0.5, "batch": 1, "text": "inf"}]}
        self.assertEqual(ratios.for_json(report), {"rows": [{"error": None, "ratio": 0.5, "batch": 1, "text": "inf"}]})


class Verdict(unittest.TestCase):
    def test_bounds(self):
        self.assertEqual(ratios.verdict("latency_ratio", 0.9, "resnet50"), "aim")
        self.assertEqual(ratios.verdict("latency_ratio", 1.15, "resnet50"), "must")
        self.assertEqual(ratios.verdict("latency_ratio", 1.16, "resnet50"), "missed")
        self.assertEqual(ratios.verdict("error", math.inf, "magika"), "missed")

    def test_latency_is_bounded_for_six_networks_only(self):
        self.assertEqual(ratios.verdict("latency_ratio", 9.0, "magika"), "")


if __name__ == "__main__":
    unittest.main()
