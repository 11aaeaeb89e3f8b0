#!/usr/bin/env python3
"""The release: what is in it, what it needs of a system, and that it runs where it is unpacked. release_test.py BUILD"""
import json
import os
import re
import shutil
import socket
import tarfile
import tempfile
import unittest

import release_support as support
from install_test import Install  # noqa: F401  runs here too, with the same tarball
from release_support import ReleaseTest, binaries, call, make_release

# What Ubuntu 22.04 has; Debian 12 has more.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
OF_THE_SYSTEM = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so\.\d+")
# Loaded into other people's programs: these run where glibc is older.
IN_JOBS = {"lib/sluice/shim/libcuda.so.1": "cuda_abi/include/sluice/cuda_abi/exports.inc",
           "lib/sluice/limit/libnvidia-ml.so.1": "shim/nvml/exports.inc"}


class Archive(ReleaseTest):
    def test_same_bytes_each_time(self):
        again = make_release(self.folder / "again")
        self.assertEqual(self.tarball.read_bytes(), again.read_bytes())

    def test_members_are_of_nobody_and_of_the_commit(self):
        with tarfile.open(self.tarball) as tar:
            members = tar.getmembers()
        names = [member.name for member in members]
        self.assertEqual(names, sorted(names, key=lambda name: name.split("/")))  # a folder comes before "folder.h"
        self.assertEqual({(0, 0, "", "")}, {(m.uid, m.gid, m.uname, m.gname) for m in members})
        self.assertEqual(1, len({m.mtime for m in members}))
        self.assertEqual([], [m.name for m in members if m.issym() and os.path.isabs(m.linkname)])

    def test_the_checksum_is_beside_it(self):
        done = call("sha256sum", "-c", self.tarball.name + ".sha256", cwd=self.tarball.parent)
        self.assertEqual(0, done.returncode, done.stderr)

    def test_all_of_it_is_there(self):
        for path in ("bin/sluice", "bin/sluiced", "lib/libsluice.so", "lib/sluice/engine", "lib/sluice/shim/libcuda.so",
                     "lib/sluice/limit/libnvidia-ml.so.1", "lib/sluice/emulator/libcuda.so.1", "include/sluice.h",
                     "share/man/man1/sluice-run.1", "share/bash-completion/completions/sluice", "install", "LICENSE",
                     "share/doc/sluice/README.md", "share/doc/sluice/docs/cli.md"):
            self.assertTrue((self.tree / path).exists(), path)

    def test_what_others_wrote_is_named_with_its_licence(self):
        folder = self.tree / "share/doc/sluice/third_party"
        notice = (folder / "NOTICE.txt").read_text()
        for library in (self.tree / "lib/sluice/bundled").iterdir():
            self.assertIn(f"bundled as lib/sluice/bundled/{library.name};", notice)
        licences = re.findall(r"licence: (\S+)$", notice, re.MULTILINE)
        self.assertEqual([], [name for name in licences if (folder / name).stat().st_size < 100])
        self.assertEqual({path.name for path in folder.iterdir()}, {*licences, "NOTICE.txt"})

    def test_no_path_of_the_builder(self):
        for path in binaries(self.tree):
            self.assertNotIn(os.fsencode(support.ROOT), (self.tree / path).read_bytes(), path)
            self.assertNotIn(".debug_info", call("readelf", "-WS", self.tree / path).stdout, path)


class Needs(ReleaseTest):
    def test_versions_of_the_systems_libraries(self):
        for path in binaries(self.tree):
            found = set(re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", call("readelf", "-WV", self.tree / path).stdout))
            self.assertTrue(found, path)
            newer = {f"{name}_{version}" for name, version in found
                     if tuple(map(int, version.split("."))) > ((2, 28) if str(path) in IN_JOBS else NEWEST[name])}
            self.assertEqual(set(), newer, path)

    def test_libraries_are_the_systems_or_in_the_tree(self):
        for path in binaries(self.tree):
            dynamic = call("readelf", "-Wd", self.tree / path).stdout
            runpath = re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic)
            self.assertNotIn("(RPATH)", dynamic)
            where = [(self.tree / path).parent / entry.replace("$ORIGIN/", "./").replace("$ORIGIN", ".") for entry in runpath]
            self.assertEqual([], [entry for entry in runpath if not entry.startswith("$ORIGIN")], path)
            for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                if not OF_THE_SYSTEM.fullmatch(library):
                    self.assertTrue(any((folder / library).exists() for folder in where), f"{path} needs {library}")

    def test_what_is_loaded_into_jobs(self):
        for path, exports in IN_JOBS.items():
            done = call("python3", "-B", support.ROOT / "tests/shim_abi/shim_abi.py", self.tree / path, support.ROOT / exports)
            self.assertEqual((0, ""), (done.returncode, done.stdout))


class Runs(ReleaseTest):
    """With nothing in the environment but where its runtime directory is."""

    def setUp(self):
        super().setUp()
        self.runtime = tempfile.mkdtemp(prefix="sluice-rt-")  # a socket's path is short
        self.addCleanup(os.rmdir, self.runtime)
        self.addCleanup(self.end_daemon)

    def sluice(self, *args, **kwargs):
        return call(self.tree / "bin/sluice", *args, env={"SLUICE_RUNTIME_DIR": self.runtime, **kwargs.pop("env", {})}, **kwargs)

    def end_daemon(self):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(support.DEADLINE_S)
                client.connect(os.path.join(self.runtime, "control.sock"))
                client.sendall(b'{"v": 1, "op": "shutdown"}\n')
                while client.recv(4096):
                    pass
        except OSError:
            pass
        for name in os.listdir(self.runtime):
            os.remove(os.path.join(self.runtime, name))

    def test_a_job(self):
        emulator = {"SLUICE_DRIVER": str(self.tree / "lib/sluice/emulator/libcuda.so.1")}
        report = self.folder / "report.json"
        done = self.sluice("run", "-p", "low", "--memory", "1GiB", "--report", report, "--",
                           self.tree / "bin/example_throughput", "--iterations", "3", env=emulator)
        self.assertEqual(0, done.returncode, done.stderr)
        job = json.loads(report.read_text())
        self.assertEqual((0, True, 1), (job["exit_code"], job["simulated"], job["clients"]), done.stderr)
        self.assertGreater(job["launches"], 0)
        self.assertIsNone(job["bypass"])
        self.assertEqual(0, self.sluice("ps", "--json").returncode)

    def test_a_program_in_c(self):
        if not shutil.which("cc") or not shutil.which("pkg-config"):
            self.skipTest("cc or pkg-config is not installed")
        source = self.folder / "program.c"
        source.write_text('#include <sluice.h>\n#include <stdio.h>\nint main(void) { sluice_model* m; '
                          'int code = sluice_model_load("none.onnx", 0, &m); puts(sluice_last_error()); return code == SLUICE_OK; }\n')
        program = self.folder / "program"
        flags = call("pkg-config", "--cflags", "--libs", "sluice", env={**os.environ, "PKG_CONFIG_PATH": self.tree / "lib/pkgconfig"})
        self.assertEqual(0, flags.returncode, flags.stderr)
        words = [word.replace("\\ ", " ") for word in re.split(r"(?<!\\) +", flags.stdout.strip())]
        done = call("cc", source, *words, "-o", program)
        self.assertEqual(0, done.returncode, done.stderr)
        done = call(program, env={"LD_LIBRARY_PATH": str(self.tree / "lib")})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("none.onnx", done.stdout)

    def test_the_engine_and_its_libraries(self):
        done = self.sluice("infer", "--help")
        self.assertEqual(0, done.returncode, done.stderr)
        traced = call(self.tree / "lib/sluice/engine", env={"LD_TRACE_LOADED_OBJECTS": "1"}).stdout
        for line in traced.splitlines():
            library, _, path = line.strip().partition(" => ")
            if path and not OF_THE_SYSTEM.fullmatch(library):
                self.assertTrue(path.startswith(str(self.tree)), line)


if __name__ == "__main__":
    support.main()
