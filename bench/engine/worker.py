"""One engine with one model in a process of its own, obeying lines of JSON on standard input; compare.py starts it.

It answers each line with one line, {"error": text} where the work failed. Between turns it blocks on the pipe.
"""

import json
import os
import sys
import time

import numpy as np

from models import inputs


def status_bytes(key):
    """A memory figure of this process in bytes: VmRSS (resident now) or VmHWM (the most it ever was)."""
    with open("/proc/self/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


class OnnxRuntime:
    """ONNX Runtime as it is by default but for the threads, with inputs and outputs bound so that nothing is copied."""

    def __init__(self, threads):
        import onnxruntime
        self._ort, self._threads = onnxruntime, threads

    def version(self):
        return self._ort.__version__

    def load(self, path, feeds):
        options = self._ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.log_severity_level = 3
        self._session = self._ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        for name, array in feeds.items():
            self._binding.bind_cpu_input(name, array)
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name)

    def run(self):
        self._session.run_with_iobinding(self._binding)

    def outputs(self):
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._binding.copy_outputs_to_cpu()))


class Sluice:
    def __init__(self, threads, library, precision="fp32"):
        import sluice_c
        self._library, self._threads, self._precision = sluice_c.Library(library), threads, precision

    def version(self):
        return self._library.version()

    def load(self, path, feeds):
        self._session = self._library.session(path, self._threads, self._precision)
        self._session.bind(feeds)

    def run(self):
        self._session.run()

    def outputs(self):
        return self._session.outputs()


def load(engine, order):
    """Loads, runs once, and says what that took. Memory is counted from here on, with the inputs already there."""
    feeds = inputs.make(order["name"], order["batch"])
    before = status_bytes("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # sets VmHWM back to what is resident now
    start = time.perf_counter()
    engine.load(order["path"], feeds)
    loaded = time.perf_counter()
    engine.run()
    return before, {"load_s": loaded - start, "first_run_s": time.perf_counter() - loaded, "version": engine.version()}


def block(engine, order):
    """Runs untimed for a while, then timed; both bounded by seconds and by a smallest count."""
    seconds = []
    for limit, count, keep in ((order["warm_s"], 1, False), (order["seconds"], order["count"], True)):
        begin = time.perf_counter()
        done = 0
        while done < count or time.perf_counter() - begin < limit:
            start = time.perf_counter()
            engine.run()
            if keep:
                seconds.append(time.perf_counter() - start)
            done += 1
    return {"latency_s": seconds}


def main():
    settings = json.loads(sys.argv[1])
    # Libraries that print go to standard error; standard output carries answers only.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if settings["engine"] == "onnxruntime":
        engine = OnnxRuntime(settings["threads"])
    else:
        engine = Sluice(settings["threads"], settings["library"])
    before = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "load":
                before, answer = load(engine, order)
            elif order["do"] == "block":
                answer = block(engine, order)
            elif order["do"] == "memory":
                answer = {"peak_bytes": status_bytes("VmHWM") - before, "after_bytes": status_bytes("VmRSS") - before}
            else:
                np.savez(order["file"], **{f"output:{name}": array for name, array in engine.outputs().items()})
                answer = {}
        except Exception as error:  # whatever failed, the other side has to learn of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
