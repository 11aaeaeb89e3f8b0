"""`sluiced --group`: one daemon and one board for the users of a host. Other users are played by numbers, as root."""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

import support
from support import CliTest, is_alive, wait_until

GROUP, OTHER_GROUP = 64001, 64002  # numbers of no group and no user, as far as names go
ANNA, BERT, STRANGER = 64011, 64012, 64013


@unittest.skipUnless(os.geteuid() == 0, "needs root, to play several users")
class GroupTest(CliTest):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        shutil.rmtree(self.runtime)
        self.runtime = tempfile.mkdtemp(prefix="sluice-group-", dir="/dev/shm")
        os.rmdir(self.runtime)
        self.env["SLUICE_RUNTIME_DIR"] = self.runtime
        self.addCleanup(shutil.rmtree, self.runtime, ignore_errors=True)
        # Everybody must be able to run the programs, wherever they were built.
        self.require_access()

    def require_access(self):
        done = subprocess.run([self.sluice, "version"], user=ANNA, group=GROUP, extra_groups=[], env=self.env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            self.skipTest("other users may not enter the build directory")

    def daemon(self, *options, **kwargs):
        process = subprocess.Popen([str(support.BUILD / "bin" / "sluiced"), "--foreground", "--group", str(GROUP),
                                    "--runtime-dir", self.runtime, *options], env=self.env, stderr=subprocess.PIPE,
                                   text=True, **kwargs)

        def end():
            process.kill()
            process.wait()
            process.stderr.close()
        self.addCleanup(end)
        wait_until(lambda: os.path.exists(os.path.join(self.runtime, "control.sock")) or process.poll() is not None,
                   "the daemon's socket")
        self.assertIsNone(process.poll())
        return process

    @staticmethod
    def being(user, group=GROUP, more=()):
        return {"user": user, "group": group, "extra_groups": list(more), "cwd": "/"}

    def member(self, user):
        """As a login is: a group of one's own, and this one beside it."""
        return self.being(user, user, [GROUP])

    def running(self, user, *options):
        process = self.start("run", *options, "--", "sh", "-c", "echo $$; exec sleep 1000", **self.member(user))
        process.command = int(process.stdout.readline())
        return process

    def test_members_share_the_boards_and_nobody_else_comes_in(self):
        self.daemon()
        anna = self.running(ANNA, "--priority", "low", "--name", "annas")
        bert = self.running(BERT, "--priority", "high", "--name", "berts")
        listed = self.call("ps", "--json", **self.member(BERT))
        status = json.loads(listed.stdout)
        self.assertEqual({job["name"]: job["user"] for job in status["jobs"]}, {"annas": str(ANNA), "berts": str(BERT)})
        self.assertEqual(status["daemon"]["group"], str(GROUP))
        table = self.call("ps", **self.member(ANNA)).stdout
        self.assertRegex(table.splitlines()[0], r"JOB +NAME +USER +PRIORITY")
        self.assertIn(str(BERT), table)
        boards = [name for name in os.listdir(self.runtime) if name.endswith(".board")]
        self.assertEqual(len(boards), 1)
        for name, mode in ((boards[0], 0o660), ("control.sock", 0o660), ("", 0o2770)):
            info = os.stat(os.path.join(self.runtime, name))
            self.assertEqual((stat.S_IMODE(info.st_mode), info.st_gid), (mode, GROUP), name)
        refused = self.call("ps", **self.being(STRANGER, OTHER_GROUP))
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"is for members of group {GROUP}", refused.stderr)
        self.assert_one_line(refused.stderr)
        for job in (anna, bert):
            job.send_signal(signal.SIGTERM)
            job.wait(support.DEADLINE_S)

    def test_a_stranger_runs_without_sluice(self):
        self.daemon()
        done = self.call("run", "--", "sh", "-c", "exit 4", **self.being(STRANGER, OTHER_GROUP))
        self.assertEqual(done.returncode, 4)
        self.assertIn("running without Sluice: ", done.stderr)

    def test_only_the_owner_and_root_stop_a_job(self):
        self.daemon()
        anna = self.running(ANNA)
        job = self.jobs()[0]["id"]
        refused = self.call("stop", str(job), **self.member(BERT))
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn(f"job {job} belongs to {ANNA}: only they and root may stop it", refused.stderr)
        self.assert_one_line(refused.stderr)
        self.assertEqual(self.call("stop", "--all", **self.member(BERT)).stdout, "no jobs\n")
        self.assertTrue(is_alive(anna.command))
        stopped = self.call("stop", str(job), **self.member(ANNA))
        self.assertEqual(stopped.returncode, 0, stopped.stdout + stopped.stderr)
        self.assertEqual(anna.wait(support.DEADLINE_S), 128 + signal.SIGTERM)
        other = self.running(BERT)
        self.assertEqual(self.call("stop", str(self.jobs()[0]["id"])).returncode, 0, "root may")
        other.wait(support.DEADLINE_S)

    def ask(self, user, message):
        """What the daemon answers to a message of that user's."""
        program = ("import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
                   "s.sendall(sys.argv[2].encode() + b'\\n')\nprint(s.makefile().readline())")
        done = subprocess.run(["python3", "-c", program, os.path.join(self.runtime, "control.sock"), json.dumps(message)],
                              capture_output=True, text=True, check=False, **self.member(user))
        return json.loads(done.stdout)

    def test_only_the_owner_and_root_change_a_priority_and_only_root_ends_the_daemon(self):
        daemon = self.daemon()
        anna = self.running(ANNA, "--priority", "low")
        job = self.jobs()[0]["id"]
        message = {"v": 1, "op": "set_priority", "job": job, "priority": 70}
        self.assertEqual(self.ask(BERT, message)["error"]["code"], "PERMISSION_DENIED")
        self.assertEqual(self.jobs()[0]["priority"], 0)
        self.assertNotIn("error", self.ask(ANNA, message))
        self.assertEqual(self.jobs()[0]["priority"], 70)
        self.assertEqual(self.ask(ANNA, {"v": 1, "op": "shutdown"})["error"]["code"], "PERMISSION_DENIED")
        self.assertIsNone(daemon.poll())
        anna.send_signal(signal.SIGTERM)
        anna.wait(support.DEADLINE_S)

    def test_without_a_daemon_a_member_starts_none_and_the_job_runs(self):
        daemon = self.daemon()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(support.DEADLINE_S)
        done = self.call("run", "--", "true", **self.member(ANNA))
        self.assertEqual(done.returncode, 0)
        self.assertIn("its administrator starts sluiced --group", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.runtime, "control.sock")))
        self.running(ANNA)
        listed = self.call("ps", **self.member(ANNA))
        self.assertEqual(listed.returncode, 1, "not 3: the device is there")
        self.assertIn("its administrator starts sluiced --group", listed.stderr)

    def test_another_members_socket_is_not_trusted(self):
        self.daemon().kill()
        path = os.path.join(self.runtime, "control.sock")
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as impostor:
            impostor.bind(path)
            impostor.listen()
            os.chown(path, BERT, GROUP)
            os.chmod(path, 0o660)
            child = os.fork()  # the kernel notes who called listen(), not whose the file is
            if child == 0:
                os.setgroups([GROUP])
                os.setgid(BERT)
                os.setuid(BERT)
                impostor.listen()
                signal.pause()
            self.addCleanup(lambda: (os.kill(child, signal.SIGKILL), os.waitpid(child, 0)))
            wait_until(lambda: "belongs to another user's process" in
                       self.call("ps", **self.member(ANNA)).stderr, "the refusal")

    def test_what_is_in_the_directorys_place(self):
        for make, expected in ((lambda: os.symlink("/tmp", self.runtime), "cannot open"),
                               (lambda: os.mkdir(self.runtime, 0o777), "is open to others"),
                               (lambda: os.mkdir(self.runtime, 0o700), "belongs to user")):
            make()
            if "open to" in expected:
                os.chmod(self.runtime, 0o777)
            if "belongs" in expected:
                os.chown(self.runtime, ANNA, ANNA)
            done = subprocess.run([str(support.BUILD / "bin/sluiced"), "--foreground", "--group", str(GROUP),
                                   "--runtime-dir", self.runtime], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(expected, done.stderr)
            os.unlink(self.runtime) if os.path.islink(self.runtime) else os.rmdir(self.runtime)

    def test_an_unknown_group(self):
        done = subprocess.run([str(support.BUILD / "bin/sluiced"), "--foreground", "--group", "no-such-group",
                               "--runtime-dir", self.runtime], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "sluiced: there is no group 'no-such-group'\n"))


class Unit(unittest.TestCase):
    def test_the_service_manager_accepts_it(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        source = os.path.join(os.path.dirname(__file__), "../../packaging/systemd/sluiced.service")
        with open(source, encoding="utf-8") as file:
            text = file.read()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sluiced.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"ExecStart=\S+", f"ExecStart={support.BUILD}/bin/sluiced", text))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path],
                                  capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


if __name__ == "__main__":
    support.main()
