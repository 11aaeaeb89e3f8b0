#!/usr/bin/env python3
"""The read and the copy of `sluice doctor bandwidth` beside CUB's reduction and PyTorch's copy and sum, in one run.

    measure.py --sluice PROGRAM [--rounds 5] [--repeats 10] [--cub PROGRAM] [--out FILE]

Every round starts each of them once, one after the other, with buffers of the same size; a figure is the median of all
samples. CUB's program is --cub, else bench_cub_reduce beside sluice, else made of cub_reduce.cu by nvcc. A rival that is
missing here is named and left out. Prints a table; --out gets the samples as JSON. Exit code: 0 when the read reaches
0.88 of the peak, 1 when it does not or something failed, 2 for bad usage.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MUST = 0.88
LIMIT_S = 240


def ask(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def cub_program(given, sluice, folder):
    if given:
        return given
    beside = os.path.join(os.path.dirname(os.path.abspath(sluice)), "bench_cub_reduce")
    if os.access(beside, os.X_OK):
        return beside
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        return None
    program = os.path.join(folder, "cub_reduce")
    subprocess.run([nvcc, "-O3", "-std=c++17", "-arch=native", "-o", program, os.path.join(HERE, "cub_reduce.cu")],
                   timeout=LIMIT_S, check=True)
    return program


def has_torch():
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--cub")
    parser.add_argument("--out")
    options = parser.parse_args()

    samples = {}  # (who, what): bytes/s

    def keep(who, what, values):
        samples.setdefault((who, what), []).extend(values)

    with tempfile.TemporaryDirectory() as folder:
        cub = cub_program(options.cub, options.sluice, folder)
        torch = has_torch()
        if cub is None:
            print("bandwidth: no nvcc and no --cub: CUB is left out", file=sys.stderr)
        if not torch:
            print("bandwidth: no PyTorch with CUDA: it is left out", file=sys.stderr)
        for _ in range(options.rounds):
            report = ask([options.sluice, "doctor", "bandwidth", "--json", "--gpu", "0", "--repeats", str(options.repeats)])
            size = str(report["devices"][0]["buffer_bytes"])
            for row in report["rows"]:
                if row["name"] in ("read", "write", "copy", "copy_by_driver") and row["bytes_per_s"]:
                    keep("sluice", row["name"], row["rates_bytes_per_s"])
            rivals = {}
            if cub:
                rivals["cub"] = [cub, size, str(options.repeats)]
            if torch:
                rivals["pytorch"] = [sys.executable, os.path.join(HERE, "torch_copy.py"), size, str(options.repeats)]
            for who, command in rivals.items():
                try:
                    answer = ask(command)
                except RuntimeError as error:
                    print(f"bandwidth: {who}: {error}", file=sys.stderr)
                    continue
                for what in ("read", "copy"):
                    if what in answer:
                        keep(who, what, answer[what])

    card = report["devices"][0]
    peak = report["peak_bytes_per_s"]
    print(f"{card['name']}: {peak / 1e12:.3f} TB/s = {card['formula']}; {int(size) / 2**30:.2f} GiB; "
          f"{options.rounds} rounds of {options.repeats}")
    print(f"{'WHO':<8} {'WHAT':<15} {'MEDIAN TB/s':>11} {'P10':>7} {'P90':>7} {'OF PEAK':>8}")
    for (who, what), values in sorted(samples.items(), key=lambda item: item[0][::-1]):
        deciles = statistics.quantiles(values, n=10)
        print(f"{who:<8} {what:<15} {statistics.median(values) / 1e12:>11.3f} {deciles[0] / 1e12:>7.3f} "
              f"{deciles[-1] / 1e12:>7.3f} {statistics.median(values) / peak:>8.3f}")
    for row in report["rows"]:
        if "shape" in row:
            print(f"{row['name']}: {row['shape']}")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"report": report, "samples": {f"{who} {what}": values for (who, what), values in samples.items()}},
                      file, indent=1)
    if ("sluice", "read") not in samples:
        print("bandwidth: no read was measured", file=sys.stderr)
        return 1
    ratio = statistics.median(samples[("sluice", "read")]) / peak
    print(f"read: {ratio:.3f} of the peak, which must be {MUST}")
    return 0 if ratio >= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
