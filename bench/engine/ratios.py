"""What is computed from measurements: ratios of interleaved rounds, errors of outputs, and the bounds that hold."""

import math
import statistics

import numpy as np

# The networks that the bounds on latency and memory are about; others are measured for information.
BOUNDED = ("resnet50", "mobilenet_v3_large", "efficientnet_b0", "yolov8n", "vit_b16", "bert_base")
# measure -> (must, aim), each an upper bound
BOUNDS = {"latency_ratio": (1.15, 0.90), "memory_ratio": (1.0, 0.8), "error": (1e-4, 1e-5),
          "fp16_error_ratio": (1.0, 0.7)}


def round_ratios(rounds):
    """One ratio a round: the median of our latencies over the median of the rival's in the same round.

    `rounds` is a list of (ours, rival), each a list of seconds. A round's two blocks run one right after the other, so
    what slows the machine for longer than a round cancels out.
    """
    if not rounds or any(not ours or not rival for ours, rival in rounds):
        raise ValueError("each round needs latencies of both")
    return [statistics.median(ours) / statistics.median(rival) for ours, rival in rounds]


def summary(values):
    """The median with the smallest and largest, which is the spread that the reports show."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": list(values)}


def relative_l2(actual, expected):
    """||actual - expected|| / ||expected||, in double precision.

    Infinite where the shapes differ, or where one has a NaN or an infinity that the other has not in that place. Where
    `expected` is all zeros: 0 if `actual` is too, else infinite.
    """
    if actual.shape != expected.shape:
        return math.inf
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        return math.inf
    norm = float(np.linalg.norm(expected[finite]))
    difference = float(np.linalg.norm(actual[finite] - expected[finite]))
    if norm == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / norm


def largest_error(actual, expected):
    """The largest relative_l2 over outputs by name; infinite where the names or the element types differ."""
    if actual.keys() != expected.keys() or any(actual[n].dtype != expected[n].dtype for n in expected):
        return math.inf
    return max(relative_l2(actual[name], expected[name]) for name in expected)


def for_json(value):
    """The value with null in place of what JSON has no number for: an infinite error or ratio."""
    if isinstance(value, dict):
        return {key: for_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def verdict(measure, value, model):
    """ "aim", "must" or "missed"; "" where no bound applies to this model."""
    if measure in ("latency_ratio", "memory_ratio") and model not in BOUNDED:
        return ""
    must, aim = BOUNDS[measure]
    if value <= aim:
        return "aim"
    return "must" if value <= must else "missed"
