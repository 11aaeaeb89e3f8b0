"""sluiced --metrics: what Prometheus reads, the page in a browser, and who may read it."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import unittest

import support
from support import BUILD, CliTest, wait_until

PROGRAM = str(BUILD / "bin" / "example_throughput")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LINE = re.compile(r'^[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)*\})? [-+0-9.eE]+$')


class Metrics(CliTest):
    def setUp(self):
        super().setUp()
        # Before the first job the daemon cannot know that the cards are the emulator's.
        self.env["SLUICE_NVML"] = str(BUILD / "lib" / "sluice" / "emulator" / "libnvidia-ml.so.1")

    def daemon(self, *args, code=0):
        done = subprocess.run([str(BUILD / "bin" / "sluiced"), *args], env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=support.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def serve(self):
        said = self.daemon("--metrics", "127.0.0.1:0").stdout
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)[1])

    def get(self, path, method="GET", host=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=support.DEADLINE_S)
        self.addCleanup(connection.close)
        connection.request(method, path, headers={"Host": host} if host else {})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()

    def test_jobs_and_cards_are_told(self):
        self.serve()
        self.start("run", "--priority", "high", "--name", 'a "job"', "--", PROGRAM, "--seconds", "600")
        wait_until(lambda: 'sluice_job_priority{job="1",name="a \\"job\\""} 100\n' in self.get("/metrics")[1], "the job is told")
        status, text = self.get("/metrics")
        self.assertEqual(status, 200)
        for line in text.splitlines():
            self.assertTrue(line.startswith("# ") or LINE.match(line), line)
        self.assertIn("sluice_gpu_simulated{", text)
        status = json.loads(self.get("/status.json")[1])
        self.assertEqual(status["jobs"][0]["name"], 'a "job"')
        self.assertEqual(self.get("/metrics", method="HEAD"), (200, ""))

    def test_only_who_asks_properly_is_answered(self):
        self.serve()
        self.assertEqual(self.get("/elsewhere")[0], 404)
        self.assertEqual(self.get("/../../etc/passwd")[0], 404)
        self.assertEqual(self.get("/metrics", method="DELETE")[0], 405)
        for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:1", 200), ("evil.example", 403), ("10.0.0.1", 403)):
            self.assertEqual(self.get("/status.json", host=host)[0], status, host)
        with socket.create_connection(("127.0.0.1", self.port), timeout=support.DEADLINE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")
            try:
                self.assertEqual(client.recv(1), b"")
            except ConnectionResetError:
                pass
        self.assertEqual(self.get("/metrics")[0], 200)

    def test_it_stays_and_is_found_again_and_refuses_what_is_not_meant(self):
        for address, words in (("nonsense", "no address and port"), ("127.0.0.1:99999", "no address and port"),
                               ("0.0.0.0:0", "--metrics-allow-remote"), ("[::]:0", "--metrics-allow-remote")):
            self.assertIn(words, self.daemon("--metrics", address, code=2).stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assertIn("in use", self.daemon("--foreground", "--metrics", address, code=1).stderr)
        self.call("run", "--", "true")  # starts a daemon without metrics
        self.assertIn("end it first", self.daemon("--metrics", "127.0.0.1:0", code=1).stderr)
        self.end_daemon()
        wait_until(lambda: not os.path.exists(os.path.join(self.runtime, "control.sock")), "the daemon is gone")
        self.serve()
        self.assertIn(str(self.port), self.daemon("--metrics", f"127.0.0.1:{self.port}").stdout)
        self.call("run", "--", "true")
        self.assertEqual(self.get("/metrics")[0], 200)

    @unittest.skipIf(BROWSER is None, "no Chromium here")
    def test_the_page_in_a_browser(self):
        self.serve()
        self.start("run", "--name", "<i>name</i>", "--", PROGRAM, "--seconds", "600")
        wait_until(lambda: self.jobs() and self.jobs()[0]["launches"], "the job launches")
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               f"--user-data-dir={self.folder}/browser", "--virtual-time-budget=8000", "--dump-dom",
                               f"http://127.0.0.1:{self.port}/"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=4 * support.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for part in ("GPU 0 NVIDIA GeForce RTX 2060", "simulated", "&lt;i&gt;name&lt;/i&gt;", "Jobs: 1"):
            self.assertIn(part, done.stdout)
        self.assertRegex(done.stdout, r'<path d="M\d+ [\d.]+L')  # some samples, joined
        self.assertIn('<div id="state" role="status" class="soft"></div>', done.stdout)
        self.assertNotRegex(done.stdout, r'(src|href)="(https?:)?//')


if __name__ == "__main__":
    support.main()
