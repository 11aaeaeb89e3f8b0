"""`sluice run --memory` and `--wait`, with programs that take memory of the (emulated) card by every road."""
import json
import os
import signal
import sys

import support
from support import CliTest, wait_until

MIB = 1 << 20
CARD = 6442450944  # bytes of the emulator's RTX 2060

# The driver by its name, as any program opens it. take(road, bytes) and give(road, what).
PROGRAM = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("meta", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8), ("rest", ctypes.c_ubyte * 64)]
class Array(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]
class Array3D(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
                ("format", ctypes.c_int), ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]
def must(code):
    if code != 0:
        sys.exit(f"CUDA error {code}")
must(cuda.cuInit(0))
context = ctypes.c_void_p()
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
on_device = Properties(type=1, location=Location(1, 0))
size = ctypes.c_size_t
def get_entry(name, version, flags):
    # As the runtime asks.
    out = ctypes.c_void_p()
    must(cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(out), version, ctypes.c_uint64(flags), None))
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, size, ctypes.c_void_p)(out.value)
pool = ctypes.c_void_p()
def take(road, n):
    out = ctypes.c_uint64()
    to = ctypes.byref(out)
    if road == "alloc":
        code = cuda.cuMemAlloc_v2(to, size(n))
    elif road == "pitch":
        code = cuda.cuMemAllocPitch_v2(to, ctypes.byref(size()), size(1024), size(n // 1024), 4)
    elif road == "managed":
        code = cuda.cuMemAllocManaged(to, size(n), 1)
    elif road == "async":
        code = cuda.cuMemAllocAsync(to, size(n), None)
    elif road == "async_ptsz":
        code = get_entry("cuMemAllocAsync", 12000, 2)(to, n, None)
    elif road == "pool":
        if not pool:
            must(cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(on_device)))
        code = cuda.cuMemAllocFromPoolAsync(to, size(n), pool, None)
    elif road == "create":
        code = cuda.cuMemCreate(to, size(n), ctypes.byref(on_device), ctypes.c_ulonglong(0))
    elif road == "array":
        code = cuda.cuArrayCreate_v2(to, ctypes.byref(Array(1024, n // 4096, 0x20, 1)))
    elif road == "mipmapped":
        code = cuda.cuMipmappedArrayCreate(to, ctypes.byref(Array3D(1024, n // 4096, 0, 0x20, 1, 0)), 1)
    return code, out.value
def give(road, what):
    what = ctypes.c_uint64(what)
    if road in ("async", "async_ptsz", "pool"):
        must(cuda.cuMemFreeAsync(what, None))
        must(cuda.cuStreamSynchronize(None))
    elif road == "create":
        must(cuda.cuMemRelease(what))
    elif road == "array":
        must(cuda.cuArrayDestroy(what))
    elif road == "mipmapped":
        must(cuda.cuMipmappedArrayDestroy(what))
    else:
        must(cuda.cuMemFree_v2(what))
def info():
    free, total, whole = size(), size(), size()
    must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    must(cuda.cuDeviceTotalMem_v2(ctypes.byref(whole), 0))
    return free.value, total.value, whole.value
MIB = 1 << 20
ROADS = ["alloc", "pitch", "managed", "async", "async_ptsz", "pool", "create", "array", "mipmapped"]
"""


class WithMemory(CliTest):
    def program(self, body):
        return [sys.executable, self.write("program.py", PROGRAM + body)]

    def job(self):
        jobs = self.jobs()
        return jobs[0] if jobs else {}


class Limits(WithMemory):
    def test_every_road_is_refused_and_given_back(self):
        done = self.call("run", "--memory", "64M", "--", *self.program("""
for road in ROADS:
    code, what = take(road, 48 * MIB)
    assert code == 0, (road, code)
    for other in ROADS:
        assert take(other, 32 * MIB)[0] == 2, (road, other)
    free, total, whole = info()
    assert (free, total, whole) == (16 * MIB, 64 * MIB, 64 * MIB), (road, free, total, whole)
    give(road, what)
    assert info()[0] == 64 * MIB, road
print("done")
"""))
        self.assertEqual(done.stdout, "done\n", done.stderr)
        self.assertRegex(done.stderr, r"81 allocations refused at its limit of 64 MiB")

    def test_a_part_of_the_card(self):
        done = self.call("run", "-m", "50%", "--", *self.program("print(info()[1])"))
        self.assertEqual(done.stdout, f"{CARD // 2}\n", done.stderr)

    def test_without_a_limit_nothing_changes(self):
        done = self.call("run", "--", *self.program(
            "print(info()[1], os.path.exists('/proc/self/maps'), take('alloc', 1 << 30)[0])"))
        self.assertEqual(done.stdout, f"{CARD} True 0\n", done.stderr)

    def test_the_message_says_once_who_holds_what(self):
        other = self.start("run", "-n", "neighbour", "--", *self.program("""
take("alloc", 100 * MIB)
print("taken", flush=True)
sys.stdin.read()
"""))
        self.assertEqual(other.stdout.readline(), "taken\n")
        done = self.call("run", "-n", "greedy", "--memory", "64MiB", "--", *self.program("""
take("alloc", 40 * MIB)
for _ in range(3):
    assert take("create", 32 * MIB)[0] == 2
"""))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("out of memory"), 1, done.stderr)
        self.assertRegex(done.stderr, r"out of memory: job 2 \(greedy\) asked for 32.00 MiB more, "
                                      r"beyond its limit of 64.00 MiB")
        self.assertRegex(done.stderr, r"job 1 \(neighbour\) holds 100.00 MiB")
        self.assertRegex(done.stderr, r"job 2 \(greedy\), this one, holds 40.00 MiB of its limit of 64.00 MiB")
        self.assertRegex(done.stderr, r"that Sluice does not manage, hold .*B; .* of 6.00 GiB are free")

    def test_a_full_card_is_reported_too(self):
        done = self.call("run", "-n", "huge", "--", *self.program("assert take('alloc', 1 << 40)[0] == 2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"out of memory: job 1 \(huge\) asked for 1.00 TiB more, which GPU-\S+ has not")

    def test_ps_shows_use_and_limit_of_all_processes_and_a_killed_one_leaves_nothing(self):
        holder = self.write("holder.py", PROGRAM + """
for road in ROADS:
    assert take(road, 4 * MIB)[0] == 0
print(os.getpid(), flush=True)
sys.stdin.read()
""")
        run = self.start("run", "--memory", "100MiB", "--", "sh", "-c",
                         f"exec 3<&0; {sys.executable} {holder} <&3 & {sys.executable} {holder} <&3 & wait")
        pids = [int(run.stdout.readline()), int(run.stdout.readline())]
        job = self.job()
        self.assertEqual(job["memory_allocated_bytes"], 2 * 9 * 4 * MIB)
        self.assertEqual(job["memory_limit_bytes"], 100 * MIB)
        self.assertIn("72 MiB of 100 MiB", self.call("ps").stdout)
        # A third would pass the limit with the two that are there.
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: self.job().get("memory_allocated_bytes") == 9 * 4 * MIB, "the killed one's memory is gone")
        os.kill(pids[1], signal.SIGKILL)
        run.wait(support.DEADLINE_S)
        self.assertEqual(self.jobs(), [])

    def test_processes_share_the_limit(self):
        child = self.write("child.py", PROGRAM + "print(take('alloc', 40 * MIB)[0], flush=True)\nsys.stdin.read()\n")
        done = self.call("run", "--memory", "100MiB", "--", *self.program(f"""
import subprocess
children = [subprocess.Popen([sys.executable, {child!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(4)]
print(sorted(c.stdout.readline().strip() for c in children))
children[0].kill()
children[0].wait()
for c in children:
    c.stdin.close()
    c.wait()
print(take("alloc", 100 * MIB)[0])
"""))
        self.assertEqual(done.stdout, "['0', '0', '2', '2']\n0\n", done.stderr)

    def test_nvml_agrees_with_the_driver(self):
        done = self.call("run", "--memory", "64MiB", "--", *self.program("""
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
must(nvml.nvmlInit_v2())
device = ctypes.c_void_p()
must(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
take("alloc", 10 * MIB)
one, two = Memory(), MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24)
must(nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(one)))
must(nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(two)))
name = ctypes.create_string_buffer(96)
must(nvml.nvmlDeviceGetName(device, name, 96))
print(one.total // MIB, one.free // MIB, one.used // MIB, two.total // MIB, two.reserved, two.free // MIB,
      two.used // MIB, info()[0] // MIB, name.value.decode())
print(nvml.nvmlDeviceGetFanSpeed(device, None) == 13, any("/limit/libnvidia-ml" in l for l in open("/proc/self/maps")))
"""))
        self.assertEqual(done.stdout.splitlines(), [
            "64 54 10 64 0 54 10 54 NVIDIA GeForce RTX 2060 (emulated)", "True True"], done.stderr)


class Waiting(WithMemory):
    HOLDER = """
assert take("alloc", int(info()[1] * 0.9))[0] == 0
print("running", flush=True)
sys.stdin.read()
"""

    def test_the_second_starts_after_the_first_and_in_order(self):
        runs = []
        for name in ("first", "second", "third"):
            if runs:
                wait_until(lambda: len(self.jobs()) == len(runs), "the one before has its place")
            runs.append(self.start("run", "-n", name, "--memory", "60%", "--wait", "--", *self.program(self.HOLDER)))
        self.assertEqual(runs[0].stdout.readline(), "running\n")
        line = runs[1].stderr.readline()
        self.assertRegex(line, r"sluice: job 2 waits for 3.60 GiB of GPU 0 \(.*\): .* are free")
        self.assertIn("others wait longer", runs[2].stderr.readline())
        self.assertEqual([job["state"] for job in self.jobs()][1:], ["waiting", "waiting"])
        for at in (0, 1):
            runs[at].stdin.close()
            self.assertEqual(runs[at].wait(support.DEADLINE_S), 0)
            self.assertEqual(runs[at + 1].stdout.readline(), "running\n")
        runs[2].stdin.close()
        self.assertEqual(runs[2].wait(support.DEADLINE_S), 0)
        self.assertRegex(runs[1].stderr.read(), r"job 2 starts after waiting .*s\n")

    def test_what_a_running_job_may_still_take_is_not_free(self):
        first = self.start("run", "--memory", "60%", "--", "sh", "-c", "echo running; read x")
        self.assertEqual(first.stdout.readline(), "running\n")
        second = self.start("run", "--json", "--memory", "60%", "--wait", "--", "true")
        waiting = json.loads(second.stderr.readline())
        self.assertEqual((waiting["event"], waiting["id"]), ("waiting", 2))
        need = waiting["needs"][0]
        self.assertEqual(need["promised_bytes"], CARD * 6 // 10)
        self.assertEqual(need["free_bytes"], CARD)
        first.stdin.close()
        self.assertEqual(json.loads(second.stderr.readline())["event"], "started")
        ended = json.loads(second.stderr.readline())
        self.assertEqual(ended["event"], "ended")
        self.assertGreater(ended["outcome"]["waited_us"], 0)
        self.assertEqual(ended["outcome"]["memory_limit_bytes"], CARD * 6 // 10)
        self.assertEqual(second.wait(support.DEADLINE_S), 0)

    def test_a_wait_ends_with_a_signal_and_lets_the_next_one_pass(self):
        first = self.start("run", "--memory", "80%", "--", "sh", "-c", "echo running; read x")
        self.assertEqual(first.stdout.readline(), "running\n")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            waiter = self.start("run", "--memory", "50%", "--wait", "--", "echo", "started")
            self.assertIn("waits for", waiter.stderr.readline())
            waiter.send_signal(number)
            code = waiter.wait(support.DEADLINE_S)
            self.assertEqual(code, -number if number == signal.SIGKILL else 128 + number)
            self.assertEqual(waiter.stdout.read(), "")
        # Smaller, and nobody who is alive was there before.
        done = self.call("run", "--memory", "10%", "--wait", "--", "echo", "started")
        self.assertEqual(done.stdout, "started\n", done.stderr)

    def test_a_job_file(self):
        path = self.write("jobs.toml", """
[[job]]
name = "one"
command = ["sh", "-c", "echo one"]
memory = "70%"
wait = true
[[job]]
name = "two"
command = ["sh", "-c", "echo two"]
memory = "4GiB"
wait = true
""")
        done = self.call("run", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "one\ntwo\n")

    def test_what_can_never_be_met_is_refused(self):
        done = self.call("run", "--memory", "100GiB", "--wait", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("would wait for ever", done.stderr)
        for words in (["--wait"], ["--memory", "much"], ["--memory", "0"], ["--memory", "120%"]):
            self.assertEqual(self.call("run", *words, "--", "true").returncode, 2, words)


if __name__ == "__main__":
    support.main()
