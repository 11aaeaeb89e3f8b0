#!/usr/bin/env python3
"""Measures the pool on what PyTorch training programs allocate, against PyTorch's own allocator and the driver's.

    bench/pool/pytorch.py [--out out/pool] [--quick] [--limit SECONDS] [--json] [TRACE.json...]

It records traces of the programs of programs.py (or takes those that are named), replays them through the pool and each
rival in turn, finds the smallest capacities, and trains the programs with the pool in PyTorch's place. Every step has
its own time limit, and one that fails does not end the others. Needs a GPU, PyTorch, torchvision, a C++ compiler and
CUDA's headers; works in a build tree and in a bundle (scripts/make_bundle).
Writes results.json and what the steps said to --out. Exit code: 0 everything was measured and holds; 1 something failed
or does not hold; 2 bad usage; 3 no GPU or no PyTorch.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = ("resnet", "transformer", "detector")
WARM_UP = 5  # steps of a training run that do not count
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
# As docs/benchmarks.md describes the measures.
TIME_TO_DRIVER, TIME_TO_PYTORCH, CAPACITY = (0.7, 0.3), (1.0, 0.7), (1.12, 1.05)


class Failure(Exception):
    """What went wrong, for people."""


def find_tree():
    """The folder with bin/bench_pool and lib/libsluice_pool.so."""
    for tree in (ROOT, ROOT / "build"):
        if (tree / "bin" / "bench_pool").exists() and (tree / "lib" / "libsluice_pool.so").exists():
            return tree
    raise Failure("no bin/bench_pool and lib/libsluice_pool.so here: build them, or use scripts/make_bundle")


class Steps:
    """Commands of the measurement, each with a limit and a log, and a limit for all."""

    def __init__(self, out, limit_s):
        self._out = out
        self._end = time.monotonic() + limit_s
        self.failures = []
        self.seconds = {}

    def run(self, name, command, limit_s, environment=None):
        """What it printed; raises Failure."""
        begun = time.monotonic()
        limit_s = min(limit_s, self._end - begun)
        if limit_s <= 0:
            raise Failure(f"{name}: no time was left for it")
        variables = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **(environment or {}))
        log = self._out / f"{name}.log"
        try:
            with open(log, "w", encoding="utf-8") as errors:
                done = subprocess.run([str(word) for word in command], env=variables, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=errors, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            raise Failure(f"{name}: still running after {limit_s:.0f} s; see {log}") from None
        finally:
            self.seconds[name] = round(time.monotonic() - begun, 1)
        if done.returncode != 0:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise Failure(f"{name}: exit code {done.returncode}: {''.join(last) or done.stdout[-300:]}")
        return done.stdout

    def attempt(self, function, *arguments):
        """Its result, or None after noting why there is none."""
        try:
            return function(*arguments)
        except (Failure, OSError, ValueError, KeyError) as failure:
            self.failures.append(str(failure) or repr(failure))
            print(f"pytorch.py: {self.failures[-1]}", file=sys.stderr, flush=True)
            return None


def compile_replay(steps, out):
    """Compiles torch_replay.cc for the PyTorch that is here."""
    home = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), nvcc and pathlib.Path(nvcc).resolve().parent.parent, "/usr/local/cuda",
              home.parent / "nvidia" / "cu13", home.parent / "nvidia" / "cuda_runtime"]
    includes = [path for path in (pathlib.Path(place) / "include" for place in places if place)
                if (path / "cuda_runtime_api.h").exists()]
    if not includes:
        raise Failure("no cuda_runtime_api.h: set CUDA_HOME")
    library = out / "torch_replay.so"
    steps.run("compile", [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-fPIC", "-shared", "-DUSE_CUDA",
                          f"-I{home / 'include'}", f"-I{includes[0]}", HERE / "torch_replay.cc", "-o", library,
                          f"-L{home / 'lib'}", "-lc10_cuda", "-lc10", f"-Wl,-rpath,{home / 'lib'}"], 90)
    return library


def record(steps, out, name, count):
    path = out / f"{name}.json"
    steps.run(f"record-{name}", [sys.executable, HERE / "record.py", name, "--steps", count, "--out", path], 60)
    return path


def train(steps, tree, rounds, count, environment):
    """Step times and losses of each program with PyTorch's allocator and with the pool, in turn."""
    runs = {"torch": [], "pool": []}
    for index in range(rounds):
        pair = []
        for kind, options in (("torch", []), ("pool", ["--pool", tree / "lib" / "libsluice_pool.so"])):
            pair.append(steps.attempt(steps.run, f"train-{kind}-{index}",
                                      [sys.executable, HERE / "train.py", "--steps", count, *options], 60, environment))
        if None in pair:  # what was measured before stays
            break
        for each, printed in zip(runs.values(), pair):
            results = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
            each.append({result["name"]: result for result in results})
    if not runs["pool"]:
        return []
    rows = []
    for name in PROGRAMS:
        plain = [run[name] for run in runs["torch"]]
        pooled = [run[name] for run in runs["pool"]]
        medians = {kind: [statistics.median(run["step_us"][WARM_UP:]) for run in each]
                   for kind, each in (("torch", plain), ("pool", pooled))}
        ratios = [ours / theirs for ours, theirs in zip(medians["pool"], medians["torch"])]
        losses = [run["losses"] for run in plain]
        rows.append({"name": name, "steps": count, "step_us": statistics.median(medians["pool"]),
                     "torch_step_us": statistics.median(medians["torch"]), "ratio": statistics.median(ratios),
                     "ratio_min": min(ratios), "ratio_max": max(ratios),
                     "same_losses": all(run["losses"] == losses[0] for run in pooled),
                     "torch_repeats_itself": all(other == losses[0] for other in losses),
                     "pool_allocations": pooled[-1].get("pool", {}).get("allocations", 0)})
    return rows


def bounded(measure, name, value, limits):
    must, aim = limits
    return {"measure": measure, "trace": name, "value": value, "must": must, "aim": aim, "holds": value <= must}


def judge(results):
    """What the pool has to keep, with what was measured."""
    measures = []
    for row in results["rows"]:
        limits = {"cuMemAllocAsync": TIME_TO_DRIVER, "PyTorch": TIME_TO_PYTORCH}.get(row["rival"])
        if limits:
            measures.append(bounded(f"time / {row['rival']}'s", row["name"], row["ratio"], limits))
    for row in results["capacities"]:
        if row["allocator"] == "pool":
            measures.append(bounded("smallest capacity / peak", row["name"], row["ratio"], CAPACITY))
    for row in results["training"]:
        same = row["same_losses"] or not row["torch_repeats_itself"]
        measures.append({"measure": "same losses in PyTorch", "trace": row["name"], "value": row["same_losses"],
                         "must": True, "aim": True, "holds": same and row["pool_allocations"] > 0})
    return measures


def show(results):
    line = "{:<12} {:<36} {:>9} {:>9} {:>8}  {}".format
    print(f"{results['device']}; PyTorch {results['torch']}")
    print(line("TRACE", "CALL TIME AGAINST", "POOL us", "RIVAL us", "RATIO", "RUNS"))
    for row in results["rows"]:
        print(line(row["name"], f"{row['rival']}, {row['size']} calls", f"{row['ours_us']:.3f}",
                   f"{row['rival_us']:.3f}", f"{row['ratio']:.3f}",
                   f"{row['ratio_min']:.3f} to {row['ratio_max']:.3f}"))
    print(line("TRACE", "SMALLEST CAPACITY OF", "MiB", "PEAK MiB", "RATIO", ""))
    for row in results["capacities"]:
        print(line(row["name"], row["allocator"], f"{row['capacity_bytes'] / 2**20:.0f}",
                   f"{row['peak_bytes'] / 2**20:.0f}", f"{row['ratio']:.3f}", ""))
    print(line("PROGRAM", "TRAINING STEP, LOSSES", "POOL us", "TORCH us", "RATIO", "RUNS"))
    for row in results["training"]:
        losses = "same" if row["same_losses"] else "other" if row["torch_repeats_itself"] else "vary without the pool"
        print(line(row["name"], losses, f"{row['step_us']:.0f}", f"{row['torch_step_us']:.0f}", f"{row['ratio']:.3f}",
                   f"{row['ratio_min']:.3f} to {row['ratio_max']:.3f}"))
    for measure in results["measures"]:
        if not measure["holds"]:
            print(f"does not hold: {measure['measure']}, {measure['trace']}: {measure['value']}, "
                  f"must be {measure['must']}")


def measure(options, out):
    steps = Steps(out, options.limit)
    tree = find_tree()
    results = {"device": "", "torch": "", "rows": [], "capacities": [], "training": []}
    with concurrent.futures.ThreadPoolExecutor() as pool:  # none of these is timed
        compiling = pool.submit(steps.attempt, compile_replay, steps, out)
        recording = [] if options.traces else [
            pool.submit(steps.attempt, record, steps, out, name, 5 if options.quick else 20) for name in PROGRAMS]
        library = compiling.result()
        traces = options.traces or [path for path in (future.result() for future in recording) if path]
    if traces:
        recorded = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in traces]
        results["torch"] = recorded[0].get("torch", "")
        results["traces"] = [{key: value for key, value in trace.items() if key != "events"} for trace in recorded]

        def replay_driver():
            command = [tree / "bin" / "bench_pool", "--json", "--without-malloc", "--repeats", 9, *traces]
            found = json.loads(steps.run("bench_pool", command, 70))
            results["device"] = found["device"]
            results["rows"] += found["rows"]
            results["capacities"] += [dict(row, allocator="pool") for row in found["capacities"]]

        def replay_torch(allocator, environment, extra):
            command = [sys.executable, HERE / "torch_replay.py", "--library", library, "--pool",
                       tree / "lib" / "libsluice_pool.so", *extra, *traces]
            found = json.loads(steps.run("replay-" + allocator.replace(", ", "-").replace(" ", "-"), command, 45,
                                         environment))
            results["device"] = results["device"] or found["device"]
            results["rows"] += found["rows"]
            results["capacities"] += [dict(row, allocator=allocator) for row in found["capacities"]]

        steps.attempt(replay_driver)
        if library:
            steps.attempt(replay_torch, "PyTorch", {}, [])
            steps.attempt(replay_torch, "PyTorch, expandable segments", EXPANDABLE, ["--only-capacity"])
    if not options.traces:
        environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "SLUICE_POOL_SIZE": options.pool_size}
        rounds, count = (1, WARM_UP + 3) if options.quick else (2, WARM_UP + 20)
        results["training"] = steps.attempt(train, steps, tree, rounds, count, environment) or []
    results["measures"] = judge(results)
    results["failures"], results["seconds"] = steps.failures, steps.seconds
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", metavar="TRACE.json", help="recorded traces; then nothing is trained")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/pool"))
    parser.add_argument("--quick", action="store_true", help="few steps, to see that everything works")
    parser.add_argument("--pool-size", default="32GiB", help="of the pool that trains (%(default)s)")
    parser.add_argument("--limit", type=float, default=150, help="seconds that all may take (%(default)g)")
    parser.add_argument("--json", action="store_true", help="print results.json instead of tables")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("pytorch.py: there is no PyTorch here", file=sys.stderr)
        return 3
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60,
                                                            check=False).returncode != 0:
        print("pytorch.py: nvidia-smi finds no GPU here", file=sys.stderr)
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        results = measure(options, options.out.resolve())
    except Failure as failure:
        print(f"pytorch.py: {failure}", file=sys.stderr)
        return 2
    text = json.dumps(results, indent=2)
    (options.out / "results.json").write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        show(results)
    return 0 if not results["failures"] and all(measure["holds"] for measure in results["measures"]) else 1


if __name__ == "__main__":
    sys.exit(main())
