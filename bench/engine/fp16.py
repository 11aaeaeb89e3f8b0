#!/usr/bin/env python3
"""FP16 files: `sluice optimize --precision fp16` against a plain cast by onnxconverter-common, in ONNX Runtime.

    .deps/venv/bin/python bench/engine/fp16.py --models out/models --out out/engine

For each model: the relative L2 error to the FP32 file's outputs with the same inputs, for both FP16 files, and the
ratio of the two. A file that ONNX Runtime refuses, or whose outputs are not finite where FP32's are, has an infinite
error; against an infinite one of the plain cast, a finite error has the ratio 0. Where the converter's file does not
load, a repaired one takes its place, and the report says so. Writes fp16.json and fp16.md to --out.

Exit code: 0 measured; 1 a file could not be written or run, or with --check a bound was missed; 2 bad usage.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnxconverter_common import float16

import compare
import ratios
from models import inputs


def run(path, feeds, threads):
    """Outputs by name, floats as float32, whatever precision the file's own inputs and outputs have."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    halves = {i.name for i in session.get_inputs() if i.type == "tensor(float16)"}
    feeds = {name: array.astype(np.float16) if name in halves else array for name, array in feeds.items()}
    names = [output.name for output in session.get_outputs()]
    results = dict(zip(names, session.run(names, feeds)))
    return {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in results.items()}


def plain_cast(source, target):
    """The whole model in FP16, inputs and outputs as they were, by onnxconverter-common's own defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of each number that it clips
        onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def repaired_cast(source, target):
    """The same, helped where it writes files that do not load: weights listed as inputs, casts to FP32 inside, outputs
    of the graph that its own nodes read.

    A rival that fails would be beaten by anything; this one says more.
    """
    model = onnx.load(source)
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    read = {name for node in model.graph.node for name in node.input}
    for name in [output.name for output in model.graph.output if output.name in read]:
        for node in model.graph.node:
            node.input[:] = [name + "_inside" if i == name else i for i in node.input]
            node.output[:] = [name + "_inside" if o == name else o for o in node.output]
        model.graph.node.append(onnx.helper.make_node("Identity", [name + "_inside"], [name], name=name + "_outside"))
    own = {node.name for node in model.graph.node if node.op_type == "Cast"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = float16.convert_float_to_float16(model, keep_io_types=True)
    for node in model.graph.node:
        if node.op_type == "Cast" and node.name in own and node.attribute[0].i == onnx.TensorProto.FLOAT:
            node.attribute[0].i = onnx.TensorProto.FLOAT16
    onnx.save(model, target)


def optimize(sluice, source, target):
    command = [sluice, "optimize", source, "-o", target, "--precision", "fp16"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"sluice optimize ended with {done.returncode}: {done.stderr.strip()}")


def error_of(write, source, expected, feeds, threads, scratch):
    """(error, bytes of the file, what went wrong or None)"""
    target = pathlib.Path(scratch) / "half.onnx"
    target.unlink(missing_ok=True)
    try:
        write(source, target)
        return ratios.largest_error(run(target, feeds, threads), expected), target.stat().st_size, None
    except Exception as error:  # the converter and the runtime raise whatever they like; it belongs into the report
        return math.inf, 0, str(error).splitlines()[0][:200]


def ratio_of(ours, plain):
    if math.isinf(ours):
        return math.inf
    if math.isinf(plain):
        return 0.0
    return ours / plain if plain else (1.0 if ours == 0 else math.inf)


def measure(name, path, options):
    feeds = inputs.make(name, options.batch)
    expected = run(path, feeds, options.threads)
    row = {"model": name, "bytes_fp32": path.stat().st_size}
    with tempfile.TemporaryDirectory() as scratch:

        def add(who, write):
            error, size, text = error_of(write, path, expected, feeds, options.threads, scratch)
            row[who] = {"error": error, "bytes": size, "error_text": text}
            return text

        refused = add("plain", plain_cast)
        if refused:
            add("plain", repaired_cast)
            row["plain"]["repaired_after"] = refused
        if options.sluice:
            add("sluice", lambda source, target: optimize(options.sluice, source, target))
    if "sluice" in row:
        row["fp16_error_ratio"] = ratio_of(row["sluice"]["error"], row["plain"]["error"])
        row["verdict"] = ratios.verdict("fp16_error_ratio", row["fp16_error_ratio"], name)
    return row


def markdown(rows):
    must, aim = ratios.BOUNDS["fp16_error_ratio"]
    lines = [f"| model | plain cast | sluice optimize | ratio (must {must:g}, aim {aim:g}) | file, of FP32's size |",
             "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        cells = []
        for who in ("plain", "sluice"):
            half = row.get(who)
            text = "" if half is None else (half["error_text"] or f"{half['error']:.1e}").replace("|", "/")
            cells.append(text + (" (repaired)" if half and half.get("repaired_after") else ""))
        cells.append(f"{row['fp16_error_ratio']:.2f} {row['verdict']}" if "sluice" in row else "")
        cells.append(f"{row['sluice']['bytes'] / row['bytes_fp32']:.2f}" if "sluice" in row else "")
        lines.append(f"| {row['model']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, default=compare.ROOT / "out/models",
                        help="what export_models.py wrote")
    parser.add_argument("--out", type=pathlib.Path, default=compare.ROOT / "out/engine", help="directory of the report")
    parser.add_argument("--sluice", type=pathlib.Path, default=compare.ROOT / "build/bin/sluice", help="the program")
    parser.add_argument("--only", action="append", choices=inputs.INPUTS, metavar="NAME",
                        help="this model (repeatable)")
    parser.add_argument("--batch", type=int, default=2, help="batch of the run (2)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (2)")
    parser.add_argument("--rival-only", action="store_true", help="measure the plain cast alone")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound was missed")
    options = parser.parse_args()
    if options.rival_only:
        options.sluice = None
    elif not options.sluice.exists():
        parser.error(f"{options.sluice} is not there; build it (make) or name it with --sluice")
    rows = []
    for name in options.only or inputs.INPUTS:
        try:
            path = compare.model_path(name, options.models)
        except FileNotFoundError as error:
            print(f"fp16: {error}", file=sys.stderr)
            return 2
        rows.append(measure(name, pathlib.Path(path), options))
        print(f"fp16: {name} measured", file=sys.stderr)
    options.out.mkdir(parents=True, exist_ok=True)
    report = {"onnxruntime": onnxruntime.__version__, "batch": options.batch, "rows": rows}
    (options.out / "fp16.json").write_text(json.dumps(ratios.for_json(report), indent=1) + "\n")
    table = markdown(rows)
    (options.out / "fp16.md").write_text(table)
    print(table, end="")
    failed = any(row.get("sluice", {}).get("error_text") for row in rows)
    missed = options.check and any(row.get("verdict") == "missed" for row in rows)
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
