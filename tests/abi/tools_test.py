#!/usr/bin/env python3
"""The tools of cuda_abi on the stub driver, on the shim, and on files that are neither.

    tools_test.py TOOLS_DIR LIST_UNGATED STUB SHIM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS, LIST_UNGATED, STUB, SHIM = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
SANITIZED = any(name in STUB.read_bytes() for name in (b"__asan_init", b"__tsan_init"))


def run(*command):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {"SLUICE_DRIVER": str(STUB)}
    return subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, check=False)


def tool(name, *arguments):
    return run(sys.executable, TOOLS / name, *arguments)


class CompareExports(unittest.TestCase):
    def test_the_shim_has_all_that_a_driver_exports(self):
        result = tool("compare_exports", STUB, SHIM)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_missing_names_are_listed(self):
        result = tool("compare_exports", "--json", STUB, LIST_UNGATED)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cuLaunchKernel_ptsz", json.loads(result.stdout)["missing"])
        self.assertNotIn("sluice_stub_calls", json.loads(result.stdout)["missing"])

    def test_bad_input_gets_one_line(self):
        with tempfile.NamedTemporaryFile() as file:
            for content in (b"", b"text", b"\x7fELF\x02\x01", STUB.read_bytes()[:5000]):
                file.seek(0)
                file.truncate()
                file.write(content)
                file.flush()
                result = tool("compare_exports", file.name, SHIM)
                self.assertEqual(result.returncode, 2, content[:8])
                self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual(tool("compare_exports", "/nonexistent", SHIM).returncode, 2)


class CheckDriver(unittest.TestCase):
    @unittest.skipIf(SANITIZED, "a sanitized library does not load into Python")
    def test_the_stub_answers_as_the_table_says(self):
        result = tool("check_driver", "--json", STUB)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertGreater(json.loads(result.stdout)["requests"], 1000)

    def test_no_driver(self):
        self.assertEqual(tool("check_driver", "/nonexistent").returncode, 3)


class ListUngated(unittest.TestCase):
    def test_everything_that_submits_is_gated(self):
        result = run(LIST_UNGATED, "--json", SHIM)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(json.loads(result.stdout)["ungated"], [])
        self.assertGreater(json.loads(result.stdout)["gated"], 100)

    def test_what_is_no_shim_is_refused(self):
        result = run(LIST_UNGATED, STUB)
        self.assertEqual(result.returncode, 2)
        self.assertIn("is not Sluice's shim", result.stderr)
        self.assertEqual(run(LIST_UNGATED).returncode, 2)
        self.assertEqual(run(LIST_UNGATED, "/nonexistent").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
