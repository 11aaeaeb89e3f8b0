"""sluice infer, end to end."""
import json
import os
import struct
import zipfile
import zlib

import npy_files
import support
import tiny_onnx
from support import CliTest

BENCH_KEYS = ["batch", "device", "latency_us", "model", "operators_after", "operators_before", "peak_memory_bytes",
              "precision", "threads", "throughput_per_s"]


class InferTest(CliTest):
    def setUp(self):
        super().setUp()
        self.perceptron = self.put("perceptron.onnx", tiny_onnx.perceptron())
        self.classifier = self.put("classifier.onnx", tiny_onnx.classifier())
        self.pair = self.put("pair.onnx", tiny_onnx.two_inputs())
        self.x = self.path("x.npy")
        npy_files.write(self.x, [1, 3], [1, 2, 3])

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def infer(self, *args):
        done = self.call("infer", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def infer_json(self, *args):
        return json.loads(self.infer(*args, "--json"))


class Running(InferTest):
    def test_a_table_of_the_outputs(self):
        lines = self.infer(self.perceptron, "--input", f"x={self.x}").splitlines()
        self.assertEqual(lines[0].split(), ["OUTPUT", "TYPE", "SHAPE", "MIN", "MEAN", "MAX", "FIRST"])
        self.assertEqual(lines[1].split(), ["y", "float", "1x2", "0", "7.25", "14.5", "14.5", "0"])
        self.assertEqual(len(lines), 2)

    def test_json(self):
        report = self.infer_json(self.perceptron, "-i", self.x)
        self.assertEqual(report["outputs"], [{"name": "y", "dtype": "float", "shape": [1, 2], "min": 0, "mean": 7.25,
                                              "max": 14.5, "first": [14.5, 0]}])
        self.assertEqual((report["device"], report["precision"], report["batch"]), ("cpu", "fp32", 1))
        self.assertEqual(report["operators_before"], 3)

    def test_outputs_go_to_files(self):
        y, everything = self.path("y.npy"), self.path("all.npz")
        self.infer(self.perceptron, "-i", self.x, "--output", f"y={y}", "--outputs", everything)
        self.assertEqual(npy_files.read(y), ((1, 2), [14.5, 0.0]))
        with zipfile.ZipFile(everything) as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.namelist(), ["y.npy"])
            self.assertEqual(npy_files.parse(archive.read("y.npy")), ((1, 2), [14.5, 0.0]))

    def test_an_archive_gives_all_inputs(self):
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            for name, values in (("a", [1, 2, 3, 4]), ("b", [10, 20, 30, 40])):
                npy_files.write(self.path(name + ".npy"), [2, 2], values)
            with zipfile.ZipFile(self.path("in.npz"), "w", method) as archive:
                for name in ("a", "b"):
                    archive.write(self.path(name + ".npy"), name + ".npy")
            outputs = self.infer_json(self.pair, "-i", self.path("in.npz"))["outputs"]
            self.assertEqual([o["first"] for o in outputs], [[11, 22, 33, 44], [1, 2, 3, 4]])

    def test_a_sample_is_repeated_to_the_batch(self):
        report = self.infer_json(self.perceptron, "-i", self.x, "--batch", "3")
        self.assertEqual((report["batch"], report["outputs"][0]["shape"]), (3, [3, 2]))
        self.assertEqual(report["outputs"][0]["first"], [14.5, 0, 14.5, 0, 14.5])

    def test_random_inputs_follow_the_seed(self):
        def draw(*args):
            return self.infer_json(self.classifier, "--random", *args)["outputs"]
        self.assertEqual(draw(), draw("--seed", "0"))
        self.assertNotEqual(draw(), draw("--seed", "1"))
        self.assertEqual(draw("--batch", "4")[0]["shape"], [4, 2])

    def test_open_dimensions_take_numbers(self):
        for args in (["--dim", "length=7"], ["--shape", "a=2x7", "--shape", "b=2,7"]):
            outputs = self.infer_json(self.pair, "--random", *args)["outputs"]
            self.assertEqual([o["shape"] for o in outputs], [[2, 7], [2, 7]])

    def test_an_image_becomes_an_input(self):
        rows = b"".join(b"\0" + bytes([255, 0, 128] * 4) for _ in range(4))

        def chunk(kind, body):
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        image = self.put("image.png", b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 4, 4, 8, 2, 0, 0, 0)) +
                         chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        # All pixels alike, so that the size does not matter: the same values from a file.
        values = [channel for channel in (1.0, 0.0, 128 / 255) for _ in range(64)]
        npy_files.write(self.path("pixels.npy"), [1, 3, 8, 8], values)
        shown = self.infer_json(self.classifier, "-i", image)["outputs"][0]["first"]
        for a, b in zip(shown, self.infer_json(self.classifier, "-i", self.path("pixels.npy"))["outputs"][0]["first"]):
            self.assertAlmostEqual(a, b, places=5)
        swapped = self.infer_json(self.classifier, "-i", image, "--order", "bgr", "--mean", "0.5", "--std", "0.5,0.5,1")
        self.assertNotEqual(shown, swapped["outputs"][0]["first"])

    def test_fp16_and_single_passes(self):
        plain = self.infer_json(self.classifier, "--random")["outputs"][0]["first"]
        for args in (["--precision", "fp16"], ["--passes-off", "all"], ["--passes-off", "dead_code,constant_folding"]):
            for a, b in zip(plain, self.infer_json(self.classifier, "--random", *args)["outputs"][0]["first"]):
                self.assertAlmostEqual(a, b, delta=0.01)

    def test_passes_print_what_they_did(self):
        done = self.call("infer", self.classifier, "--random", "--print-passes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--- before ", done.stderr)
        self.assertIn("BatchNormalization", done.stderr)
        self.assertTrue(done.stdout.startswith("OUTPUT"))


class Measuring(InferTest):
    def test_bench_has_the_documented_keys(self):
        report = self.infer_json(self.classifier, "--random", "--bench", "--seconds", "0.05", "--batch", "2", "--threads", "1")
        self.assertEqual(sorted(report), BENCH_KEYS)
        self.assertEqual((report["model"], report["device"], report["precision"]), (self.classifier, "cpu", "fp32"))
        self.assertEqual((report["batch"], report["threads"], report["operators_before"]), (2, 1, 6))
        self.assertEqual(sorted(report["latency_us"]), ["p50", "p99"])
        self.assertLessEqual(report["latency_us"]["p50"], report["latency_us"]["p99"])
        self.assertGreater(report["throughput_per_s"], 0)
        self.assertGreater(report["peak_memory_bytes"], 0)
        self.assertLessEqual(report["operators_after"], 6)
        text = self.infer(self.classifier, "--random", "--bench", "--seconds", "0.05")
        self.assertIn("samples/s", text)

    def test_profile_has_a_row_for_each_step(self):
        html, beside = self.path("p.html"), self.path("p.json")
        self.assertIn("p.json", self.infer(self.classifier, "--random", "--profile", html, "--seconds", "0.05"))
        with open(beside, encoding="utf-8") as file:
            profile = json.load(file)
        self.assertAlmostEqual(sum(step["share_ratio"] for step in profile["steps"]), 1, places=6)
        for key in ("name", "op", "kernel", "outputs", "mean_us"):
            self.assertIn(key, profile["steps"][0])
        with open(html, encoding="utf-8") as file:
            text = file.read()
        for step in profile["steps"]:
            self.assertIn(step["kernel"], text)
        self.assertEqual(text.count("<tr><td class=\"n\">"), len(profile["steps"]))

    def test_check_agrees_with_the_reference(self):
        report = self.infer_json(self.classifier, "--random", "--check")
        self.assertTrue(report["ok"])
        self.assertIsNone(report["drift"])
        self.assertGreaterEqual(report["compared"], 1)
        self.assertLess(report["worst"]["error"], 1e-4)
        self.assertIn("tensors compared", self.infer(self.classifier, "--random", "--check"))

    def test_check_names_the_first_node_that_drifts(self):
        args = ["infer", self.classifier, "--random", "--check", "--precision", "fp16", "--tolerance", "1e-9"]
        done = self.call(*args)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"^drift at step \d+, \S+ '.*': the relative error of '\w+' is ")
        done = self.call(*args, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        report = json.loads(done.stdout)
        self.assertFalse(report["ok"])
        self.assertGreater(report["drift"]["error"], 1e-9)


class BadInput(InferTest):
    def test_one_clear_line_and_the_documented_code(self):
        strange = self.put("strange.onnx", tiny_onnx.unknown_operator())
        cut = self.put("cut.onnx", tiny_onnx.classifier()[:200])
        npy_files.write(self.path("wide.npy"), [1, 4], [1, 2, 3, 4])
        npy_files.write(self.path("bytes.npy"), [1, 3], [1, 2, 3], "|u1")
        self.put("text.npy", b"text")
        x = ["-i", self.x]
        for args, code, expected in (
                ([], 2, "no model"),
                ([self.path("none.onnx")], 2, "none.onnx"),
                ([cut], 2, "cut.onnx"),
                ([self.put("empty.onnx", b"")], 2, "empty.onnx"),
                ([strange, "--random"], 2, "Sparkle"),
                ([self.perceptron], 2, "no value for input 'x' (float Nx3); add --input or --random"),
                ([self.perceptron, "-i", "z=" + self.x], 2, "no input 'z'"),
                ([self.perceptron, "-i", self.path("none.npy")], 2, "none.npy: No such file"),
                ([self.perceptron, "-i", self.path("text.npy")], 2, "text.npy: no .npy file"),
                ([self.perceptron, "-i", self.path("wide.npy")], 2, "input 'x' has the shape"),
                ([self.perceptron, "-i", self.path("bytes.npy")], 2, "input 'x' is float, not uint8"),
                ([self.pair, "-i", self.x], 2, "say which one"),
                ([self.pair, "--random"], 2, "use --dim length=N"),
                ([self.perceptron, *x, "--device", "cuda"], 3, "there is no device 'cuda'"),
                ([self.perceptron, *x, "--precision", "fp8"], 2, "no precision 'fp8'"),
                ([self.perceptron, *x, "--threads", "-1"], 2, "-1 threads"),
                ([self.perceptron, *x, "--batch", "0"], 2, "--batch"),
                ([self.perceptron, *x, "--dim", "N"], 2, "write NAME=VALUE"),
                ([self.perceptron, *x, "--shape", "x=wide"], 2, "gives no shape"),
                ([self.perceptron, *x, "--resize", "10"], 2, "HEIGHTxWIDTH"),
                ([self.perceptron, *x, "--layout", "chw"], 2, "no layout 'chw'"),
                ([self.perceptron, *x, "--std", "0"], 2, "--std is 0"),
                ([self.perceptron, *x, "--passes-off", "magic"], 2, "no pass 'magic'"),
                ([self.perceptron, *x, "--bench", "--check"], 2, "one at a time"),
                ([self.perceptron, *x, "--output", "z=" + self.path("z.npy")], 2, "no output 'z'"),
                ([self.perceptron, *x, "--outputs", self.path("no/z.npz")], 2, "cannot write"),
                ([self.perceptron, *x, "--bnech"], 2, "did you mean --bench?"),
                ([self.perceptron, self.x], 2, "unexpected argument")):
            done = self.call("infer", *args)
            self.assertEqual(done.returncode, code, f"{args}: {done.stderr}")
            self.assertIn(expected, done.stderr)
            self.assert_one_line(done.stderr)
            self.assertEqual(done.stdout, "")

    def test_output_that_cannot_be_printed_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = self.call("infer", self.perceptron, "-i", self.x, stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr)


if __name__ == "__main__":
    support.main()
