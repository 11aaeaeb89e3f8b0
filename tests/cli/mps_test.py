"""`sluice run --mps`, and what `stop` does for clients of MPS: with a control program that only pretends.

The driver is the emulator's with its mark removed, so that it counts as a real one; nothing here runs NVIDIA's MPS.
"""
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import unittest

import fake_mps_control
import support
from support import CliTest, is_alive, wait_until

FAKE = os.path.abspath(fake_mps_control.__file__)
CARD = "GPU-00000000-0000-0000-0000-000000000001"  # in health/series
SERIES = pathlib.Path(__file__).resolve().parents[2] / "health" / "series"

# Becomes a client of the MPS daemon that its environment names; argv[1] says what SIGTERM does.
CLIENT = """
import os, signal, sys
if sys.argv[1] == "handles":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
if sys.argv[1] == "ignores":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.path.join(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "clients", str(os.getpid())), "w").close()
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""


class MpsTest(CliTest):
    def setUp(self):
        super().setUp()
        self.env.update(fake_mps_control.machine_with_mps(support.BUILD, self.folder))
        self.own = os.path.join(self.runtime, f"mps-{os.geteuid()}")
        self.addCleanup(self.end_mps, os.path.join(self.own, "pipe"))

    def end_mps(self, pipe):
        subprocess.run([FAKE], input="quit\n", text=True, check=False, stdout=subprocess.DEVNULL,
                       env=dict(self.env, CUDA_MPS_PIPE_DIRECTORY=pipe))

    def start_mps(self):
        """A daemon of the user's own; returns its pipe directory."""
        pipe = os.path.join(self.folder, "users")
        os.mkdir(pipe)
        subprocess.run([FAKE, "-d"], check=True, env=dict(self.env, CUDA_MPS_PIPE_DIRECTORY=pipe))
        self.addCleanup(self.end_mps, pipe)
        return pipe

    def told(self, command):
        return [entry for entry in fake_mps_control.told(self.folder) if entry["command"] == command]

    def start_client(self, *options, on_term="dies"):
        process = self.start("run", "--mps", *options, "--", sys.executable, "-c", CLIENT, on_term)
        word, pid = process.stdout.readline().split()
        self.assertEqual(word, "ready")
        return process, int(pid)

    def variables(self, *options, **kwargs):
        done = self.call("run", "-q", *options, "--", "env", "-0", **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)


class Starting(MpsTest):
    def test_it_is_started_for_the_job_and_ended_after_it(self):
        done = self.call("run", "--mps", "--", "sh", "-c", 'ls "$CUDA_MPS_PIPE_DIRECTORY"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("control\n", done.stdout)
        self.assertIn(f"sluice: MPS: started a daemon at {self.own}/pipe; it ends with its last job\n", done.stderr)
        self.assertEqual((len(self.told("-d")), len(self.told("quit"))), (1, 1))
        self.assertFalse(os.path.exists(self.own))
        self.assertFalse(os.path.exists(self.own + ".lock"))

    def test_without_the_option_nothing_is_started(self):
        self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", self.variables("-p", "low"))
        self.assertEqual(self.told("-d"), [])

    def test_the_job_gets_its_priority_and_cap(self):
        got = self.variables("--mps", "--sm-percentage", "60%", "-p", "low")
        self.assertEqual(got["CUDA_MPS_PIPE_DIRECTORY"], self.own + "/pipe")
        self.assertEqual((got["CUDA_MPS_CLIENT_PRIORITY"], got["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]), ("1", "60"))
        for priority in ("normal", "high", "50"):
            got = self.variables("--mps", "-p", priority)
            self.assertEqual(got["CUDA_MPS_CLIENT_PRIORITY"], "0")
            self.assertNotIn("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", got)
        self.assertEqual(self.variables("--mps", "-p", "49")["CUDA_MPS_CLIENT_PRIORITY"], "1")

    def test_its_directory_is_the_users_alone_and_nothing_of_a_job_reaches_it(self):
        shown = self.call("run", "-q", "--mps", "--", "stat", "-c", "%a", self.own, self.own + "/pipe", self.own + "/log",
                          env=dict(self.env, CUDA_VISIBLE_DEVICES="0", LD_LIBRARY_PATH="/x/sluice/shim:/kept"))
        self.assertEqual(shown.stdout.split(), ["700"] * 3, shown.stderr)
        environment = self.told("-d")[0]["environment"]
        self.assertEqual(environment["LD_LIBRARY_PATH"], "/kept")
        self.assertNotIn("CUDA_VISIBLE_DEVICES", environment)
        self.assertEqual(environment["CUDA_MPS_LOG_DIRECTORY"], self.own + "/log")

    def test_runs_at_once_start_one_and_the_last_ends_it(self):
        runs = [self.start("run", "--mps", "--", "cat") for _ in range(4)]
        wait_until(lambda: len(self.jobs()) == len(runs), "all jobs")
        self.assertEqual(len(self.told("-d")), 1)
        for run in runs[1:]:
            run.stdin.close()
            self.assertEqual(run.wait(support.DEADLINE_S), 0)
        self.assertEqual(self.told("quit"), [])
        runs[0].stdin.close()
        self.assertEqual(runs[0].wait(support.DEADLINE_S), 0)
        self.assertEqual(len(self.told("quit")), 1)

    def test_a_run_inside_a_job_uses_the_same(self):
        done = self.call("run", "--mps", "--", self.sluice, "run", "--mps", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"MPS: joined Sluice's daemon at {self.own}/pipe", done.stderr)
        self.assertEqual((len(self.told("-d")), len(self.told("quit"))), (1, 1))

    def test_a_job_file(self):
        path = self.write("jobs.toml", """
[[job]]
command = ["sh", "-c", "echo $CUDA_MPS_CLIENT_PRIORITY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
priority = "low"
mps = true
sm_percentage = 40

[[job]]
command = ["sh", "-c", "echo without $CUDA_MPS_PIPE_DIRECTORY"]
""")
        done = self.call("run", path)
        self.assertEqual(sorted(done.stdout.splitlines()), ["1 40", "without"], done.stderr)

    def test_a_command_that_does_not_start_leaves_none(self):
        self.assertEqual(self.call("run", "--mps", "--", "no-such-command-of-sluice").returncode, 127)
        self.assertFalse(os.path.exists(self.own))


class Joining(MpsTest):
    def test_the_users_own_is_joined_and_never_ended(self):
        pipe = self.start_mps()
        self.env["CUDA_MPS_PIPE_DIRECTORY"] = pipe
        done = self.call("run", "--mps", "-p", "low", "--", "env")
        self.assertIn(f"CUDA_MPS_PIPE_DIRECTORY={pipe}\n", done.stdout)
        self.assertIn("CUDA_MPS_CLIENT_PRIORITY=1\n", done.stdout)
        self.assertIn(f"sluice: MPS: joined the daemon at {pipe}\n", done.stderr)
        self.assertEqual((len(self.told("-d")), self.told("quit")), (1, []))
        self.assertFalse(os.path.exists(self.own))

    def test_where_none_answers_one_is_started_elsewhere(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        got = self.variables("--mps", env=dict(self.env, CUDA_MPS_PIPE_DIRECTORY=empty))
        self.assertEqual(got["CUDA_MPS_PIPE_DIRECTORY"], self.own + "/pipe")
        self.assertEqual(os.listdir(empty), [])


class Killed(MpsTest):
    def test_the_daemon_ends_it_after_the_last_process_of_a_killed_run(self):
        run, client = self.start_client()
        run.kill()
        run.wait()
        # Another run joins, and does not end it while that client is there.
        done = self.call("run", "--mps", "--", "true")
        self.assertIn("joined Sluice's daemon", done.stderr)
        self.assertTrue(is_alive(client))
        self.assertEqual(self.told("quit"), [])
        os.kill(client, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(self.own), "the end of MPS")
        self.assertEqual(len(self.told("quit")), 1)

    def test_the_next_run_ends_what_is_left_when_sluiced_was_killed_too(self):
        run, client = self.start_client()
        pid = json.loads(self.call("ps", "--json").stdout)["daemon"]["pid"]
        for process in (run.pid, pid, client):
            os.kill(process, signal.SIGKILL)
        run.wait()
        self.assertTrue(os.path.exists(self.own))
        self.assertEqual(self.call("run", "--", "true").returncode, 0)
        wait_until(lambda: not os.path.exists(self.own), "the end of MPS")

    def test_what_a_killed_mps_daemon_left_is_no_obstacle(self):
        run, client = self.start_client()
        with open(self.own + "/pipe/control", encoding="utf-8") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        done = self.call("run", "--mps", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("MPS: started a daemon", done.stderr)
        os.kill(client, signal.SIGKILL)
        self.assertEqual(run.wait(support.DEADLINE_S), 128 + signal.SIGKILL)
        self.assertFalse(os.path.exists(self.own))


class Stopping(MpsTest):
    def stop(self, *options):
        done = self.call("stop", "--json", *options, str(self.jobs()[0]["id"]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)["jobs"][0]["result"]

    def test_the_work_of_a_client_is_ended_before_the_signal(self):
        run, client = self.start_client()
        self.assertEqual(self.stop(), "ended")
        self.assertEqual([(told["client"], told["alive"]) for told in self.told("terminate_client")], [(client, True)])
        self.assertEqual(run.wait(support.DEADLINE_S), 128 + signal.SIGTERM)
        self.assertFalse(os.path.exists(self.own))

    def test_one_that_handles_the_signal_may_finish_its_work(self):
        run, _ = self.start_client(on_term="handles")
        self.assertEqual(self.stop(), "ended")
        self.assertEqual(self.told("terminate_client"), [])
        self.assertEqual(run.wait(support.DEADLINE_S), 5)

    def test_before_it_is_killed_its_work_is_ended(self):
        run, client = self.start_client(on_term="ignores")
        self.assertEqual(self.stop("--grace", "100ms"), "killed")
        self.assertEqual([(told["client"], told["alive"]) for told in self.told("terminate_client")], [(client, True)])
        self.assertEqual(run.wait(support.DEADLINE_S), 128 + signal.SIGKILL)

    def test_other_clients_are_left_alone(self):
        pipe = self.start_mps()
        self.env["CUDA_MPS_PIPE_DIRECTORY"] = pipe
        other = subprocess.Popen([sys.executable, "-c", CLIENT, "dies"], env=self.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (other.kill(), other.wait(), other.stdout.close()))
        other.stdout.readline()
        run, client = self.start_client()
        self.assertEqual(self.stop(), "ended")
        self.assertEqual([told["client"] for told in self.told("terminate_client")], [client])
        self.assertTrue(is_alive(other.pid))
        run.wait(support.DEADLINE_S)

    def test_a_process_that_is_no_client_only_gets_the_signal(self):
        run = self.start("run", "--mps", "--", "cat")
        wait_until(lambda: len(self.jobs()) == 1, "the job")
        self.assertEqual(self.stop(), "ended")
        self.assertEqual(self.told("terminate_client"), [])
        run.wait(support.DEADLINE_S)

    def test_a_duration_ends_its_work_first(self):
        path = self.write("jobs.toml", f"""
[[job]]
command = ['{sys.executable}', '-c', '''{CLIENT}''', 'dies']
duration = "1s"
mps = true
""")
        done = self.call("run", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([told["alive"] for told in self.told("terminate_client")], [True])


class Shown(MpsTest):
    def test_ps_says_which_jobs_are_clients(self):
        with_it = self.start("run", "--mps", "--", "cat")
        without = self.start("run", "--", "cat")
        wait_until(lambda: len(self.jobs()) == 2, "both jobs")
        self.assertEqual(sorted(job["mps"] for job in self.jobs()), [False, True])
        self.assertEqual(sum(line.endswith(" MPS") for line in self.call("ps").stdout.splitlines()), 1)
        for process in (with_it, without):
            process.stdin.close()
            process.wait(support.DEADLINE_S)

    def test_the_report_and_a_program_with_launches(self):
        report = os.path.join(self.folder, "report.json")
        done = self.call("run", "--mps", "-p", "low", "--report", report, "--",
                         str(support.BUILD / "bin" / "example_throughput"), "--seconds", "0.3")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(report, encoding="utf-8") as file:
            said = json.load(file)
        self.assertTrue(said["mps"])
        self.assertGreater(said["launches"], 0)
        self.assertIsNone(said["bypass"])


class Refused(MpsTest):
    def refused(self, expected, *options, code=3, **environment):
        done = self.call("run", "--mps", *options, "--", sys.executable, "-c", "print('started')",
                         env=dict(self.env, **environment))
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(expected, done.stderr)
        self.assert_one_line(done.stderr)
        self.assertFalse(os.path.exists(self.own))
        self.assertFalse(os.path.exists(self.own + ".lock"))

    def test_the_emulator(self):
        done = self.call("run", "--mps", "--", "echo", "started",
                         env=dict(self.env, SLUICE_DRIVER=str(support.BUILD / "lib/sluice/emulator/libcuda.so.1")))
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertEqual(done.stderr, "sluice: run: MPS is not possible: NVIDIA GeForce RTX 2060 (emulated) is simulated "
                                      "and has none; leave --mps out, or use a real GPU\n")

    def test_no_control_program(self):
        self.refused("MPS needs nvidia-cuda-mps-control, which is not in PATH", PATH="/nonexistent")

    def test_a_daemon_that_does_not_start(self):
        self.refused("MPS daemon did not start (exit code 1): no such luck", MPS_FAKE_FAILS="no such luck")

    def test_no_driver(self):
        self.refused("SLUICE_DRIVER names /none/libcuda.so.1", SLUICE_DRIVER="/none/libcuda.so.1")

    def test_hidden_gpus(self):
        self.refused("MPS is not possible: CUDA_VISIBLE_DEVICES=''", CUDA_VISIBLE_DEVICES="")

    def fake_nvml(self, machine):
        return {"SLUICE_NVML": str(support.BUILD / "tests" / "libfake_nvml.so"),
                "SLUICE_FAKE_NVML": str(SERIES / f"{machine}.toml")}

    def test_mig(self):
        self.refused("MPS is not possible: GPU 0 (Fake card) is divided by MIG", "--gpu", CARD,
                     **self.fake_nvml("mig"))

    def test_an_exclusive_gpu_that_another_has(self):
        self.refused("MPS is not possible: GPU 0 (Fake card) is for one process at a time, and process 1000", "--gpu",
                     CARD, **self.fake_nvml("exclusive"))

    @unittest.skipUnless(os.geteuid() == 0, "only root can start another user's process")
    def test_a_server_of_another_user(self):
        pipe = self.start_mps()
        with subprocess.Popen(["sleep", "1000"], user="nobody") as server:
            self.addCleanup(server.kill)
            # Root's own runs are refused as well: they would wait as everybody does.
            self.refused(f"the MPS daemon at {pipe} serves nobody now", CUDA_MPS_PIPE_DIRECTORY=pipe,
                         MPS_FAKE_SERVER=str(server.pid))
            server.kill()

    def test_a_directory_that_others_can_use(self):
        os.mkdir(self.own)
        os.chmod(self.own, 0o755)
        done = self.call("run", "--mps", "--", "true")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr, f"sluice: run: MPS is not possible: {self.own} is not this user's alone: remove it\n")
        self.assertEqual(stat.S_IMODE(os.stat(self.own).st_mode), 0o755)
        shutil.rmtree(self.own)

    def test_a_cap_without_mps(self):
        for options in (["--sm-percentage", "50"], ["--mps", "--sm-percentage", "0"], ["--mps", "--sm-percentage", "x"]):
            done = self.call("run", *options, "--", "echo", "started")
            self.assertEqual((done.returncode, done.stdout), (2, ""), options)
            self.assert_one_line(done.stderr)
        done = self.call("run", self.write("jobs.toml", "[[job]]\ncommand = \"x\"\nsm_percentage = 50\n"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("jobs.toml:1: sm_percentage needs mps = true", done.stderr)

    def test_disabled_starts_the_command_untouched(self):
        done = self.call("run", "--mps", "--", "env", env=dict(self.env, SLUICE_DISABLE="1"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", done.stdout)


if __name__ == "__main__":
    support.main()
