#!/usr/bin/env python3
"""Sluice's engine against ONNX Runtime on the CPU: latency, peak memory and error, for real and exported models.

    bench/engine/setup
    .deps/venv/bin/python bench/engine/export_models.py --out out/models
    .deps/venv/bin/python bench/engine/compare.py --models out/models --out out/engine

Each model and batch gets two processes, one an engine. They take turns in blocks, several rounds, and the one whose
turn it is not is blocked and has stopped using the CPU. Latency: per round the ratio of the medians, over rounds the
median and the spread. Memory: the most that was resident from the load to the last run, less what was resident just
before the load, with the inputs there (VmHWM - VmRSS; weights mapped from the file count). Error: the largest relative
L2 error over the outputs. Writes compare.json (null is infinite) and compare.md to --out.

Exit code: 0 measured; 1 a process failed, or with --check a bound was missed; 2 bad usage.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import numpy as np

import package_models
import ratios
from models import inputs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Failure(Exception):
    """A worker could not do what it was told; the text is for people."""


class Worker:
    def __init__(self, engine, threads, library):
        settings = {"engine": engine, "threads": threads, "library": str(library)}
        # One number for every runtime that might look at the environment.
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.engine = engine
        self._process = subprocess.Popen([sys.executable, str(HERE / "worker.py"), json.dumps(settings)], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def do(self, what, **order):
        try:
            self._process.stdin.write(json.dumps({"do": what, **order}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failure(f"{self.engine} ended with exit code {self._process.wait()} while asked to {what}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(f"{self.engine}: {answer['error']}")
        self._settle()
        return answer

    def _settle(self):
        """Waits until the process uses no CPU: thread pools spin for a while after their last work."""
        deadline = time.monotonic() + 2
        before = -1
        while time.monotonic() < deadline:
            with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            used = int(fields[11]) + int(fields[12])
            if used == before:
                return
            before = used
            time.sleep(0.03)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def model_path(name, directory):
    if name in package_models.PACKAGE_MODELS:
        return package_models.find(name)
    path = directory / f"{name}.onnx"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there; run bench/engine/export_models.py --out {directory} --only {name}")
    return path


def measure_model(name, batch, path, engines, options):
    """One row of the report; engines is ("sluice", "onnxruntime"), or the rival alone."""
    row = {"model": name, "batch": batch}
    workers = [Worker(engine, options.threads, options.library) for engine in engines]
    try:
        for worker in workers:
            row[worker.engine] = worker.do("load", name=name, batch=batch, path=str(path))
        rounds = []
        for index in range(options.rounds):
            order = workers if index % 2 == 0 else workers[::-1]
            blocks = {"warm_s": options.block_s / 4, "seconds": options.block_s, "count": 3}
            rounds.append({worker.engine: worker.do("block", **blocks)["latency_s"] for worker in order})
        outputs = {}
        with tempfile.TemporaryDirectory() as scratch:
            for worker in workers:
                file = os.path.join(scratch, worker.engine + ".npz")
                worker.do("outputs", file=file)
                with np.load(file) as arrays:
                    outputs[worker.engine] = {key: arrays[key] for key in arrays.files}
        for worker in workers:
            row[worker.engine].update(worker.do("memory"))
            medians = [float(np.median(r[worker.engine])) * 1e6 for r in rounds]
            row[worker.engine]["latency_us"] = ratios.summary(medians)
    except Failure as error:
        row["error_text"] = str(error)
        return row
    finally:
        for worker in workers:
            worker.close()
    if len(engines) == 2:
        ours, rival = engines
        row["latency_ratio"] = ratios.summary(ratios.round_ratios([(r[ours], r[rival]) for r in rounds]))
        row["memory_ratio"] = row[ours]["peak_bytes"] / row[rival]["peak_bytes"]
        row["error"] = ratios.largest_error(outputs[ours], outputs[rival])
        values = dict(row, latency_ratio=row["latency_ratio"]["median"])
        measures = ("latency_ratio", "memory_ratio", "error")
        row["verdict"] = {measure: ratios.verdict(measure, values[measure], name) for measure in measures}
    return row


def markdown(report):
    """The table people read; one line a row."""
    bounds = {key: "must {0:g}, aim {1:g}".format(*value) for key, value in ratios.BOUNDS.items()}
    ours = report["sluice"] or "(not measured)"
    lines = [f"Sluice {ours} against ONNX Runtime {report['onnxruntime']}, {report['threads']} threads each, "
             f"{report['cpu']}; {report['rounds']} rounds, smallest to largest in brackets.", "",
             f"| model | batch | ONNX Runtime, ms | latency ratio ({bounds['latency_ratio']}) | its peak memory, MB | "
             f"memory ratio ({bounds['memory_ratio']}) | error ({bounds['error']}) |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in report["rows"]:
        head = f"| {row['model']} | {row['batch']} |"
        if "error_text" in row:
            text = row["error_text"].replace("|", "/").replace("\n", " ")
            lines.append(f"{head} {text} | | | | |")
            continue
        rival = row["onnxruntime"]
        latency, memory = f" {rival['latency_us']['median'] / 1e3:.2f} |", f" {rival['peak_bytes'] / 1e6:.0f} |"
        if "latency_ratio" not in row:
            lines.append(f"{head}{latency} |{memory} | |")
            continue
        ratio, held = row["latency_ratio"], row["verdict"]

        def judged(text, measure):
            return f" {text} {held[measure]}".rstrip() + " |"

        lines.append(head + latency
                     + judged("{median:.2f} ({min:.2f} to {max:.2f})".format(**ratio), "latency_ratio") + memory
                     + judged(f"{row['memory_ratio']:.2f}", "memory_ratio") + judged(f"{row['error']:.1e}", "error"))
    return "\n".join(lines) + "\n"


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "out/models", help="what export_models.py wrote")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/engine", help="directory of the report")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/lib/libsluice.so", help="libsluice.so")
    parser.add_argument("--only", action="append", choices=inputs.INPUTS, metavar="NAME",
                        help="this model (repeatable)")
    parser.add_argument("--batch", action="append", type=int, help="this batch (repeatable; 1 and 8)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each engine (2)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of one block each (7)")
    parser.add_argument("--block-s", type=float, default=0.5, help="least seconds of a block (0.5)")
    parser.add_argument("--rival-only", action="store_true", help="measure ONNX Runtime alone")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound was missed")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1 or options.block_s <= 0 or min(options.batch or [1]) < 1:
        parser.error("--rounds, --threads, --batch and --block-s have to be positive")
    if not options.rival_only and not options.library.exists():
        parser.error(f"{options.library} is not there; build it (make) or name it with --library")
    return options


def main():
    options = parse()
    engines = ("onnxruntime",) if options.rival_only else ("sluice", "onnxruntime")
    names = options.only or list(inputs.INPUTS)
    try:
        paths = {name: model_path(name, options.models) for name in names}
    except FileNotFoundError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    rows = []
    for name in names:
        for batch in options.batch or (1, 8):
            rows.append(measure_model(name, batch, paths[name], engines, options))
            print(f"compare: {name}, batch {batch}: {rows[-1].get('error_text', 'measured')}", file=sys.stderr)
    report = {"threads": options.threads, "rounds": options.rounds, "block_s": options.block_s, "cpu": cpu_name(),
              "rows": rows}
    for engine in ("sluice", "onnxruntime"):
        report[engine] = next((row[engine]["version"] for row in rows if engine in row), "")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "compare.json").write_text(json.dumps(ratios.for_json(report), indent=1) + "\n")
    table = markdown(report)
    (options.out / "compare.md").write_text(table)
    print(table, end="")
    failed = any("error_text" in row for row in rows)
    missed = options.check and any("missed" in row.get("verdict", {}).values() for row in rows)
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
