"""Processes that are measured: started with the modules loaded, released together, and ended for certain."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")


class Failure(Exception):
    """A job that failed or a machine that lacks something; the message says what to do."""


class Workspace:
    """The jobs of one call, their files, and the environment that they share. Use it as a context manager."""

    def __init__(self, sluice, linger=None):
        self.sluice = os.path.abspath(sluice)
        self.linger = linger
        self.directory = tempfile.mkdtemp(prefix="sluice-measure-", dir="/dev/shm")
        self.runtime = os.path.join(self.directory, "runtime")
        os.mkdir(self.runtime, 0o700)
        self.environment = dict(os.environ, SLUICE_RUNTIME_DIR=self.runtime)
        self.environment.pop("SLUICE_DISABLE", None)
        self.jobs = []
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end_all()
        self._wait_for_daemons()
        shutil.rmtree(self.directory, ignore_errors=True)

    def end_all(self):
        for job in self.jobs:
            job.end()
        self.jobs.clear()

    def _wait_for_daemons(self):
        """A daemon ends by itself when its last job is gone; its directory is needed until then."""
        deadline = time.monotonic() + 15
        while glob.glob(os.path.join(self.directory, "runtime*", "control.sock")) and time.monotonic() < deadline:
            time.sleep(0.1)

    def own_runtime(self, name):
        """The environment of a job that is to be alone on its board, whatever else this workspace runs."""
        directory = os.path.join(self.directory, f"runtime-{name}")
        os.mkdir(directory, 0o700)
        return {"SLUICE_RUNTIME_DIR": directory}

    def start(self, command, priority=None, share=None, environment=None, mps=False):
        """Starts `command`: under `sluice run` when it is given a priority, else on the plain driver."""
        self.count += 1
        directory = os.path.join(self.directory, f"job-{self.count}")
        os.mkdir(directory)
        job = Job(directory)
        full = [word.replace("{directory}", directory) for word in command]
        if priority is not None:
            run = [self.sluice, "run", "--priority", str(priority), "--report", os.path.join(directory, "sluice.json")]
            if share is not None:
                run += ["--share", str(share)]
            if self.linger is not None:
                run += ["--linger", self.linger]
            if mps:
                run.append("--mps")
            full = run + ["--"] + full
        merged = {**self.environment, "SLUICE_LATENCY_FILE": os.path.join(directory, "latency"), **(environment or {})}
        job.launch(full, merged)
        self.jobs.append(job)
        return job

    def start_program(self, name, arguments, **options):
        """Starts programs/NAME through run_and_save.py; it waits at its first meeting point."""
        wrapper = os.path.join(HERE, "run_and_save.py")
        command = [sys.executable, wrapper, "{directory}", os.path.join(PROGRAMS, name)]
        return self.start(command + [str(a) for a in arguments], **options)

    def high(self, seconds, rate, mode, batch=1, **options):
        return self.start_program("hp.py", [rate, seconds, batch, mode, "hp"], **options)

    def low(self, seconds, kind, **options):
        return self.start_program("be.py", [seconds, kind, "be", "{directory}/be-ready"], **options)


class Job:
    """One process group. Times out rather than waits for ever."""

    def __init__(self, directory):
        self.directory = directory
        self.process = None

    def launch(self, command, environment):
        self.command = command
        with open(self.path("out"), "w") as out, open(self.path("err"), "w") as err:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            start_new_session=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def text(self, name):
        try:
            with open(self.path(name)) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def tell(self, name):
        with open(self.path(name), "w"):
            pass

    def wait_for(self, name, seconds):
        """Waits until the job has made the file `name` in its directory."""
        deadline = time.monotonic() + seconds
        while not os.path.exists(self.path(name)):
            if self.process.poll() is not None:
                raise Failure(f"{self.describe()} ended with {self.process.returncode} before '{name}':\n{self.tail()}")
            if time.monotonic() > deadline:
                raise Failure(f"{self.describe()} did not come to '{name}' within {seconds} s:\n{self.tail()}")
            time.sleep(0.002)

    def finish(self, seconds):
        """Waits for its end and raises Failure unless it succeeded."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.describe()} did not end within {seconds:.0f} s:\n{self.tail()}") from None
        if code != 0:
            raise Failure(f"{self.describe()} ended with {code}:\n{self.tail()}")

    def end(self):
        """Ends the job and whatever it started. Safe to call twice."""
        if self.process.poll() is None:
            self.process.terminate()
            self.resume()  # a stopped one would not notice
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def describe(self):
        return " ".join(os.path.basename(word) for word in self.command[-6:])

    def tail(self):
        return "\n".join((self.text("out") + self.text("err")).strip().splitlines()[-6:])

    def iterations_per_s(self):
        """The throughput that be.py printed."""
        match = re.search(r"^BE \S+ (\{.*\})$", self.text("out"), re.MULTILINE)
        if match is None:
            raise Failure(f"{self.describe()} printed no result:\n{self.tail()}")
        return json.loads(match.group(1))["it_s"]

    def latencies_ms(self):
        """hp.py's latencies from the arrival and service times."""
        import numpy

        with numpy.load(self.path("latencies.npz")) as arrays:
            return arrays["lat"], arrays["svc"]

    def lines(self):
        """How many latencies the job has reported so far."""
        return self.text("latency").count("\n")

    def sluice_report(self):
        text = self.text("sluice.json")
        return json.loads(text) if text else {}


TURN_S, REST_S = 0.4, 0.1  # the rest lets the GPU finish what the stopped job has queued


def take_turns_length_s(work_s, jobs):
    """How long a program must be told to run, so that take_turns() lets it work for `work_s`: its time is over in the
    rest before its first turn too many.
    """
    return max(1, round(work_s / TURN_S)) * jobs * (TURN_S + REST_S) - REST_S / 2


def take_turns(jobs, work_s, import_s=120, warm_up_s=120):
    """Lets the jobs run one at a time, in short turns that all get equally many of, the others stopped meanwhile.

    Each must have been told to run for take_turns_length_s().
    """
    for job in jobs:
        job.wait_for("imported", import_s)
    for job in jobs:
        job.tell("start")
        job.wait_for("ready", warm_up_s)
    for job in jobs:
        job.stop()
        job.tell("go")
    for _ in range(max(1, round(work_s / TURN_S))):
        for job in jobs:
            job.resume()
            time.sleep(TURN_S)
            job.stop()
            time.sleep(REST_S)
    for job in jobs:
        job.resume()
        job.finish(30)


def run_together(jobs, seconds, import_s=120, warm_up_s=120, at_go=None):
    """Warms the jobs up one after the other, releases them all at once, and waits for their end."""
    for job in jobs:
        job.wait_for("imported", import_s)
    for job in jobs:  # one at a time: cuDNN chooses its algorithms by timing them
        job.tell("start")
        job.wait_for("ready", warm_up_s)
    if at_go is not None:
        at_go()
    for job in jobs:
        job.tell("go")
    for job in jobs:
        job.finish(seconds * 3 + 30)
