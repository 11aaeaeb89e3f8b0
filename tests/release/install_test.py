"""scripts/install: verifies, installs, replaces only its own, and removes what it installed. Part of release_test.py."""
import os
import shutil
import subprocess
import unittest

from release_support import ROOT, ReleaseTest, call


def snapshot(folder):
    """Every path below, with what it holds."""
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            for path in folder.rglob("*")}


class Install(ReleaseTest):
    def setUp(self):
        super().setUp()
        self.prefix = self.folder / "a prefix"

    def install(self, *args, script=None, **env):
        return call(script or self.tree / "install", *args,
                    env={"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), **env})

    def installed(self, *args):
        done = self.install("--prefix", self.prefix, *args)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def refused(self, code, text, *args, **kwargs):
        done = self.install(*args, **kwargs)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)
        self.assertTrue(all(line.startswith("install: ") for line in done.stderr.splitlines()), done.stderr)

    def test_from_the_tree_and_back(self):
        self.prefix.joinpath("bin").mkdir(parents=True)
        self.prefix.joinpath("bin/other").write_text("other")
        before = snapshot(self.prefix)
        said = self.installed()
        self.assertIn(f'export PATH="{self.prefix}/bin:$PATH"', said)
        done = call(self.prefix / "bin/sluice", "version", env={})
        self.assertEqual(0, done.returncode, done.stderr)
        done = call(self.prefix / "lib/sluice/install", "--uninstall", env={"PATH": os.environ["PATH"]})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(before, snapshot(self.prefix))

    def test_from_a_tarball_twice(self):
        self.installed(self.tarball)
        first = snapshot(self.prefix)
        self.installed(self.tarball)
        self.assertEqual(first, snapshot(self.prefix))
        self.assertEqual(0, self.install("--uninstall", "--prefix", self.prefix).returncode)
        self.assertFalse(self.prefix.exists())

    def test_the_default_is_the_users_own_folder(self):
        done = self.install("--user")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue((self.folder / "home/.local/bin/sluice").exists())

    def test_dry_run_changes_nothing(self):
        self.assertIn("would install", self.installed("--dry-run"))
        self.assertFalse(self.prefix.exists())
        self.installed()
        there = snapshot(self.prefix)
        self.assertIn("would remove", self.installed("--uninstall", "--dry-run"))
        self.assertEqual(there, snapshot(self.prefix))

    def test_other_files_are_not_replaced(self):
        path = self.prefix / "share/man/man1/sluice.1"
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        self.refused(1, str(path), "--prefix", self.prefix)
        self.assertEqual({"share", "share/man", "share/man/man1", "share/man/man1/sluice.1"}, set(snapshot(self.prefix)))
        self.assertEqual("mine", path.read_text())

    def test_files_of_an_older_release_go(self):
        self.installed()
        stale = self.prefix / "lib/sluice/stale"
        stale.write_text("")
        manifest = self.prefix / "lib/sluice/files.sha256"
        manifest.write_text(manifest.read_text() + "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  lib/sluice/stale\n")
        self.installed()
        self.assertFalse(stale.exists())

    def test_changed_files_stay(self):
        self.installed()
        changed = self.prefix / "share/zsh/site-functions/_sluice"
        changed.write_text("mine")
        done = self.install("--uninstall", "--prefix", self.prefix)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f"kept, since it was changed: {changed}", done.stdout)
        self.assertEqual(["share/zsh/site-functions/_sluice"],
                         [path for path, text in snapshot(self.prefix).items() if text is not None])

    def test_after_a_broken_off_upgrade_all_goes_but_what_was_changed(self):
        self.installed()
        changed = self.prefix / "share/zsh/site-functions/_sluice"
        changed.write_text("mine")
        manifest = self.prefix / "lib/sluice/files.sha256"
        # Every path twice, with the checksum of a release that never came to be.
        manifest.write_text(manifest.read_text() + "".join("0" * 64 + line[64:] for line in manifest.read_text().splitlines(True)))
        done = self.install("--uninstall", "--prefix", self.prefix)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(1, done.stdout.count("kept, since it was changed"), done.stdout)
        self.assertEqual(["share/zsh/site-functions/_sluice"],
                         [path for path, text in snapshot(self.prefix).items() if text is not None])

    def test_nothing_outside_the_prefix_is_touched(self):
        self.installed()
        victim = self.folder / "x"
        victim.write_text("")
        manifest = self.prefix / "lib/sluice/files.sha256"
        good = manifest.read_text()
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  "
        for line in (empty + "../x", empty + str(victim), empty + "lib/.\0./../x", "../x"):
            manifest.write_text(f"{good}{line}\n")
            for args in (["--uninstall"], []):
                done = self.install("--prefix", self.prefix, *args)
                self.assertEqual(1, done.returncode, line)
                self.assertIn(str(manifest), done.stderr)
            self.assertTrue(victim.exists())
        manifest.write_text(good)
        # Where an older installer would have written through a link.
        (self.prefix / "lib/sluice/files.sha256.new").symlink_to(victim)
        self.installed()
        self.assertEqual("", victim.read_text())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a file away")
    def test_root_does_not_believe_anothers_list(self):
        self.installed()
        os.chown(self.prefix / "lib/sluice/files.sha256", 12345, 12345)
        self.refused(1, "is not root's", "--uninstall", "--prefix", self.prefix)
        self.refused(1, "is not root's", "--prefix", self.prefix)

    def test_damage_is_found(self):
        copy = self.folder / self.tarball.name
        shutil.copy(self.tarball, copy)
        self.refused(1, "belongs beside the tarball", copy, "--prefix", self.prefix)
        shutil.copy(f"{self.tarball}.sha256", f"{copy}.sha256")
        with open(copy, "r+b") as file:
            file.seek(1000)
            file.write(b"damage")
        self.refused(1, "not what its .sha256 says", copy, "--prefix", self.prefix)
        tree = self.folder / "tree"
        shutil.copytree(self.tree, tree, symlinks=True)
        (tree / "bin/sluiced").write_bytes(b"")
        done = self.install("--prefix", self.prefix, script=tree / "install")
        self.assertEqual(1, done.returncode)
        self.assertIn("bin/sluiced", done.stderr)
        self.assertIn("the release is damaged", done.stderr)
        self.assertFalse(self.prefix.exists())

    def test_what_is_asked_wrongly(self):
        self.refused(2, "unknown option '--banana'", "--banana")
        self.refused(2, "--prefix needs a directory", "--prefix")
        self.refused(2, "is not there", self.folder / "none.tar.gz")
        self.refused(2, "one tarball only", "a", "b")
        self.refused(1, "nothing is installed in", "--uninstall", "--prefix", self.prefix)
        self.refused(1, "is an unpacked release", "--uninstall", "--prefix", self.tree)
        self.prefix.write_text("")
        self.refused(1, "is no directory", "--prefix", self.prefix)

    def test_help(self):
        done = self.install("--help")
        self.assertEqual(0, done.returncode)
        for option in ("--prefix", "--user", "--uninstall", "--dry-run"):
            self.assertIn(option, done.stdout)
        self.assertEqual("", subprocess.run(["bash", "-n", ROOT / "scripts/install"], capture_output=True, text=True, check=True).stderr)
