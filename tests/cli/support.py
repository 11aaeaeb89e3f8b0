"""What the tests of the command line share: a runtime directory of their own, the emulator, and waiting for facts."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
DEADLINE_S = 60  # when a fact that must come true counts as missing; no test's result depends on less


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("never came true: " + what)
        time.sleep(0.01)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sluice-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.runtime = os.path.join(self.folder, "runtime")
        os.mkdir(self.runtime, 0o700)
        self.sluice = str(BUILD / "bin" / "sluice")
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("SLUICE_", "CUDA_", "LD_"))}
        self.env["SLUICE_RUNTIME_DIR"] = self.runtime
        self.env["SLUICE_DRIVER"] = str(BUILD / "lib" / "sluice" / "emulator" / "libcuda.so.1")
        self.addCleanup(self.end_daemon)

    def end_daemon(self):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(DEADLINE_S)
                client.connect(os.path.join(self.runtime, "control.sock"))
                client.sendall(b'{"v": 1, "op": "shutdown"}\n')
                while client.recv(4096):
                    pass
        except OSError:
            pass  # there is none

    def call(self, *args, **kwargs):
        """Runs sluice to its end."""
        kwargs.setdefault("env", self.env)
        kwargs.setdefault("stdin", subprocess.DEVNULL if "input" not in kwargs else None)
        if kwargs["stdin"] is None:
            del kwargs["stdin"]
        kwargs.setdefault("text", True)
        kwargs.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([self.sluice, *args], stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False, **kwargs)

    def start(self, *args, **kwargs):
        kwargs.setdefault("env", self.env)
        process = subprocess.Popen([self.sluice, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.PIPE, text=True, **kwargs)

        def end():
            # A `sluice run` that is killed cannot end its command.
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            commands = children.read_text(encoding="ascii").split() if process.poll() is None else []
            if process.poll() is None:
                process.kill()
            process.wait()
            for command in commands:
                try:
                    os.kill(int(command), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()
        self.addCleanup(end)
        return process

    def jobs(self):
        listed = self.call("ps", "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        return json.loads(listed.stdout)["jobs"]

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def assert_one_line(self, text):
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith("sluice: "), text)


def main():
    sys.argv[1:] = sys.argv[2:]
    unittest.main(verbosity=2)
