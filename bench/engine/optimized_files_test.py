#!/usr/bin/env python3
"""Files that `sluice optimize` writes: ONNX's checker and ONNX Runtime take them, and they compute what the model did.

    optimized_files_test.py SLUICE      the program; the models are those of the installed packages

Skipped (77) where the Python packages are not there; bench/engine/setup installs them.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import onnx
    import onnxruntime

    import package_models
    import ratios
    from models import inputs
except ImportError as error:
    print(f"optimized_files_test: skipped, {error}; bench/engine/setup installs what is needed", file=sys.stderr)
    sys.exit(77)

# silero_vad: control flow that depends on an input is refused.
PACKAGED = ("ppocr_det", "ppocr_rec", "ppocr_cls", "magika")
MOST_ERROR = {"fp32": 1e-5, "fp16": 2e-2}
SLUICE = ""


def run(path, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def interface(model):
    """Names, types and dims of inputs and outputs, and the opset: what must not change."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return ([value.SerializeToString() for value in model.graph.input if value.name not in weights],
            [(value.name, value.type.tensor_type.elem_type) for value in model.graph.output],
            [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")],
            {entry.key: entry.value for entry in model.metadata_props})


class OptimizedFiles(unittest.TestCase):
    def check(self, name, path, *arguments):
        feeds = inputs.make(name, 1)
        expected, before = run(path, feeds), onnx.load(path)
        for value in before.graph.input:
            value.ClearField("doc_string")  # not carried over
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_value < 0:  # an open dimension, as PaddlePaddle writes it
                    dim.ClearField("dim_value")
        for precision, most in MOST_ERROR.items():
            with self.subTest(model=name, precision=precision), tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "out.onnx"
                subprocess.run([SLUICE, "optimize", path, "-o", out, "--precision", precision, *arguments], check=True,
                               stdout=subprocess.DEVNULL)
                onnx.checker.check_model(str(out))
                after = onnx.load(out)
                self.assertEqual(interface(before), interface(after))
                self.assertLessEqual(len(after.graph.node) - count(after, "Cast"), len(before.graph.node))
                self.assertLess(ratios.largest_error(run(out, feeds), expected), most)

    def test_models_of_packages(self):
        for name in PACKAGED:
            self.check(name, package_models.find(name))

    def test_external_data(self):
        self.check("ppocr_cls", package_models.find("ppocr_cls"), "--external-data")


def count(model, op):
    return sum(node.op_type == op for node in model.graph.node)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    SLUICE = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
