"""The other verbs, and what is said to bad input."""
import json
import os
import signal

import support
from support import CliTest, is_alive, wait_until


class BadInput(CliTest):
    def test_one_clear_line_and_the_documented_code(self):
        for args, code, expected in (
                (["rnu"], 2, "unknown verb 'rnu'; did you mean run?"),
                (["banana"], 2, "unknown verb 'banana'; see sluice help"),
                (["--banana"], 2, "unknown option --banana"),
                (["run"], 2, "no command"),
                (["run", "--"], 2, "no command"),
                (["run", "--", ""], 2, "no command"),
                (["run", "python"], 2, "put the command after --"),
                (["run", "--prioritty", "low", "--", "true"], 2, "unknown option --prioritty; did you mean --priority?"),
                (["run", "--priority", "urgent", "--", "true"], 2, "'urgent' is no priority"),
                (["run", "--priority", "99999999999", "--", "true"], 2, "is no priority"),
                (["run", "--priority", "--", "true"], 2, "--priority"),
                (["run", "--share", "0", "--", "true"], 2, "'0' is no share"),
                (["run", "--leave-below", "100", "--", "true"], 2, "per cent"),
                (["run", "--linger", "soon", "--", "true"], 2, "'soon' is no linger"),
                (["run", "--gpu", "first", "--", "true"], 2, "'first' names no GPU"),
                (["run", "--gpu", "7", "--", "true"], 3, "there is no GPU '7' here"),
                (["run", "--gpu", "GPU-nowhere", "--", "true"], 3, "there is no GPU 'GPU-nowhere' here"),
                (["run", "--gpu", "auto:9", "--", "true"], 3, "asks for 9 GPUs"),
                (["run", "--priority", "low", "jobs.toml"], 2, "belongs into the job file"),
                (["run", "/no/such/jobs.toml"], 2, "/no/such/jobs.toml"),
                (["ps", "extra"], 2, "unexpected argument 'extra'"),
                (["ps", "--jsn"], 2, "did you mean --json?"),
                (["top", "--interval", "never", "--once"], 2, "'never' is no duration"),
                (["top", "--interval", "0", "--once"], 2, "below 50ms"),
                (["stop"], 2, "which job?"),
                (["stop", "x"], 2, "'x' is no job id"),
                (["stop", "7"], 2, "no job 7"),
                (["stop", "--all", "7"], 2, "not both"),
                (["version", "--grace"], 2, "unknown option --grace")):
            done = self.call(*args)
            self.assertEqual(done.returncode, code, f"{args}: {done.stderr}")
            self.assertIn(expected, done.stderr)
            self.assert_one_line(done.stderr)
            self.assertEqual(done.stdout, "")

    def test_a_gpu_that_does_not_exist_starts_nothing(self):
        self.assertEqual(self.call("run", "--gpu", "7", "--", "echo", "started").stdout, "")


class Help(CliTest):
    def test_help_of_everything(self):
        self.assertEqual(self.call().returncode, 2)
        for args in (["help"], ["--help"], ["-h"]):
            done = self.call(*args)
            self.assertEqual(done.returncode, 0)
            for verb in ("run", "ps", "top", "stop", "doctor", "infer", "optimize", "version"):
                self.assertIn("\n  " + verb, done.stdout)
        for verb in ("run", "ps", "top", "stop", "doctor", "infer", "optimize", "version"):
            for args in ([verb, "--help"], ["help", verb]):
                done = self.call(*args)
                self.assertEqual(done.returncode, 0, args)
                self.assertIn("sluice " + verb, done.stdout)
                self.assertEqual(done.stderr, "")

    def test_version(self):
        self.assertRegex(self.call("version").stdout, r"^sluice \d+\.\d+\.\d+\n$")
        self.assertEqual(self.call("--version").stdout, self.call("version").stdout)
        keys = json.loads(self.call("version", "--json").stdout)
        self.assertEqual(sorted(keys), ["board_version", "protocol_version", "version"])


class FullOutput(CliTest):
    def test_what_could_not_be_printed_is_a_failure(self):
        for args in (["help"], ["version"], ["version", "--json"], ["ps"], ["ps", "--json"], ["run", "--help"]):
            with open("/dev/full", "w") as full:
                done = self.call(*args, stdout=full)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn("cannot write to standard output", done.stderr)
            self.assert_one_line(done.stderr)


class Ps(CliTest):
    def test_no_daemon_is_no_jobs_and_starts_none(self):
        self.assertEqual(self.call("ps").stdout, "no jobs\n")
        self.assertEqual(json.loads(self.call("ps", "--json").stdout),
                         {"daemon": None, "devices": [], "jobs": [], "unmanaged": []})
        self.assertEqual(os.listdir(self.runtime), [])

    def test_a_job_is_listed_while_it_runs(self):
        process = self.start("run", "--priority", "low", "--share", "3", "--name", "reader", "--", "cat")
        wait_until(lambda: len(self.jobs()) == 1, "the job")
        job = self.jobs()[0]
        self.assertEqual((job["name"], job["priority"], job["share"], job["run_pid"]), ("reader", 0, 3, process.pid))
        self.assertIn("reader", self.call("ps").stdout)
        process.stdin.close()
        self.assertEqual(process.wait(support.DEADLINE_S), 0)
        self.assertEqual(self.jobs(), [])

    def test_a_killed_daemon_is_replaced_while_jobs_live(self):
        process = self.start("run", "--", "cat")
        wait_until(lambda: len(self.jobs()) == 1, "the job")
        daemon = json.loads(self.call("ps", "--json").stdout)["daemon"]["pid"]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not is_alive(daemon), "the daemon's end")
        status = json.loads(self.call("ps", "--json").stdout)
        self.assertNotEqual(status["daemon"]["pid"], daemon)
        self.assertEqual(len(status["jobs"]), 1)
        process.stdin.close()
        self.assertEqual(process.wait(support.DEADLINE_S), 0)


class Top(CliTest):
    def test_once(self):
        process = self.start("run", "--name", "reader", "--", "cat")
        wait_until(lambda: len(self.jobs()) == 1, "the job")
        status = json.loads(self.call("top", "--once", "--json", "--interval", "100ms").stdout)
        for key in ("launches_per_s", "gpu_share_ratio", "held_ratio"):
            self.assertEqual(status["jobs"][0][key], 0)
        self.assertTrue(status["devices"][0]["simulated"])
        text = self.call("top", "--once", "--interval", "100ms").stdout
        self.assertIn("reader", text)
        self.assertIn("simulated", text)
        self.assertNotIn("\033", text, "no terminal")
        process.stdin.close()


class Stop(CliTest):
    def test_a_job_ends_as_asked(self):
        process = self.start("run", "--", "sh", "-c", "echo ready; exec sleep 1000")
        process.stdout.readline()
        job = self.jobs()[0]["id"]
        done = self.call("stop", str(job))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, rf"^job {job} \(.*\): ended\n$")
        self.assertEqual(process.wait(support.DEADLINE_S), 128 + signal.SIGTERM)

    def test_what_does_not_listen_is_killed(self):
        process = self.start("run", "--", "sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait; wait")
        left = int(process.stdout.readline())
        done = self.call("stop", "--all", "--grace", "100ms", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([job["result"] for job in json.loads(done.stdout)["jobs"]], ["killed"])
        self.assertEqual(process.wait(support.DEADLINE_S), 128 + signal.SIGKILL)
        self.assertFalse(is_alive(left))

    def test_a_stopped_job_is_woken_to_end(self):
        process = self.start("run", "--", "sh", "-c", "echo $$; exec sleep 1000")
        command = int(process.stdout.readline())
        os.kill(command, signal.SIGSTOP)
        self.assertEqual(self.call("stop", "--all").returncode, 0)
        self.assertEqual(process.wait(support.DEADLINE_S), 128 + signal.SIGTERM)

    def test_all_of_none(self):
        done = self.call("stop", "--all")
        self.assertEqual((done.returncode, done.stdout), (0, "no jobs\n"))


if __name__ == "__main__":
    support.main()
