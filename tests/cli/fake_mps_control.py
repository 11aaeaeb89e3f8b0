#!/usr/bin/env python3
"""Stands for nvidia-cuda-mps-control in tests: a daemon without a GPU, known by its pipe directory, as NVIDIA's is.

Its clients are the live processes that name it in their environment and have a driver loaded, or have put a file with
their number into the folder `clients` of the pipe directory. Its one server is the daemon itself, or the process in MPS_FAKE_SERVER. What it is told goes to MPS_FAKE_LOG,
a line of JSON each. MPS_FAKE_FAILS makes -d fail with that text.
"""
import json
import os
import shutil
import signal
import sys


def machine_with_mps(build, folder):
    """Environment of a machine with this control program, whose log is FOLDER/log, and with a driver that does not say
    that it is the emulator: the emulator's, its mark removed."""
    emulator = os.path.join(build, "lib", "sluice", "emulator")
    programs, drivers = os.path.join(folder, "bin"), os.path.join(folder, "driver")
    os.mkdir(programs)
    os.mkdir(drivers)
    os.symlink(os.path.abspath(__file__), os.path.join(programs, "nvidia-cuda-mps-control"))
    with open(os.path.join(emulator, "libcuda.so.1"), "rb") as file:
        driver = file.read().replace(b"sluice_emulator_version", b"sluice_somebody_version")
    with open(os.path.join(drivers, "libcuda.so.1"), "wb") as file:
        file.write(driver)
    return {"PATH": programs + ":" + os.environ["PATH"], "SLUICE_DRIVER": os.path.join(drivers, "libcuda.so.1"),
            "SLUICE_NVML": os.path.join(emulator, "libnvidia-ml.so.1"), "MPS_FAKE_LOG": os.path.join(folder, "log")}


def told(folder):
    """What the control program was told, in order."""
    try:
        with open(os.path.join(folder, "log"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


PIPE = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
CONTROL = os.path.join(PIPE, "control")
CLIENTS = os.path.join(PIPE, "clients")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def record(**told):
    if "MPS_FAKE_LOG" in os.environ:
        told["environment"] = {name: value for name, value in os.environ.items() if name.startswith(("CUDA_", "LD_"))}
        with open(os.environ["MPS_FAKE_LOG"], "a", encoding="utf-8") as file:
            file.write(json.dumps({"pipe": PIPE, **told}) + "\n")


def daemon():
    try:
        with open(CONTROL, encoding="utf-8") as file:
            pid = int(file.read())
        return pid if is_alive(pid) else None
    except (OSError, ValueError):
        return None


def has_driver(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read().split(b"\0")
        with open(f"/proc/{pid}/maps", "rb") as file:
            return f"CUDA_MPS_PIPE_DIRECTORY={PIPE}".encode() in environment and b"/libcuda.so.1" in file.read()
    except OSError:
        return False


def clients():
    told_so = {int(name) for name in os.listdir(CLIENTS)}
    return [pid for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))
            if is_alive(pid) and (pid in told_so or has_driver(pid))]


def start():
    record(command="-d")
    if "MPS_FAKE_FAILS" in os.environ:
        print(os.environ["MPS_FAKE_FAILS"])
        return 1
    if daemon():
        print("An instance of this daemon is already running")
        return 1
    os.makedirs(CLIENTS, exist_ok=True)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        with open(CONTROL + ".new", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.rename(CONTROL + ".new", CONTROL)
        os.close(reader)
        os.close(writer)
        while True:
            signal.pause()
    os.close(writer)
    os.read(reader, 1)  # until it is known
    return 0


def answer(words):
    server = int(os.environ.get("MPS_FAKE_SERVER", daemon()))
    if words[0] == "get_server_list":
        if clients() or "MPS_FAKE_SERVER" in os.environ:
            print(server)
    elif words[0] == "get_client_list":
        print("\n".join(map(str, clients())))
    elif words[0] == "terminate_client":
        record(command=words[0], server=int(words[1]), client=int(words[2]), alive=is_alive(int(words[2])))
    elif words[0] == "quit":
        record(command="quit", clients=clients())
        os.kill(daemon(), signal.SIGKILL)
        os.unlink(CONTROL)
        shutil.rmtree(CLIENTS)


def main():
    if sys.argv[1:] == ["-d"]:
        return start()
    if not daemon():
        print("Cannot find MPS control daemon process")
        return 1
    for line in sys.stdin:
        if line.split():
            answer(line.split())
    return 0


if __name__ == "__main__":
    sys.exit(main())
