#!/usr/bin/env python3
"""The case of docs/case-yolo.md, measured: yolo_like.py as it is, its two halves alone, and mended.

    tests/gpu/yolo_case.py [--steps N] [--json]

Prints a table in Markdown, and what the halves say about the cause. Each run is a process with a limit of its own; one
that fails does not end the others. Exit code: 0 all were measured; 1 one failed; 2 bad usage; 3 no GPU.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 90


def variants(cores):
    """Name, what it is, options. `cores` may be used."""
    more = ["--workers", str(max(2, min(12, cores - 2)))]
    return [
        ("before", "2 workers", []),
        ("same_batch", "on one batch again and again: no loading", ["--same-batch"]),
        ("load_only", "loading, and no training", ["--load-only"]),
        ("workers", f"{more[1]} workers", more),
        ("cache", "2 workers, decoded pictures kept in memory", ["--cache"]),
        ("cache_workers", f"{more[1]} workers, decoded pictures kept", [*more, "--cache"]),
        ("after", "the same, channels last", [*more, "--cache", "--channels-last"]),
    ]


def run(options, steps):
    """The result, or (None, why not)."""
    command = [sys.executable, "-B", str(HERE / "yolo_like.py"), "--json", "--utilization", "--steps", str(steps),
               *options]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
                              check=False)
    except subprocess.TimeoutExpired:
        return None, f"still running after {LIMIT_S} s"
    if done.returncode != 0:
        return None, f"exit code {done.returncode}: {''.join(done.stderr.strip().splitlines()[-1:])}"
    return json.loads(done.stdout.splitlines()[-1]), ""


def per_step_us(result):
    return result["batch"] / result["images_per_s"] * 1e6


def find_cause(results):
    """Where a step's time goes, by the runs as it is, without loading, and without training."""
    if not all(name in results for name in ("before", "same_batch", "load_only")):
        return None
    step, gpu, load = (per_step_us(results[name]) for name in ("before", "same_batch", "load_only"))
    # The larger half is what the other one waits for; what no loading could win is the GPU's own step.
    return {"cause": "loader" if load > gpu else "gpu", "step_us": step, "gpu_us": gpu, "load_us": load,
            "gain_ratio": 1 - min(gpu, step) / step}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="measured steps of each run (%(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        import torch
    except ImportError as error:
        print(f"yolo_case: {error}", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("yolo_case: PyTorch finds no GPU here", file=sys.stderr)
        return 3
    cores = len(os.sched_getaffinity(0))
    results, failures = {}, {}
    if not options.json:
        print(f"{torch.cuda.get_device_name()}, {cores} cores\n")
        print("| run | pictures/s | step, us | waiting for data | GPU-Util | from, to |")
        print("| --- | --- | --- | --- | --- | --- |")
    for name, what, words in variants(cores):
        workers = int(words[words.index("--workers") + 1]) if "--workers" in words else 2
        found, why = run(words, options.steps + 10 + 2 * workers)
        if found is None:
            failures[name] = why
            print(f"yolo_case: {name}: {why}", file=sys.stderr, flush=True)
            continue
        results[name] = found
        if not options.json:
            used = [found.get(f"utilization{key}_ratio") for key in ("", "_min", "_max")]
            used = ["n/a" if value is None else f"{value:.0%}" for value in used]
            print(f"| {what} | {found['images_per_s']:.0f} | {per_step_us(found):.0f} | "
                  f"{found['data_wait_ratio']:.0%} | {used[0]} | {used[1]}, {used[2]} |", flush=True)
    cause = find_cause(results)
    if options.json:
        print(json.dumps({"cores": cores, "runs": results, "cause": cause, "failures": failures}, indent=2))
    elif cause:
        print(f"\nA step of {cause['step_us']:.0f} us: {cause['gpu_us']:.0f} us without loading, "
              f"{cause['load_us']:.0f} us of loading alone. The {cause['cause']} decides; {cause['gain_ratio']:.0%} of "
              "the step could be won by faster loading.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
