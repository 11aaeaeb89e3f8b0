"""sluice optimize, end to end; what it writes is read by sluice infer."""
import json
import os

import support
import tiny_onnx
from support import CliTest

KEYS = ["bytes_after", "bytes_before", "external_data", "file_bytes", "fp16_operators", "fp32_operators", "model",
        "operators_after", "operators_before", "opset", "out", "passes", "precision"]


class OptimizeTest(CliTest):
    def setUp(self):
        super().setUp()
        self.model = self.path("model.onnx")
        self.out = self.path("out.onnx")
        with open(self.model, "wb") as file:
            file.write(tiny_onnx.classifier())

    def path(self, name):
        return os.path.join(self.folder, name)

    def optimize(self, *args):
        done = self.call("optimize", self.model, "-o", self.out, "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def logits(self, model, *args):
        done = self.call("infer", model, "--random", "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["outputs"][0]

    def test_folds_and_computes_the_same(self):
        report = self.optimize()
        self.assertEqual(sorted(report), KEYS)
        self.assertEqual((report["operators_before"], report["operators_after"]), (6, 5), "the normalisation is folded")
        self.assertEqual(report["opset"], 13)
        self.assertEqual(report["file_bytes"], os.path.getsize(self.out))
        self.assertIn("batch_norm", [p["name"] for p in report["passes"] if p["changes"]])
        for batch in ("1", "3"):
            a, b = self.logits(self.model, "--batch", batch), self.logits(self.out, "--batch", batch)
            self.assertEqual(a["shape"], b["shape"])
            for x, y in zip(a["first"], b["first"]):
                self.assertAlmostEqual(x, y, places=5)

    def test_fp16_is_close_and_smaller(self):
        report = self.optimize("--precision", "fp16", "--fp32-weights", "0")
        self.assertLess(report["bytes_after"], report["bytes_before"])
        self.assertGreater(report["fp16_operators"], 0)
        for x, y in zip(self.logits(self.model)["first"], self.logits(self.out)["first"]):
            self.assertAlmostEqual(x, y, delta=0.01)

    def test_the_batch_can_be_fixed(self):
        for args in (["--batch", "2"], ["--dim", "N=2"]):
            self.optimize(*args)
            self.assertEqual(self.logits(self.out)["shape"], [2, 2])
            done = self.call("infer", self.out, "--random", "--shape", "pixels=3x3x8x8")
            self.assertEqual(done.returncode, 2, done.stdout)

    def test_weights_can_lie_beside(self):
        report = self.optimize("--external-data")
        self.assertTrue(os.path.exists(self.path(report["external_data"])))
        self.assertEqual(self.logits(self.out)["shape"], [1, 2])

    def test_text(self):
        done = self.call("optimize", self.model, "-o", self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("operators  6 -> 5", done.stdout)
        self.assertIn(self.out, done.stdout)

    def test_bad_input(self):
        strange = self.path("strange.onnx")
        with open(strange, "wb") as file:
            file.write(tiny_onnx.unknown_operator())
        out = ["-o", self.out]
        for args, expected in (
                ([], "no model"),
                ([self.model], "add -o OUT.onnx"),
                ([self.path("none.onnx"), *out], "none.onnx"),
                ([strange, *out], "Sparkle"),
                ([self.model, "-o", self.path("no/out.onnx")], "no/out.onnx"),
                ([self.model, *out, "--precision", "int8"], "no precision 'int8'"),
                ([self.model, *out, "--dim", "M=2"], "M"),
                ([self.model, *out, "--passes-off", "magic"], "no pass 'magic'")):
            done = self.call("optimize", *args)
            self.assertEqual(done.returncode, 2, f"{args}: {done.stderr}")
            self.assertIn(expected, done.stderr)
            self.assert_one_line(done.stderr)
            self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    support.main()
