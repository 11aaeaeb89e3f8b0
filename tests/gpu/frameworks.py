#!/usr/bin/env python3
"""Runs unmodified framework programs under `sluice run` and compares what they print with what they print without.

    tests/gpu/frameworks.py [--sluice build/bin/sluice] [--only NAME,...] [--limit SECONDS] [--jobs N] [--list] [--json]

Each program of programs/ runs three times: plain; with low priority, held by a busy job above; and with high priority,
above a busy job. Its output and exit code must be the same each time, and the low run must have been held. A program
that this machine lacks a package or a second GPU for ends with code 77 and is skipped by name. One that fails or hangs
does not end the others; what --limit leaves no time for is named, and is no success.
Exit code: 0 all the same; 1 one differed, failed or hung; 2 bad usage; 3 nothing could run.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import select
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


class NoTime(Failure):
    """The limit for all was reached."""


class Bench:
    """One runtime directory and what runs in it."""

    def __init__(self, options):
        self._options = options
        self._end = time.monotonic() + options.limit
        # On a memory file system: drivers refuse to register other pages.
        self.folder = tempfile.mkdtemp(prefix="sluice-frameworks-", dir="/dev/shm")
        runtime = os.path.join(self.folder, "runtime")
        os.mkdir(runtime, 0o700)
        # All runs share what torch.compile compiles and chooses: it chooses by measuring, each time anew. Not on the
        # memory file system, which containers mount so that nothing there can be executed.
        self.caches = tempfile.mkdtemp(prefix="sluice-frameworks-")
        self.environment = dict(os.environ, SLUICE_RUNTIME_DIR=runtime, PYTHONDONTWRITEBYTECODE="1",
                                TORCHINDUCTOR_CACHE_DIR=os.path.join(self.caches, "inductor"),
                                TRITON_CACHE_DIR=os.path.join(self.caches, "triton"), TORCHINDUCTOR_DETERMINISTIC="1")
        self.environment.pop("SLUICE_DISABLE", None)
        self._gpus = ["--gpu", "0,1"] if gpu_count() > 1 else []  # for the programs that use two

    def close(self):
        deadline = time.monotonic() + 15  # the daemon ends by itself once its last job is gone
        socket = os.path.join(self.folder, "runtime", "control.sock")
        while os.path.exists(socket) and time.monotonic() < deadline:
            time.sleep(0.1)
        for folder in (self.folder, self.caches):
            shutil.rmtree(folder, ignore_errors=True)

    def end(self):
        """From a signal handler: what runs is ended soon, and nothing else begins."""
        self._end = 0

    @contextlib.contextmanager
    def _group(self, words, **streams):
        """A process in a group of its own, which ends with the context."""
        if self.seconds_left() <= 0:
            raise NoTime("no time was left for it")
        process = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True,
                                   **streams)
        try:
            yield process
        finally:
            if process.poll() is None:
                end_group(process)

    def seconds_left(self):
        return self._end - time.monotonic()

    def _under_sluice(self, priority, command, report=None):
        if priority is None:
            return command
        words = [self._options.sluice, "run", "--quiet", "--priority", priority, *self._gpus]
        return words + (["--report", report] if report else []) + ["--"] + command

    def run(self, command, priority=None):
        """Runs to the end. Returns (exit code, standard output, standard error, Sluice's report or None)."""
        begun = time.monotonic()
        # Files, not pipes: what a program leaves running would keep a pipe open.
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            paths = {name: os.path.join(folder, name) for name in ("out", "err", "report")}
            words = self._under_sluice(priority, command, paths["report"])
            with open(paths["out"], "wb") as out, open(paths["err"], "wb") as err, \
                    self._group(words, stdout=out, stderr=err) as process:
                while process.poll() is None:
                    seconds = time.monotonic() - begun
                    if seconds >= self._options.timeout or self.seconds_left() <= 0:
                        raise Failure(f"still running after {seconds:.0f} s")
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.5)
            said = [pathlib.Path(paths[name]).read_text(encoding="utf-8", errors="replace") for name in ("out", "err")]
            found = None
            if os.path.exists(paths["report"]):
                with open(paths["report"], encoding="utf-8") as file:
                    found = json.load(file)
        return process.returncode, *said, found

    @contextlib.contextmanager
    def busy(self, priority):
        """The busy job while it lasts; raises Failure where it does not get busy."""
        with self._group(self._under_sluice(priority, self._options.busy), stdout=subprocess.PIPE) as process:
            seconds = max(0, min(self._options.timeout, self.seconds_left()))
            ready = select.select([process.stdout], [], [], seconds)[0]
            if not ready or process.stdout.readline() != b"busy\n":
                raise Failure(f"the busy job did not start: {' '.join(self._options.busy)}")
            yield process


def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def end_group(process):
    """Ends a process and all that it started, and waits for it."""
    for signum, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 20)):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            pass
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind
        except ProcessLookupError:
            pass
        return


def compare(plain, other, how):
    """Raises Failure unless the run `other` did what `plain` did."""
    if other[0] != plain[0]:
        tail = "\n".join(other[2].splitlines()[-15:])
        raise Failure(f"{how}: exit code {other[0]}, plain {plain[0]}; it said:\n{tail}")
    if other[1] != plain[1]:
        lines = zip(plain[1].splitlines() + ["(end)"], other[1].splitlines() + ["(end)"])
        first = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
        raise Failure(f"{how}: other output; plain: {first[0]!r}, there: {first[1]!r}")


class Results:
    """What is known of each program."""

    def __init__(self, programs):
        self.programs = programs
        self.plain = {}
        self.found = {name: {"result": "same"} for name in programs}

    def left(self):
        return [name for name in self.programs if self.found[name]["result"] == "same"]

    def note(self, name, result, detail=""):
        self.found[name] = {"result": result, "detail": detail}
        print(f"{name}: {result}{': ' if detail else ''}{detail}", file=sys.stderr, flush=True)


def run_plain(bench, results, name):
    begun = time.monotonic()
    try:
        results.plain[name] = code, out, err, _ = bench.run([sys.executable, str(results.programs[name])])
    except Failure as failure:
        results.note(name, "left" if isinstance(failure, NoTime) else "failed", f"without Sluice: {failure}")
        return
    results.found[name]["seconds"] = round(time.monotonic() - begun, 1)
    if code == SKIPPED:
        results.note(name, "skipped", err.strip().splitlines()[-1] if err.strip() else "")
    elif code != 0 or not out:
        results.note(name, "failed", f"without Sluice: exit code {code}; it said: {err.strip()[-400:]}")


def run_beside(bench, results, name, priority, busy):
    """With the priority, beside the busy job."""
    begun = time.monotonic()
    how = f"with {priority} priority"
    try:
        for repeat in (True, False):  # what works little may find its gate open each time, and is given a second chance
            run = bench.run([sys.executable, str(results.programs[name])], priority)
            compare(results.plain[name], run, how)
            if busy.poll() is not None:
                raise Failure(f"{how}: the busy job ended with exit code {busy.returncode}")
            if run[3] is None or not run[3]["launches"]:
                raise Failure(f"{how}: Sluice saw no launch of it")
            if priority != "low" or run[3]["held_us"]:
                break
            if not repeat:
                raise Failure(f"{how}: it was never held")
        results.found[name][f"held_us_{priority}"] = run[3]["held_us"]
        results.found[name][f"seconds_{priority}"] = round(time.monotonic() - begun, 1)
    except NoTime as failure:
        results.note(name, "left", f"{how}: {failure}")
    except Failure as failure:
        results.note(name, "differs", str(failure))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(HERE.parent.parent / "build" / "bin" / "sluice"))
    parser.add_argument("--only", help="these programs, separated by commas")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE / "programs", help="where they are")
    parser.add_argument("--busy", nargs="+", default=[sys.executable, str(HERE / "busy.py")],
                        help="the command of the job beside; prints `busy` once it is")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one run may take (%(default)g)")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that all may take (%(default)g)")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at a time (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the programs and end")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    if options.jobs < 1 or options.timeout <= 0 or options.limit <= 0:
        parser.error("--jobs, --timeout and --limit must be more than 0")
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

    results = Results(programs)
    bench = Bench(options)

    def told_to_end(*_):
        bench.end()
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, told_to_end)
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda name: run_plain(bench, results, name), programs))
        for priority, beside in (("low", "high"), ("high", "low")):
            if not results.left():
                break
            try:
                with bench.busy(beside) as busy, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                    list(pool.map(lambda name: run_beside(bench, results, name, priority, busy), results.left()))
            except Failure as failure:
                for name in results.left():
                    results.note(name, "left" if isinstance(failure, NoTime) else "failed", str(failure))
    finally:
        bench.close()
    for name in results.left():
        print(f"{name}: same", file=sys.stderr)
    results = results.found

    if options.json:
        print(json.dumps({"programs": results}, indent=2))
    verdicts = [result["result"] for result in results.values()]
    if all(verdict == "skipped" for verdict in verdicts):
        print("frameworks: no program could run here", file=sys.stderr)
        return 3
    return 0 if all(verdict in ("same", "skipped") for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
