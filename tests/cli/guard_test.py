"""What the daemon does about a card that is not well: the fake NVML tells of the emulated card what a file says."""
import json
import os
import pathlib
import signal
import subprocess

import support
from support import BUILD, CliTest, wait_until

HOT, COOL = 87, 60  # the card slows itself down at 87 C
PROGRAM = str(BUILD / "bin" / "example_throughput")


class GuardTest(CliTest):
    def setUp(self):
        super().setUp()
        done = self.call("doctor", "bandwidth", "--repeats", "1", "--json")
        self.uuid = json.loads(done.stdout)["devices"][0]["uuid"]
        self.env["SLUICE_NVML"] = str(BUILD / "tests" / "libfake_nvml.so")
        self.env["SLUICE_FAKE_NVML_STEP"] = self.write("step", "0")
        self.clocks = os.path.join(self.folder, "clocks")
        self.env["SLUICE_FAKE_NVML_CLOCKS"] = self.clocks

    def card(self, temperatures="60", uncorrected="0"):
        self.env["SLUICE_FAKE_NVML"] = self.write("card.toml", f"""
[[card]]
UUID = "{self.uuid}"
Name = "A card that gets hot"
"MemoryInfo/total" = 6442450944
"MemoryInfo/used" = 0
UtilizationRates = 97
ComputeRunningProcesses = []
CurrentClocksEventReasons = 0
"MaxClockInfo/sm" = 2000
Temperature = {temperatures}
"TemperatureThreshold/slowdown" = 87
"TotalEccErrors/volatile/uncorrected" = {uncorrected}
""")

    def step_to(self, number):
        self.write("step.new", str(number))
        os.rename(os.path.join(self.folder, "step.new"), self.env["SLUICE_FAKE_NVML_STEP"])

    def status(self):
        listed = self.call("ps", "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return json.loads(listed.stdout)

    def device(self):
        return next((card for card in self.status()["devices"] if card["uuid"] == self.uuid), {})

    def busy_job(self, priority, **kwargs):
        """A job with work for the GPU, once it has begun; and the variables of its program."""
        job = self.start("run", "--priority", priority, "--", PROGRAM, "--seconds", "600", **kwargs)

        def launches():
            return [(entry["pids"], entry["id"]) for entry in self.jobs() if entry["run_pid"] == job.pid and entry["launches"]]
        wait_until(launches, "the job launches")
        pids, _ = launches()[0]
        text = pathlib.Path(f"/proc/{pids[0]}/environ").read_bytes().decode()
        return job, dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)

    def held_us(self, job):
        return next(entry["held_us"] for entry in self.jobs() if entry["run_pid"] == job.pid)

    def test_low_jobs_are_capped_and_all_get_a_hint_while_the_card_is_hot(self):
        self.card(f"[{COOL}, {HOT}]")
        low, variables = self.busy_job("low")
        hint = pathlib.Path(variables["SLUICE_BATCH_HINT_FILE"])
        self.assertFalse(hint.exists())
        self.assertEqual(self.device()["low_jobs_ratio"], 1)
        self.assertEqual(self.held_us(low), 0)
        self.step_to(1)
        wait_until(lambda: self.device()["low_jobs_ratio"] == 0.5, "the guard acts")
        wait_until(hint.exists, "the hint is there")
        self.assertEqual(hint.read_text(encoding="utf-8"), "0.50\n")
        self.assertEqual(self.device()["batch_hint_ratio"], 0.5)
        # Alone on the card, and still held.
        wait_until(lambda: self.held_us(low) > 100_000, "the low job is held")
        self.assertFalse(os.path.exists(self.clocks))
        low.send_signal(signal.SIGTERM)
        low.wait(timeout=support.DEADLINE_S)
        wait_until(lambda: not hint.exists(), "nobody is left to be told")

    def test_other_jobs_are_not_held(self):
        self.card(str(HOT))
        normal, variables = self.busy_job("normal")
        wait_until(lambda: self.device().get("low_jobs_ratio") == 0.5, "the guard acts")
        wait_until(lambda: os.path.exists(variables["SLUICE_BATCH_HINT_FILE"]), "the hint is there")
        low, _ = self.busy_job("low")
        wait_until(lambda: self.held_us(low) > 100_000, "the low job is held")
        self.assertLess(self.held_us(normal), self.held_us(low) / 10)

    def test_a_card_with_memory_errors_goes_out_of_use(self):
        self.card(str(HOT), uncorrected="[0, 1, 2, 3]")
        job, _ = self.busy_job("normal")
        wait_until(lambda: self.device().get("low_jobs_ratio") == 0.5, "the card's first counts are known")
        notice = pathlib.Path(self.runtime, "out-of-use-" + self.uuid)
        for step in (1, 2, 3):
            self.assertFalse(notice.exists())
            log = pathlib.Path(self.runtime, "sluiced.log")
            self.step_to(step)
            wait_until(lambda log=log, step=step: log.read_text("utf-8").count("1 uncorrected memory errors") == step,
                       "the errors are seen")
        wait_until(notice.exists, "the card is taken out")
        self.assertIn("uncorrected memory errors", self.device()["out_of_use"])
        for options in ([], ["--gpu", "0"], ["--gpu", "auto"]):
            done = self.call("run", *options, "--", "true")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assert_one_line(done.stderr)
            self.assertIn("out of use", done.stderr)
            self.assertIn(str(notice), done.stderr)
        self.assertIsNone(job.poll(), "who runs there is left alone")
        line = job.stderr.readline()
        while "taken out of use" not in line:
            self.assertNotEqual(line, "", "the job was never told")
            line = job.stderr.readline()
        notice.unlink()
        self.assertEqual(self.call("run", "--", "true").returncode, 0)
        self.assertIsNone(self.device()["out_of_use"])

    def test_clocks_are_locked_only_where_that_is_allowed_and_free_after_any_end(self):
        self.card(str(HOT))
        daemon = subprocess.Popen([str(BUILD / "bin" / "sluiced"), "--foreground", "--allow-clock-control"], env=self.env,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        wait_until(lambda: os.path.exists(os.path.join(self.runtime, "control.sock")), "the daemon listens")
        self.busy_job("normal")
        wait_until(lambda: os.path.exists(self.clocks), "the clocks are locked")
        wait_until(lambda: self.device().get("clocks_locked_mhz") == 1400, "the daemon says so")
        daemon.send_signal(signal.SIGKILL)
        wait_until(lambda: "unlock 0" in pathlib.Path(self.clocks).read_text("utf-8"), "the clocks are free")
        self.assertEqual(pathlib.Path(self.clocks).read_text("utf-8"), "lock 0 1400 0\nunlock 0\n")


if __name__ == "__main__":
    support.main()
