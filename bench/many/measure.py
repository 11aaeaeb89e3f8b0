#!/usr/bin/env python3
"""What Sluice costs on a machine with many jobs: what `sluice run` adds to the start of a command, and the daemon's CPU.

    measure.py --build DIR [--gpus 8] [--jobs 500] [--rate 0.2] [--samples 200] [--seconds 20] [--json]

Starts a daemon and JOBS jobs on GPUS emulated cards, each an example_latency of RATE requests a second at one of three
priorities. When all of them are on a board: the daemon's CPU time over SECONDS in which nothing starts or ends; then
`true` and `sluice run -- true` in turns, SAMPLES times each. "Added" is the difference of the two medians (and of the
two 90th percentiles), its interval a 95 % percentile bootstrap. The CPU time added does not depend on who else uses the
machine. Everything is simulated, and the jobs share the
machine's cores with what is measured.
"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_LIMIT_S = 600  # only a hang reaches it


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def interval_of_difference(one, other, part, rounds=1000, seed=1):
    """95 % percentile bootstrap of the difference between a quantile of `other` and that of `one`."""
    pick = random.Random(seed)
    drawn = sorted(quantile(pick.choices(other, k=len(other)), part) - quantile(pick.choices(one, k=len(one)), part)
                   for _ in range(rounds))
    return drawn[int(0.025 * rounds)], drawn[int(0.975 * rounds)]


def cpu_ns(pid):
    """CPU time of all threads of a process so far."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


class Measurement:
    def __init__(self, options):
        self.options = options
        self.bin = Path(options.build).resolve() / "bin"
        self.runtime = tempfile.mkdtemp(prefix="sluice-many-", dir="/dev/shm")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "CUDA_", "LD_"))}
        self.env.update(SLUICE_RUNTIME_DIR=self.runtime, SLUICE_EMU_GPUS=str(options.gpus), SLUICE_EMU_PROFILE="h200",
                        SLUICE_DRIVER=str(self.bin.parent / "lib/sluice/emulator/libcuda.so.1"))
        self.jobs = []

    def sluice(self, *words):
        return [str(self.bin / "sluice"), *words]

    def status(self):
        """None where the machine is too busy with starting jobs to answer."""
        done = subprocess.run(self.sluice("ps", "--json"), env=self.env, capture_output=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def start_jobs(self):
        for index in range(self.options.jobs):
            command = [self.bin / "example_latency", "--rate", str(self.options.rate), "--seconds", "100000", "--warmup",
                       "0", "--seed", str(index)]
            self.jobs.append(subprocess.Popen(
                self.sluice("run", "--quiet", "--gpu", str(index % self.options.gpus), "--priority",
                            ("low", "normal", "high")[index % 3], "--", *map(str, command)),
                env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True))
            time.sleep(self.options.pace)
        end = time.monotonic() + START_LIMIT_S
        while True:
            status = self.status()
            clients = sum(len(job["pids"]) for job in status["jobs"]) if status else 0
            if clients == self.options.jobs:
                return status["daemon"]["pid"]
            if time.monotonic() > end:
                raise RuntimeError(f"{clients} of {self.options.jobs} jobs have a place on a board")
            time.sleep(2)

    def daemon_share(self, pid):
        before, begun = cpu_ns(pid), time.monotonic_ns()
        time.sleep(self.options.seconds)
        return (cpu_ns(pid) - before) / (time.monotonic_ns() - begun)

    def once_ms(self, words):
        """How long it took, and the CPU time of it and its children."""
        begun = time.monotonic_ns()
        pid = os.posix_spawn(words[0], words, self.env)
        _, status, used = os.wait4(pid, 0)
        taken = time.monotonic_ns() - begun
        if status != 0:
            raise RuntimeError(f"{words} ended with {status}")
        return taken / 1e6, (used.ru_utime + used.ru_stime) * 1e3

    def start_up(self):
        bare, added = [shutil.which("true")], self.sluice("run", "--quiet", "--", "true")
        self.once_ms(added)
        pairs = [(self.once_ms(bare), self.once_ms(added)) for _ in range(self.options.samples)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def measure(self):
        begun = time.monotonic()
        pid = self.start_jobs()
        result = {"simulated": True, "gpus": self.options.gpus, "jobs": self.options.jobs, "cores": os.cpu_count(),
                  "start_of_all_s": round(time.monotonic() - begun, 1)}
        time.sleep(2)  # what the starts have left to do
        result["daemon_cpu_ratio"] = self.daemon_share(pid)
        bare, under = self.start_up()
        result["added_cpu_ms"] = (statistics.median(cpu for _, cpu in under) - statistics.median(cpu for _, cpu in bare))
        bare, under = [ms for ms, _ in bare], [ms for ms, _ in under]
        for name, values in (("true_ms", bare), ("run_true_ms", under)):
            result[name] = {f"p{round(part * 100)}": quantile(values, part) for part in (0.5, 0.9, 0.99)}
        for part in (0.5, 0.9):
            key = f"added_p{round(part * 100)}_ms"
            result[key] = quantile(under, part) - quantile(bare, part)
            result[key + "_95"] = interval_of_difference(bare, under, part)
        result["ratio_of_medians"] = statistics.median(under) / statistics.median(bare)
        return result

    def end(self):
        for job in self.jobs:  # the session is the job's own: its command goes too
            try:
                os.killpg(job.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for job in self.jobs:
            job.wait()
        shutil.rmtree(self.runtime, ignore_errors=True)  # the daemon leaves when its directory is gone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build directory")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.2, help="requests a second, each job (0.2)")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20, help="over which the daemon's CPU time is taken (20)")
    parser.add_argument("--pace", type=float, default=0.1, help="seconds between two starts (0.1)")
    parser.add_argument("--json", action="store_true")
    measurement = Measurement(parser.parse_args())
    try:
        result = measurement.measure()
    finally:
        measurement.end()
    if measurement.options.json:
        print(json.dumps(result, indent=2))
        return 0
    low, high = result["added_p50_ms_95"]
    print(f"{result['jobs']} jobs on {result['gpus']} emulated GPUs, {result['cores']} cores; simulated")
    print(f"daemon: {100 * result['daemon_cpu_ratio']:.2f} % of a core")
    print(f"true: median {result['true_ms']['p50']:.2f} ms; under sluice run {result['run_true_ms']['p50']:.2f} ms "
          f"(p90 {result['run_true_ms']['p90']:.2f}, p99 {result['run_true_ms']['p99']:.2f})")
    print(f"added: {result['added_p50_ms']:.2f} ms (95 %: {low:.2f} to {high:.2f}); "
          f"ratio {result['ratio_of_medians']:.1f}; CPU time added: {result['added_cpu_ms']:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
