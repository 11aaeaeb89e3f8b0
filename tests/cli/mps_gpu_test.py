"""`sluice run --mps` with programs that work on the GPU, through NVIDIA's own MPS.

    mps_gpu_test.py TREE [TEST...]              with this machine's driver; TREE is a build tree or a bundle
    mps_gpu_test.py TREE --pretend [TEST...]    with the emulator and a control program that only pretends
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TREE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
PRETEND = "--pretend" in sys.argv
DEADLINE_S = 60  # when a fact that must come true counts as missing; only a hang reaches it
told_to_end = False


def end(*_):
    """SIGTERM: the test that runs fails, and is cleaned up after; no other one starts."""
    global told_to_end
    told_to_end = True
    raise SystemExit("told to end")


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("never came true: " + what)
        time.sleep(0.01)


class Mps(unittest.TestCase):
    def setUp(self):
        if told_to_end:
            self.skipTest("told to end")
        self.folder = tempfile.mkdtemp(prefix="sluice-mps-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "CUDA_MPS_"))}
        self.env["SLUICE_RUNTIME_DIR"] = os.path.join(self.folder, "runtime")
        os.mkdir(self.env["SLUICE_RUNTIME_DIR"], 0o700)
        if PRETEND:
            import fake_mps_control
            self.env.update(fake_mps_control.machine_with_mps(TREE, self.folder))
        elif shutil.which("nvidia-cuda-mps-control") is None or shutil.which("nvidia-smi") is None:
            self.skipTest("needs nvidia-cuda-mps-control and nvidia-smi")
        elif os.path.exists("/tmp/nvidia-mps/nvidia-cuda-mps-control.pid"):
            self.skipTest("another MPS daemon runs here")
        self.pipe = os.path.join(self.env["SLUICE_RUNTIME_DIR"], f"mps-{os.geteuid()}", "pipe")
        self.sluice = str(TREE / "bin" / "sluice")
        self.addCleanup(self.stop_all)

    def stop_all(self):
        subprocess.run([self.sluice, "stop", "--all", "--grace", "1s"], env=self.env, stdout=subprocess.DEVNULL,
                       timeout=DEADLINE_S, check=False)

    def start(self, name, program, *options):
        env = dict(self.env, SLUICE_LATENCY_FILE=self.path(name))
        with open(self.path(name + ".err"), "wb") as errors:  # a pipe would stay open with whatever it starts
            process = subprocess.Popen(
                [self.sluice, "run", "--mps", "--name", name, "--report", self.path(name + ".json"), *options, "--",
                 str(TREE / "bin" / program[0]), *program[1:]], env=env, stdout=subprocess.DEVNULL, stderr=errors)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.wait(DEADLINE_S)))
        wait_until(lambda: process.poll() is not None or self.answers(name) > 0, f"the first answer of {name}")
        self.assertIsNone(process.poll(), self.said(name))
        return process

    def said(self, name):
        with open(self.path(name + ".err"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def path(self, name):
        return os.path.join(self.folder, name)

    def answers(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read().count("\n")
        except FileNotFoundError:
            return 0

    def report(self, name):
        with open(self.path(name + ".json"), encoding="utf-8") as file:
            return json.load(file)

    def ask(self, command):
        done = subprocess.run(["nvidia-cuda-mps-control"], input=command + "\n", text=True, capture_output=True, timeout=60,
                              env=dict(self.env, CUDA_MPS_PIPE_DIRECTORY=self.pipe, SLUICE_MPS_CONTROL="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [int(line) for line in done.stdout.split() if line.isdigit()]

    def clients(self):
        return {client for server in self.ask("get_server_list") for client in self.ask(f"get_client_list {server}")}

    def jobs(self):
        listed = subprocess.run([self.sluice, "ps", "--json"], env=self.env, capture_output=True, text=True, check=True,
                                timeout=DEADLINE_S)
        return json.loads(listed.stdout)["jobs"]

    def start_pair(self):
        low = self.start("low", ["example_throughput", "--seconds", "1000"], "--priority", "low", "--sm-percentage", "80")
        high = self.start("high", ["example_latency", "--check", "--rate", "50", "--seconds", "1000"], "--priority", "high")
        return high, low

    def test_both_jobs_are_clients_and_the_low_one_is_gated(self):
        high, low = self.start_pair()
        pids = {pid for job in self.jobs() for pid in job["pids"]}
        self.assertEqual(len(pids), 2)
        self.assertEqual(self.clients(), pids)
        seen = self.answers("high")
        wait_until(lambda: self.answers("high") > seen + 20, "answers of the high job")
        for name, process in (("low", low), ("high", high)):
            process.send_signal(signal.SIGTERM)  # handled by both
            self.assertEqual(process.wait(DEADLINE_S), 0, self.said(name))
        report = self.report("low")
        self.assertTrue(report["mps"])
        self.assertIsNone(report["bypass"])
        self.assertGreater(report["gates"], 0)
        self.assertFalse(os.path.exists(self.pipe), "the daemon ended with its last job")

    def test_a_client_that_is_killed_at_work_leaves_the_other_alone(self):
        high, low = self.start_pair()
        low_id = next(job["id"] for job in self.jobs() if job["name"] == "low")
        stopped = subprocess.run([self.sluice, "stop", "--grace", "0s", "--json", str(low_id)], env=self.env, text=True,
                                 capture_output=True, timeout=DEADLINE_S)
        self.assertEqual((stopped.returncode, stopped.stderr), (0, ""))
        low.wait(DEADLINE_S)
        seen = self.answers("high")
        wait_until(lambda: self.answers("high") > seen + 20, "answers of the high job after the low one's end")
        high.send_signal(signal.SIGTERM)
        self.assertEqual(high.wait(DEADLINE_S), 0, "it checks its results: " + self.said("high"))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    sys.argv[1:] = [word for word in sys.argv[2:] if word != "--pretend"]
    unittest.main(verbosity=2)
