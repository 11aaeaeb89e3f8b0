"""Measures what Sluice promises on a GPU, with unmodified PyTorch programs: programs/hp.py and programs/be.py.

Every figure is a ratio to the same program without Sluice or alone, measured in the same call and interleaved with it.
Needs torch, torchvision and numpy. Writes results.json and results.md to --out. Exit code: 0 when everything asked for
was measured and holds, 1 when something does not hold or failed, 2 for bad usage.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

import numpy

from jobs import Failure, Workspace, run_together, take_turns, take_turns_length_s

RESAMPLES = 2000
START_S = 9  # what a process takes to warm up and to end; only for the estimate


def p99_ratio(values, base):
    """The ratio of the 99th percentiles and the bounds of its 95 % percentile bootstrap over requests."""
    random = numpy.random.default_rng(1)

    def resampled(array):
        return numpy.array([numpy.percentile(random.choice(array, len(array)), 99) for _ in range(RESAMPLES)])

    low, high = numpy.percentile(resampled(values) / resampled(base), [2.5, 97.5])
    return float(numpy.percentile(values, 99) / numpy.percentile(base, 99)), float(low), float(high)


def row(measure, value, must, aim, holds, **details):
    return {"measure": measure, "value": value, "must": must, "aim": aim, "holds": bool(holds), **details}


def spread(values):
    return {"min": min(values), "max": max(values), "runs": values}


class High:
    """All runs of the high job in one setup."""

    def __init__(self):
        self.latency, self.service = [], []

    def add(self, job):
        latency, service = job.latencies_ms()
        self.latency.append(latency)
        self.service.append(service)

    def all(self):
        return numpy.concatenate(self.latency)

    def summary(self):
        latency, service = self.all(), numpy.concatenate(self.service)
        return {
            "requests": len(latency),
            "latency_p50_us": float(numpy.percentile(latency, 50) * 1e3),
            "latency_p99_us": float(numpy.percentile(latency, 99) * 1e3),
            "service_p50_us": float(numpy.percentile(service, 50) * 1e3),
            "service_p99_us": float(numpy.percentile(service, 99) * 1e3),
        }


class Mps:
    """MPS for the time of one run; its daemon is asked to quit afterwards."""

    def __init__(self, work):
        self.directory = os.path.join(work.directory, "mps")
        os.makedirs(self.directory, exist_ok=True)
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": self.directory, "CUDA_MPS_LOG_DIRECTORY": self.directory}

    def __enter__(self):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.environment}, check=True, timeout=30)
        return self

    def __exit__(self, *_):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False, timeout=60,
                       env={**os.environ, **self.environment}, stdout=subprocess.DEVNULL)


class Low:
    """A kind of low job beside the high one, and what must hold with it."""

    def __init__(self, kind, name, p99_must, p99_aim, kept_must, kept_aim):
        self.kind, self.name = kind, name
        self.p99_must, self.p99_aim, self.kept_must, self.kept_aim = p99_must, p99_aim, kept_must, kept_aim


TRAINING = Low("resnet", "training", 1.10, 1.03, 0.92, 0.98)
GRAPHS = Low("graph", "graphs of many kernels", 1.10, 1.03, 0.90, 0.97)
LONG = Low("gemm", "1.4 ms kernels", 1.40, 1.15, 0.84, 0.97)


def cell_priority(work, plan, *lows):
    """High job in graph mode against each kind of low job: p99 to alone, and what the low job keeps."""
    setups = [(low, "sluice") for low in lows]
    # Time slicing tells nothing about Sluice, but what the sum of throughputs under MPS is compared with.
    setups += [(low, "time_slicing") for low in lows if not plan.brief or (plan.mps and low is lows[0])]
    if plan.mps:
        setups += [(lows[0], "sluice_mps")] + ([] if plan.brief else [(lows[0], "mps")])
    alone, high = High(), {setup: High() for setup in setups}
    low_alone = {low: [] for low in lows}
    low_rates = {setup: [] for setup in setups}
    reports = []

    def start_pair(setup, environment=None):
        low, name = setup
        managed = name.startswith("sluice")
        options = {"environment": environment, "mps": name == "sluice_mps"}
        return [work.low(plan.seconds, low.kind, priority="low" if managed else None, **options),
                work.high(plan.seconds, plan.rate, "graph", priority="high" if managed else None, **options)]

    def run_pair(setup, pair):
        run_together(pair, plan.seconds)
        low, serve = pair
        high[setup].add(serve)
        low_rates[setup].append(low.iterations_per_s())
        if setup[1] == "sluice":
            reports.append({"low": low.sluice_report(), "high": serve.sluice_report()})

    for _ in range(plan.repeats):
        # All are started now, so that none waits for another's imports; none touches the GPU before its turn.
        serve_alone = work.high(plan.seconds, plan.rate, "graph")
        each_alone = {low: work.low(plan.seconds_low, low.kind) for low in lows}
        pairs = {setup: start_pair(setup) for setup in setups if "mps" not in setup[1]}
        run_together([serve_alone], plan.seconds)
        alone.add(serve_alone)
        for low, job in each_alone.items():
            run_together([job], plan.seconds_low)
            low_alone[low].append(job.iterations_per_s())
        for setup, pair in pairs.items():
            run_pair(setup, pair)
        for setup in setups:
            if "mps" not in setup[1]:
                continue
            with Mps(work) as mps:
                run_pair(setup, start_pair(setup, mps.environment))
                work.end_all()
        work.end_all()
    left = 1 - plan.rate * alone.summary()["service_p50_us"] * 1e-6
    result = {"rate_per_s": plan.rate, "setups": {"alone": {**alone.summary(), "low_per_s": {
        low.name: rates for low, rates in low_alone.items()}}}, "sluice_reports": reports, "rows": []}

    def total(setup):
        """The throughputs of both, each to alone."""
        return (len(high[setup].all()) / len(alone.all())
                + statistics.mean(low_rates[setup]) / statistics.mean(low_alone[setup[0]]))

    def ratios(setup):
        ratio, lower, upper = p99_ratio(high[setup].all(), alone.all())
        each = [with_high / (by_itself * left) for with_high, by_itself in zip(low_rates[setup], low_alone[setup[0]])]
        kept = statistics.mean(low_rates[setup]) / (statistics.mean(low_alone[setup[0]]) * left)
        return {**high[setup].summary(), "p99_ratio": ratio, "p99_ratio_low95": lower, "p99_ratio_high95": upper,
                "kept_ratio": kept, "kept_ratio_spread": spread(each), "low_per_s": low_rates[setup]}

    measured = {setup: ratios(setup) for setup in setups}
    result["setups"].update({f"{name}, {low.name}": values for (low, name), values in measured.items()})
    for low in lows:
        of, sliced = measured[low, "sluice"], measured.get((low, "time_slicing"))
        beside_p99 = {"time_slicing": sliced["p99_ratio"]} if sliced else {}
        beside_kept = {"time_slicing": sliced["kept_ratio"]} if sliced else {}
        result["rows"] += [
            row(f"high p99 / alone, low = {low.name} (upper bound)", of["p99_ratio_high95"], f"<= {low.p99_must:.2f}",
                f"{low.p99_aim}", of["p99_ratio_high95"] <= low.p99_must, estimate=of["p99_ratio"],
                samples=of["requests"], **beside_p99),
            row(f"{low.name} kept, same run", of["kept_ratio"], f">= {low.kept_must:.2f}", f"{low.kept_aim}",
                of["kept_ratio"] >= low.kept_must, spread=of["kept_ratio_spread"], **beside_kept),
        ]
    if plan.mps:
        both, sliced = (lows[0], "sluice_mps"), (lows[0], "time_slicing")
        of = measured[both]
        result["rows"] += [
            row(f"high p99 / alone with MPS and Sluice, low = {lows[0].name} (upper bound)", of["p99_ratio_high95"],
                "<= 1.15", "1.05", of["p99_ratio_high95"] <= 1.15, estimate=of["p99_ratio"], samples=of["requests"]),
            row("sum of both throughputs with MPS and Sluice / time slicing", total(both) / total(sliced), ">= 1.0",
                "1.1", total(both) >= total(sliced)),
        ]
    return result


def cell_alone(work, plan, program, mode):
    """One program alone: without Sluice, at high and at low priority, each on a board of its own, in short turns."""
    setups = {"plain": None, "high": "high", "low": "low"}
    times = {name: [] for name in setups}
    for repeat in range(plan.alone_repeats):
        # A drift of the machine favours nobody.
        order = list(setups) if repeat % 2 == 0 else list(reversed(setups))
        seconds = take_turns_length_s(plan.seconds_alone, len(order))
        jobs = []
        for name in order:
            options = {"priority": setups[name], "environment": work.own_runtime(f"{repeat}-{name}")}
            if program == "hp.py":
                rate = plan.rate if mode == "graph" else plan.rate_eager
                jobs.append(work.high(seconds, rate, mode, **options))
            else:
                jobs.append(work.low(seconds, mode, **options))
        take_turns(jobs, plan.seconds_alone)
        for name, job in zip(order, jobs):
            if program == "hp.py":
                times[name].append(float(numpy.median(job.latencies_ms()[1]) * 1e3))
            else:
                times[name].append(1e6 / job.iterations_per_s() / len(order))
        work.end_all()
    what = "median service time" if program == "hp.py" else "time an iteration"
    result = {"unit": what + ", us", "times_us": times, "rows": []}
    for name in ("high", "low"):
        ratio = statistics.median(times[name]) / statistics.median(times["plain"])
        each = [a / b for a, b in zip(times[name], times["plain"])]
        noise = max(times["plain"]) / min(times["plain"])
        result["rows"].append(row(f"{program} {mode} alone, {name} priority / without Sluice", ratio, "<= 1.02", "1.005",
                                  ratio <= 1.02, spread=spread(each), without_sluice_max_over_min=noise))
    return result


def cell_shares(work, plan):
    """Two training jobs of equal priority with shares 3 and 1."""
    alone, three, one, reports = [], [], [], []
    for _ in range(plan.repeats):
        job = work.low(plan.seconds_low, "resnet")
        pair = [work.low(plan.seconds, "resnet", priority="normal", share=share) for share in (3, 1)]
        run_together([job], plan.seconds_low)
        alone.append(job.iterations_per_s())
        job.end()
        run_together(pair, plan.seconds)
        three.append(pair[0].iterations_per_s())
        one.append(pair[1].iterations_per_s())
        reports.append([job.sluice_report() for job in pair])
        work.end_all()
    each = [a / b for a, b in zip(three, one)]
    ratio = statistics.mean(three) / statistics.mean(one)
    total = (statistics.mean(three) + statistics.mean(one)) / statistics.mean(alone)
    return {"alone_per_s": alone, "share_3_per_s": three, "share_1_per_s": one, "together_ratio": total,
            "sluice_reports": reports, "rows": [row("equals with shares 3:1, progress / alone as a ratio", ratio, "2.7 - 3.3", "2.9 - 3.1",
                         2.7 <= ratio <= 3.3, spread=spread(each), together_to_alone=total)]}


def cell_many(work, plan):
    """One high job and many low ones. A low job is bin/example_throughput: kernels of 10 to 200 us, little memory."""
    program = os.path.join(os.path.dirname(work.sluice), "example_throughput")
    if not os.access(program, os.X_OK):
        raise Failure(f"{program} is missing: build the examples, or use a bundle that has them")
    high = {"alone": High(), "sluice": High()}
    rates = []
    for _ in range(plan.repeats):
        job = work.high(plan.seconds, plan.rate, "graph")
        serve = work.high(plan.seconds, plan.rate, "graph", priority="high")
        run_together([job], plan.seconds)
        high["alone"].add(job)
        job.end()
        serve.wait_for("imported", 120)
        low = [work.start([program, "--json"], priority="low") for _ in range(plan.many)]
        for job in low:
            job.wait_for("latency", 60)
        before = []
        run_together([serve], plan.seconds, at_go=lambda: before.extend(job.lines() for job in low))
        rates.append([(job.lines() - count) / plan.seconds for job, count in zip(low, before)])
        high["sluice"].add(serve)
        work.end_all()
    ratio, lower, upper = p99_ratio(high["sluice"].all(), high["alone"].all())
    slowest = min(min(run) for run in rates)
    return {"low_jobs": plan.many, "low_per_s": rates, "alone": high["alone"].summary(),
            "sluice": {**high["sluice"].summary(), "p99_ratio": ratio, "p99_ratio_low95": lower,
                       "p99_ratio_high95": upper},
            "rows": [row(f"high p99 / alone with {plan.many} low jobs (upper bound)", upper, "<= 1.25", "1.10",
                         upper <= 1.25, estimate=ratio, samples=high["sluice"].summary()["requests"]),
                     row(f"slowest of {plan.many} low jobs, iterations/s", slowest, "> 0", "", slowest > 0)]}


def priority_cell(*lows):
    def estimate(plan):
        pairs = len(lows) * (1 if plan.brief else 2) + (2 if plan.mps else 0)
        return plan.repeats * ((1 + pairs) * (START_S + plan.seconds) + len(lows) * plan.seconds_low)

    return lambda work, plan: cell_priority(work, plan, *lows), estimate


CELLS = {
    "priority": priority_cell(TRAINING),
    # The spacing of its gates: SLUICE_GRAPH_SPACING in this program's environment.
    "priority_graph": priority_cell(GRAPHS),
    "priority_long": priority_cell(LONG),
    # All kinds beside one measurement of the high job alone: the least time on a GPU.
    "priority_all": priority_cell(TRAINING, GRAPHS, LONG),
    "alone_train": (lambda w, p: cell_alone(w, p, "be.py", "resnet"), lambda p: p.alone_estimate()),
    "alone_train_graph": (lambda w, p: cell_alone(w, p, "be.py", "graph"), lambda p: p.alone_estimate()),
    "alone_serve": (lambda w, p: cell_alone(w, p, "hp.py", "eager"), lambda p: p.alone_estimate()),
    "alone_serve_graph": (lambda w, p: cell_alone(w, p, "hp.py", "graph"), lambda p: p.alone_estimate()),
    "shares": (cell_shares, lambda p: p.repeats * (3 * START_S + p.seconds + p.seconds_low)),
    "many": (cell_many, lambda p: p.repeats * (2 * (START_S + p.seconds) + 0.5 * p.many)),
}


class Plan:
    """How long and how often. 5,000 requests a cell: seconds x rate x repeats."""

    def __init__(self, options):
        self.rate = options.rate
        self.rate_eager = min(options.rate, 60)  # a request takes 5 to 7 ms of CPU in eager mode
        self.repeats = 1 if options.quick else options.repeats
        self.alone_repeats = 1 if options.quick else options.alone_repeats
        self.seconds = 2 if options.quick else max(1, round(options.requests / options.rate / self.repeats * 1.04, 1))
        self.seconds_low = 2 if options.quick else 8
        self.seconds_alone = 2 if options.quick else options.alone_seconds
        self.many = options.many
        self.mps = options.mps
        self.brief = options.brief

    def alone_estimate(self):
        return self.alone_repeats * (2 * START_S + take_turns_length_s(self.seconds_alone, 3))


def markdown(device, results):
    lines = [f"Measured on {device}.", "", "| measure | value | must | aim | holds | beside it |", "| --- " * 6 + "|"]
    for result in results.values():
        for r in result.get("rows", []):
            beside = []
            if "estimate" in r:
                beside.append(f"estimate {r['estimate']:.3f}")
            if "time_slicing" in r:
                beside.append(f"time slicing {r['time_slicing']:.2f}")
            if "spread" in r:
                beside.append(f"runs {r['spread']['min']:.3f} to {r['spread']['max']:.3f}")
            if "without_sluice_max_over_min" in r:
                beside.append(f"without Sluice, slowest / fastest run {r['without_sluice_max_over_min']:.3f}")
            if "samples" in r:
                beside.append(f"{r['samples']} requests")
            lines.append(f"| {r['measure']} | {r['value']:.3f} | {r['must']} | {r['aim']} | "
                         f"{'yes' if r['holds'] else 'no'} | {', '.join(beside)} |")
    for name, result in results.items():
        if "error" in result:
            lines += ["", f"{name} failed: {result['error']}"]
    return "\n".join(lines) + "\n"


def device_name():
    try:
        answer = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], timeout=30,
                                capture_output=True, text=True, check=True)
        return answer.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "an unknown GPU"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(here, "../../build/bin/sluice"), help="the sluice program")
    parser.add_argument("--out", default="out/pytorch", help="directory of results.json and results.md")
    parser.add_argument("--cells", default=",".join(name for name in CELLS if name != "priority_all"), help="comma-separated, of: " + ", ".join(CELLS))
    parser.add_argument("--rate", type=float, default=200, help="requests per second of the high job")
    parser.add_argument("--requests", type=int, default=5000, help="requests in each cell's setup")
    parser.add_argument("--repeats", type=int, default=2, help="interleaved runs that these are spread over")
    parser.add_argument("--alone-repeats", type=int, default=2, help="runs of each set-up in the cells of one job alone")
    parser.add_argument("--alone-seconds", type=float, default=4, help="how long each of these works, without its rests")
    parser.add_argument("--many", type=int, default=32, help="low jobs in the cell `many`")
    parser.add_argument("--linger", help="of the high job, as `sluice run --linger` takes it (default: Sluice's own)")
    parser.add_argument("--mps", action="store_true", help="measure MPS too, without and with Sluice, in the cells `priority*`, with the first kind of low job")
    parser.add_argument("--brief", action="store_true", help="in the cells `priority*`: leave out what has no Sluice in it")
    parser.add_argument("--quick", action="store_true", help="very short runs, to see that everything works")
    options = parser.parse_args()
    cells = [name for name in options.cells.split(",") if name]
    unknown = [name for name in cells if name not in CELLS]
    if unknown:
        parser.error(f"no cell named {unknown[0]}; there are: {', '.join(CELLS)}")
    if not os.access(options.sluice, os.X_OK):
        parser.error(f"--sluice: {options.sluice} is not an executable file")
    if options.mps and shutil.which("nvidia-cuda-mps-control") is None:
        parser.error("--mps: nvidia-cuda-mps-control is not installed")
    plan = Plan(options)
    # Whoever ends this early, a time limit say, ends the jobs too: a job left behind would spoil the next run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.makedirs(options.out, exist_ok=True)
    print(f"about {sum(CELLS[name][1](plan) for name in cells) / 60:.1f} minutes", flush=True)

    results = {}
    device = device_name()
    for name in cells:
        began = time.monotonic()
        try:
            with Workspace(options.sluice, options.linger) as work:
                results[name] = CELLS[name][0](work, plan)
        except Failure as failure:
            results[name] = {"error": str(failure)}
        results[name]["wall_s"] = round(time.monotonic() - began, 1)
        # After every cell: what was measured is kept if the machine goes away.
        with open(os.path.join(options.out, "results.json"), "w") as file:
            json.dump({"device": device, "simulated": False, "quick": options.quick, "cells": results}, file, indent=1)
        with open(os.path.join(options.out, "results.md"), "w") as file:
            file.write(markdown(device, results))
        print(f"{name}: {results[name]['wall_s']} s", flush=True)
    print(markdown(device, results))
    good = all("error" not in r and all(line["holds"] for line in r["rows"]) for r in results.values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
