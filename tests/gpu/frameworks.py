#!/usr/bin/env python3
"""Runs unmodified framework programs under `sluice run` and compares what they print with what they print without.

    tests/gpu/frameworks.py [--sluice build/bin/sluice] [--only NAME,...] [--list] [--json]

Each program of programs/ runs three times: plain; with low priority, held by a busy job above; and with high priority,
above a busy job. Its output and exit code must be the same each time, and the low run must have been held. A program
that this machine lacks a package or a second GPU for ends with code 77 and is skipped by name.
Exit code: 0 all the same; 1 one differed, failed or hung; 2 bad usage; 3 nothing could run.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
HELPERS = ("digest",)


class Failure(Exception):
    """What went wrong, for people."""


class Bench:
    """One runtime directory and what runs in it."""

    def __init__(self, options):
        self._options = options
        # On a memory file system: drivers refuse to register other pages.
        self.folder = tempfile.mkdtemp(prefix="sluice-frameworks-", dir="/dev/shm")
        runtime = os.path.join(self.folder, "runtime")
        os.mkdir(runtime, 0o700)
        self.environment = dict(os.environ, SLUICE_RUNTIME_DIR=runtime, PYTHONDONTWRITEBYTECODE="1")
        self.environment.pop("SLUICE_DISABLE", None)
        self._gpus = ["--gpu", "0,1"] if gpu_count() > 1 else []  # for the programs that use two

    def close(self):
        deadline = time.monotonic() + 15  # the daemon ends by itself once its last job is gone
        socket = os.path.join(self.folder, "runtime", "control.sock")
        while os.path.exists(socket) and time.monotonic() < deadline:
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _under_sluice(self, priority, command, report=None):
        if priority is None:
            return command
        words = [self._options.sluice, "run", "--quiet", "--priority", priority, *self._gpus]
        return words + (["--report", report] if report else []) + ["--"] + command

    def run(self, command, priority=None):
        """Runs to the end. Returns (exit code, standard output, standard error, Sluice's report or None)."""
        report = os.path.join(self.folder, "report.json")
        if os.path.exists(report):
            os.remove(report)
        process = subprocess.Popen(self._under_sluice(priority, command, report), env=self.environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        try:
            out, err = process.communicate(timeout=self._options.timeout)
        except subprocess.TimeoutExpired:
            end_group(process)
            raise Failure(f"still running after {self._options.timeout:g} s") from None
        except BaseException:  # told to end: nothing of ours runs on
            end_group(process)
            raise
        found = None
        if os.path.exists(report):
            with open(report, encoding="utf-8") as file:
                found = json.load(file)
        return process.returncode, out, err, found

    def start_busy(self, priority):
        process = subprocess.Popen(self._under_sluice(priority, self._options.busy), env=self.environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        if process.stdout.readline() != "busy\n":
            end_group(process)
            raise Failure(f"the busy job did not start: {' '.join(self._options.busy)}")
        return process


def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def end_group(process):
    """Ends a process and all that it started, and waits for it."""
    for signum, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            pass
        try:
            process.communicate(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            pass


def compare(name, plain, other, how):
    """Raises Failure unless the run `other` did what `plain` did."""
    if other[0] != plain[0]:
        tail = "\n".join(other[2].splitlines()[-5:])
        raise Failure(f"{how}: exit code {other[0]}, plain {plain[0]}; it said:\n{tail}")
    if other[1] != plain[1]:
        lines = zip(plain[1].splitlines() + ["(end)"], other[1].splitlines() + ["(end)"])
        first = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
        raise Failure(f"{how}: other output; plain: {first[0]!r}, there: {first[1]!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(HERE.parent.parent / "build" / "bin" / "sluice"))
    parser.add_argument("--only", help="these programs, separated by commas")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE / "programs", help="where they are")
    parser.add_argument("--busy", nargs="+", default=[sys.executable, str(HERE / "busy.py")],
                        help="the command of the job beside; prints `busy` once it is")
    parser.add_argument("--timeout", type=float, default=180, help="seconds that one run may take (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the programs and end")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what runs is ended first

    programs = {path.stem: path for path in sorted(options.programs.glob("*.py")) if path.stem not in HELPERS}
    if options.only:
        unknown = set(options.only.split(",")) - set(programs)
        if unknown:
            parser.error(f"no program {', '.join(sorted(unknown))}; --list prints them")
        programs = {name: programs[name] for name in options.only.split(",")}
    if options.list:
        for name, path in programs.items():
            print(f"{name:20} {path.read_text(encoding='utf-8').splitlines()[0].strip(chr(34))}")
        return 0
    if not os.access(options.sluice, os.X_OK):
        parser.error(f"no program {options.sluice}; run `make build`, or name it with --sluice")

    results = {name: {"result": "same"} for name in programs}

    def note(name, result, detail=""):
        results[name] = {"result": result, "detail": detail}
        print(f"{name}: {result}{': ' if detail else ''}{detail}", file=sys.stderr, flush=True)

    bench = Bench(options)
    plain = {}
    try:
        for name, path in programs.items():
            try:
                plain[name] = bench.run([sys.executable, str(path)])
                code, out, err, _ = plain[name]
                if code == SKIPPED:
                    note(name, "skipped", err.strip().splitlines()[-1] if err.strip() else "")
                elif code != 0 or not out:
                    note(name, "failed", f"without Sluice: exit code {code}; it said: {err.strip()[-400:]}")
            except Failure as failure:
                note(name, "failed", f"without Sluice: {failure}")
        for priority, beside in (("low", "high"), ("high", "low")):
            left = [name for name in programs if results[name]["result"] == "same"]
            if not left:
                break
            busy = bench.start_busy(beside)
            try:
                for name in left:
                    try:
                        how = f"with {priority} priority"
                        run = bench.run([sys.executable, str(programs[name])], priority)
                        compare(name, plain[name], run, how)
                        if run[3] is None or not run[3]["launches"]:
                            raise Failure(f"{how}: Sluice saw no launch of it")
                        if priority == "low" and not run[3]["held_us"]:
                            raise Failure(f"{how}: it was never held")
                        results[name][f"held_us_{priority}"] = run[3]["held_us"]
                        if busy.poll() is not None:
                            raise Failure(f"{how}: the busy job ended with exit code {busy.returncode}")
                    except Failure as failure:
                        note(name, "differs", str(failure))
            finally:
                end_group(busy)
        for name in programs:
            if results[name]["result"] == "same":
                print(f"{name}: same", file=sys.stderr)
    except Failure as failure:
        print(f"frameworks: {failure}", file=sys.stderr)
        return 1
    finally:
        bench.close()

    if options.json:
        print(json.dumps({"programs": results}, indent=2))
    verdicts = [result["result"] for result in results.values()]
    if all(verdict == "skipped" for verdict in verdicts):
        print("frameworks: no program could run here", file=sys.stderr)
        return 3
    return 0 if all(verdict in ("same", "skipped") for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
