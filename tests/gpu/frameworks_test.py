"""Tests of frameworks.py itself, on the emulator: programs that do and do not do the same under Sluice."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LATENCY = str(BUILD / "bin" / "example_latency")

WORK = f"""import subprocess
subprocess.run([{LATENCY!r}, "--requests", "1000", "--rate", "2000", "--work-us", "500", "--check"],
               check=True, stdout=subprocess.DEVNULL)
"""
PROGRAMS = {
    "same": WORK + "print('done')\n",
    "differs": WORK + "import time\nprint(time.time_ns())\n",
    "launches_nothing": "print('done')\n",
    "fails": "import sys\nsys.exit('broken')\n",
    "hangs": "import signal\nwhile True:\n  signal.pause()\n",
    "lacks": "import sys\nsys.exit(77)\n",
}
BUSY = f"""import os, subprocess, sys, time
answered = __file__ + ".latency"
busy = subprocess.Popen([{LATENCY!r}, "--rate", "500", "--work-us", "1000", "--requests", "1000000"],
                        stdout=subprocess.DEVNULL, env=dict(os.environ, SLUICE_LATENCY_FILE=answered))
while not (os.path.exists(answered) and os.path.getsize(answered)):
    time.sleep(0.01)
print("busy", flush=True)
sys.exit(busy.wait())
"""


class Frameworks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-frameworks-test-")
        self.addCleanup(self.folder.cleanup)
        self.programs = pathlib.Path(self.folder.name) / "programs"
        self.programs.mkdir()
        self.busy = pathlib.Path(self.folder.name) / "busy.py"
        self.busy.write_text(BUSY, encoding="utf-8")

    def call(self, *names, options=()):
        for name in names:
            (self.programs / f"{name}.py").write_text(PROGRAMS[name], encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "CUDA_"))}
        emulator = str(BUILD / "lib" / "sluice" / "emulator")
        environment["SLUICE_DRIVER"] = os.path.join(emulator, "libcuda.so.1")
        environment["LD_LIBRARY_PATH"] = emulator  # for the plain runs
        done = subprocess.run(
            [sys.executable, str(HERE / "frameworks.py"), "--sluice", str(BUILD / "bin" / "sluice"), "--json",
             "--programs", str(self.programs), "--busy", sys.executable, str(self.busy), *options],
            env=environment, capture_output=True, text=True, timeout=300, check=False)
        self.assertIn(done.returncode, (0, 1, 3), done.stderr)
        return done.returncode, {n: r["result"] for n, r in json.loads(done.stdout)["programs"].items()}, done.stderr

    def test_the_same_is_the_same(self):
        code, results, err = self.call("same", "lacks")
        self.assertEqual((code, results), (0, {"same": "same", "lacks": "skipped"}), err)

    def test_what_differs_is_told(self):
        code, results, err = self.call("differs", "launches_nothing", "fails")
        self.assertEqual((code, results), (1, {"differs": "differs", "launches_nothing": "differs", "fails": "failed"}),
                         err)
        self.assertIn("other output", err)
        self.assertIn("Sluice saw no launch of it", err)

    def test_what_hangs_is_ended_and_the_others_go_on(self):
        code, results, err = self.call("fails", "hangs", options=["--timeout", "3", "--jobs", "2"])
        self.assertEqual((code, results), (1, {"fails": "failed", "hangs": "failed"}), err)
        self.assertIn("hangs: failed: without Sluice: still running after 3 s", err)
        self.assertIn("broken", err)

    def test_what_has_no_time_left_is_no_success(self):
        self.assertEqual(self.call("same", options=["--limit", "0.001"])[:2], (1, {"same": "left"}))

    def test_nothing_to_run_is_no_success(self):
        self.assertEqual(self.call("lacks")[0], 3)


if __name__ == "__main__":
    unittest.main()
