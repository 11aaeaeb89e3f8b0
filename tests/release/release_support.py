"""What the tests of a release share: the tarball, made once, and calls in an empty environment."""
import atexit
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
DEADLINE_S = 120  # no test's result depends on less

sys.path.insert(0, str(ROOT / "tests" / "shim_abi"))


def call(*args, **kwargs):
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                          **kwargs)


def make_release(folder):
    """The tarball's path, made from what the build directory has."""
    done = call(ROOT / "scripts/dist", "--as-built", "--build", BUILD, "--out", folder)
    if done.returncode != 0:
        raise AssertionError("scripts/dist: " + done.stderr)
    return pathlib.Path(done.stdout.strip())


class ReleaseTest(unittest.TestCase):
    """`tarball`, made once for all, and `tree`, unpacked where the path has blanks in it."""
    tarball = tree = None

    @classmethod
    def setUpClass(cls):
        if ReleaseTest.tarball is None:
            folder = tempfile.mkdtemp(prefix="sluice release ")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            ReleaseTest.tarball = make_release(pathlib.Path(folder, "made"))
            with tarfile.open(cls.tarball) as tar:
                tar.extractall(pathlib.Path(folder, "un packed"))
            ReleaseTest.tree = next(pathlib.Path(folder, "un packed").iterdir())

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice release "))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def binaries(tree):
    """The programs and libraries of a tree, as paths within it."""
    return sorted(path.relative_to(tree) for path in tree.rglob("*")
                  if path.is_file() and not path.is_symlink() and is_elf(path))


def main():
    sys.argv[1:] = sys.argv[2:]
    unittest.main(verbosity=2)
