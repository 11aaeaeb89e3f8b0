"""`sluice run` with commands that use no GPU: nothing about them may change."""
import json
import os
import pty
import shutil
import signal
import subprocess
import sys

import support
from support import CliTest, is_alive, wait_until

# Says "ready", then answers signals: SIGTERM ends it with 5, SIGINT is counted, SIGUSR1 prints the count and ends it.
COUNTER = """
import os, signal, sys
count = 0
def on_int(*_):
    global count
    count += 1
    print("int", flush=True)
def on_usr1(*_):
    print("count", count, flush=True)
    os._exit(6)
def on_term(*_):
    print("term", flush=True)
    os._exit(5)
signal.signal(signal.SIGINT, on_int)
signal.signal(signal.SIGUSR1, on_usr1)
signal.signal(signal.SIGTERM, on_term)
woken, wake = os.pipe()  # a signal just before pause() would be slept through
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
print("ready", os.getpid(), flush=True)
while True:
    os.read(woken, 1)
"""

# A shell's job control in small: runs its arguments in a foreground process group of their own and says when they stop.
LITTLE_SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        print("ended", os.waitstatus_to_exitcode(status), flush=True)
        break
    print("stopped", flush=True)
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
"""


class ExitCodes(CliTest):
    def test_the_commands_own(self):
        for code in (0, 1, 2, 3, 42, 255):
            self.assertEqual(self.call("run", "--", "sh", "-c", f"exit {code}").returncode, code)

    def test_death_by_a_signal_is_128_and_its_number(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
            self.assertEqual(self.call("run", "--", "sh", "-c", f"kill -{number} $$").returncode, 128 + number)

    def test_a_command_that_does_not_start(self):
        for command, code in (("no-such-command-of-sluice", 127), ("/no/such/file", 127), ("/etc/passwd", 126), ("/", 126)):
            done = self.call("run", "-q", "--", command)
            self.assertEqual(done.returncode, code, command)
            self.assertIn(command, done.stderr)
            self.assert_one_line(done.stderr)

    def test_a_caller_that_ignores_sigchld(self):
        done = self.call("run", "--", "sh", "-c", "exit 7",
                         preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 7)


class Streams(CliTest):
    def test_bytes_pass_unchanged(self):
        data = bytes(range(256)) * 1000
        done = self.call("run", "-q", "--", "cat", input=data, text=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout == data, "what went in came out")  # not assertEqual, whose diff would take minutes

    def test_standard_error_holds_the_commands_and_the_summary(self):
        done = self.call("run", "--", "sh", "-c", "echo mine >&2")
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(lines[0], "mine", done.stderr)
        self.assertRegex(lines[-1], r"^sluice: job \d+ \(normal, simulated\): no CUDA was used$")

    def test_a_reader_that_goes_early_ends_the_command_not_run(self):
        first = self.start("run", "-q", "--", "yes")
        self.assertEqual(first.stdout.readline(), "y\n")
        first.stdout.close()
        self.assertEqual(first.wait(support.DEADLINE_S), 128 + signal.SIGPIPE)

    def test_closed_streams(self):
        done = subprocess.run(["sh", "-c", 'exec "$0" run -- sh -c "exit 9" <&- >&- 2>&-', self.sluice], env=self.env,
                              timeout=support.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 9)

    def test_no_descriptor_of_ours_reaches_the_command(self):
        bare = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.call("run", "-q", "--", "ls", "/proc/self/fd").stdout, bare)


class Signals(CliTest):
    def ready(self, process):
        word, pid = process.stdout.readline().split()
        self.assertEqual(word, "ready")
        return int(pid)

    def test_sigterm_reaches_the_command(self):
        process = self.start("run", "--", sys.executable, "-c", COUNTER)
        self.ready(process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.stdout.readline(), "term\n")
        self.assertEqual(process.wait(support.DEADLINE_S), 5)

    def test_under_nohup_the_hangup_is_ignored(self):
        process = self.start("run", "--", sys.executable, "-c", COUNTER,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.ready(process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.stdout.readline(), "count 0\n")
        self.assertEqual(process.wait(support.DEADLINE_S), 6)

    def test_without_nohup_the_hangup_ends_the_job(self):
        process = self.start("run", "--", "sh", "-c", "echo ready $$; exec sleep 1000")
        self.ready(process)
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(support.DEADLINE_S), 128 + signal.SIGHUP)

    def test_the_commands_mask_and_dispositions_are_the_callers(self):
        fields = ("SigBlk", "SigIgn", "SigCgt")
        show = ["grep", "-E", "^(%s):" % "|".join(fields), "/proc/self/status"]
        bare = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.call("run", "-q", "--", *show).stdout, bare)

    def test_killed_run_leaves_the_command_running(self):
        process = self.start("run", "--", sys.executable, "-c", COUNTER)
        pid = self.ready(process)
        process.kill()
        process.wait()
        self.assertTrue(is_alive(pid))
        os.kill(pid, signal.SIGUSR1)
        self.assertEqual(process.stdout.readline(), "count 0\n")
        wait_until(lambda: not is_alive(pid), "the command's end")
        self.assertEqual(self.jobs(), [], "a dead run's slot is freed")


class Terminal(CliTest):
    def in_terminal(self, *command):
        """Starts `command` as session leader of a terminal of its own; returns a function to read lines and the master."""
        pid, master = pty.fork()
        if pid == 0:
            os.execve(command[0], command, self.env)
        self.addCleanup(lambda: (os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)))
        reader = os.fdopen(master, "rb", buffering=0)
        self.addCleanup(reader.close)
        held = bytearray()

        def line_with(word):
            end = held.find(b"\n")
            while True:
                end = held.find(b"\n")
                if end < 0:
                    held.extend(reader.read(4096))
                    continue
                text = bytes(held[:end]).decode()
                del held[:end + 1]
                if word in text:
                    return text.strip()
        return line_with, master, pid

    def test_ctrl_c_reaches_the_command_once(self):
        line_with, master, pid = self.in_terminal(self.sluice, "run", "--", sys.executable, "-c", COUNTER)
        line_with("ready")
        os.write(master, b"\x03")
        line_with("int")
        # Were the interrupt passed on a second time, it would come before this: signals wait in order of their number.
        os.kill(pid, signal.SIGUSR1)
        self.assertIn("count 1", line_with("count"))

    def test_ctrl_z_stops_and_fg_continues(self):
        line_with, master, _ = self.in_terminal(sys.executable, "-c", LITTLE_SHELL, self.sluice, "run", "--",
                                                sys.executable, "-c", COUNTER)
        command = int(line_with("ready").split()[1])
        os.write(master, b"\x1a")
        self.assertIn("stopped", line_with("stopped"))
        os.kill(command, signal.SIGTERM)
        self.assertEqual(line_with("ended"), "ended 5")


class FailOpen(CliTest):
    def test_disabled_starts_the_command_untouched(self):
        env = dict(self.env, SLUICE_DISABLE="1", LD_LIBRARY_PATH="/somewhere")
        bare = subprocess.run(["env"], env=env, capture_output=True, text=True, check=True).stdout
        done = self.call("run", "--priority", "high", "--", "env", env=env)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, bare, ""))
        self.assertEqual(os.listdir(self.runtime), [])

    def test_missing_shim(self):
        prefix = os.path.join(self.folder, "prefix")
        os.makedirs(os.path.join(prefix, "bin"))
        self.sluice = shutil.copy(self.sluice, os.path.join(prefix, "bin", "sluice"))
        self.env["SLUICE_NVML"] = str(support.BUILD / "lib/sluice/emulator/libnvidia-ml.so.1")
        done = self.call("run", "--", "sh", "-c", "exit 4")
        self.assertEqual(done.returncode, 4)
        self.assertIn("running without Sluice: the shim", done.stderr)
        self.assert_one_line(done.stderr)

    def test_runtime_directory_that_cannot_be(self):
        for path in ("/proc/none", "/dev/null/x", "/"):
            done = self.call("run", "--", "sh", "-c", "exit 4", env=dict(self.env, SLUICE_RUNTIME_DIR=path))
            self.assertEqual(done.returncode, 4)
            # The emulator, which shares its machine through that directory, may have a line of its own.
            ours = [line for line in done.stderr.splitlines() if line.startswith("sluice: ")]
            self.assertEqual(len(ours), 1, done.stderr)
            self.assertIn("running without Sluice: ", ours[0])

    def test_driver_that_is_not_there(self):
        done = self.call("run", "--", "sh", "-c", "exit 4", env=dict(self.env, SLUICE_DRIVER="/no/such/libcuda.so.1"))
        self.assertEqual(done.returncode, 4)
        self.assertIn("running without Sluice: ", done.stderr)

    def test_hidden_gpus(self):
        done = self.call("run", "--", "sh", "-c", "exit 4", env=dict(self.env, CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 4)
        self.assertIn("CUDA_VISIBLE_DEVICES", done.stderr)


class Environment(CliTest):
    def variables(self, *options, **kwargs):
        done = self.call("run", "-q", *options, "--", "env", "-0", **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)

    def test_the_shim_stands_in_front(self):
        got = self.variables(env=dict(self.env, LD_LIBRARY_PATH="/somewhere:"))
        self.assertEqual(got["LD_LIBRARY_PATH"].split(":")[:2], [str(support.BUILD / "lib/sluice/shim"), "/somewhere"])
        self.assertEqual(self.variables()["LD_LIBRARY_PATH"], str(support.BUILD / "lib/sluice/shim"))

    def test_gpu_board_and_job_are_named(self):
        got = self.variables("--gpu", "0")
        uuid = got["CUDA_VISIBLE_DEVICES"]
        self.assertRegex(uuid, r"^GPU-[0-9a-f-]+$")
        self.assertRegex(got["SLUICE_BOARDS"], rf"^{uuid}={self.runtime}/[^:]+:\d+$")
        self.assertGreaterEqual(int(got["SLUICE_JOB"]), 1)
        self.assertEqual(got["SLUICE_DRIVER"], self.env["SLUICE_DRIVER"])

    def test_several_gpus(self):
        env = dict(self.env, SLUICE_EMU_GPUS="4")
        all_of_them = [self.variables("--gpu", str(i), env=env)["CUDA_VISIBLE_DEVICES"] for i in range(4)]
        self.assertEqual(len(set(all_of_them)), 4)
        got = self.variables("--gpu", f"2,{all_of_them[1]}", env=env)
        self.assertEqual(got["CUDA_VISIBLE_DEVICES"], f"{all_of_them[2]},{all_of_them[1]}")
        self.assertEqual(got["SLUICE_BOARDS"].count(","), 1)
        self.assertEqual(len(self.variables("--gpu", "auto:3", env=env)["CUDA_VISIBLE_DEVICES"].split(",")), 3)
        self.assertEqual(self.variables(env=dict(env, CUDA_VISIBLE_DEVICES="3,1"))["CUDA_VISIBLE_DEVICES"],
                         f"{all_of_them[3]},{all_of_them[1]}")

    def test_why_a_gpu_was_chosen_is_said(self):
        done = self.call("run", "--", "true", env=dict(self.env, SLUICE_EMU_GPUS="2"))
        self.assertRegex(done.stderr, r"sluice: job \d+ runs on GPU [01] \(.*\): .+ free\)")

    def test_ids_are_not_shared_by_jobs_on_different_gpus(self):
        env = dict(self.env, SLUICE_EMU_GPUS="2")
        first = self.start("run", "--gpu", "0", "--", "cat", env=env)
        wait_until(lambda: len(self.jobs()) == 1, "the first job")
        other = self.variables("--gpu", "1", env=env)["SLUICE_JOB"]
        self.assertNotEqual(int(other), self.jobs()[0]["id"])
        first.stdin.close()
        self.assertEqual(first.wait(support.DEADLINE_S), 0)


class Report(CliTest):
    def test_one_command(self):
        path = os.path.join(self.folder, "report.json")
        self.assertEqual(self.call("run", "-q", "-p", "low", "-n", "x", "--report", path, "--", "sh", "-c", "exit 3").returncode, 3)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["name"], report["priority"], report["exit_code"], report["signal"]), ("x", 0, 3, None))
        self.assertTrue(report["simulated"])
        self.assertEqual(report["launches"], 0)
        self.assertIsNone(report["gated_ratio"])
        self.assertIsNone(report["bypass"])

    def test_a_place_that_cannot_be_written_is_refused_before_the_start(self):
        done = self.call("run", "--report", "/no/such/folder/x", "--", "sh", "-c", "echo started")
        self.assertEqual((done.returncode, done.stdout), (2, ""))


class JobFile(CliTest):
    def test_several_jobs(self):
        path = self.write("jobs.toml", f"""
[[job]]
name = "first"
command = "sh -c 'echo $GREETING >> out'"
environment = {{GREETING = "hello"}}
working_directory = "{self.folder}"

[[job]]
name = "second"
command = ["sh", "-c", "exit 6"]
priority = "low"

[[job]]
name = "third"
command = ["sh", "-c", "exit 7"]
""")
        report = os.path.join(self.folder, "report.json")
        done = self.call("run", "--report", report, path)
        self.assertEqual(done.returncode, 6, "the first that is not 0, in the file's order")
        with open(os.path.join(self.folder, "out"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "hello\n")
        with open(report, encoding="utf-8") as file:
            jobs = json.load(file)["jobs"]
        self.assertEqual([(job["name"], job["exit_code"]) for job in jobs], [("first", 0), ("second", 6), ("third", 7)])
        self.assertEqual(len({job["id"] for job in jobs}), 3)

    def test_a_duration_ends_the_whole_job(self):
        pid_file = os.path.join(self.folder, "pid")
        path = self.write("jobs.toml", f"""
[[job]]
command = ["sh", "-c", "sleep 1000 & echo $! > {pid_file}; wait"]
duration = "500ms"
""")
        done = self.call("run", path)
        self.assertEqual(done.returncode, 0, "ended as asked for: " + done.stderr)
        self.assertIn("ended at its duration", done.stderr)
        with open(pid_file, encoding="utf-8") as file:
            self.assertFalse(is_alive(int(file.read())), "what the command started is ended too")

    def test_bad_files_name_the_line(self):
        for text, expected in (("[[job]]\ncommand = \"x\"\nprioritty = 3\n", "jobs.toml:3: unknown key 'prioritty'; did you mean priority?"),
                               ("[[job]]\ncommand = [\n", "jobs.toml:"), ("", "there is no [[job]] table"),
                               ("[[job]]\ncommand = \"x\"\nshare = 0\n", "jobs.toml:3: '0' is no share")):
            done = self.call("run", self.write("jobs.toml", text))
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(expected, done.stderr)
            self.assert_one_line(done.stderr)


if __name__ == "__main__":
    support.main()
