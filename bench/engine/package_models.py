#!/usr/bin/env python3
"""Where the models lie that PyPI packages carry. As a program: prints "name<TAB>path", one model a line."""

import importlib.util
import pathlib
import sys

# model name -> (package to import, file inside it). Globs, since file names carry the model's version.
PACKAGE_MODELS = {
    "ppocr_det": ("rapidocr_onnxruntime", "models/*det*.onnx"),
    "ppocr_rec": ("rapidocr_onnxruntime", "models/*rec*.onnx"),
    "ppocr_cls": ("rapidocr_onnxruntime", "models/*cls*.onnx"),
    "magika": ("magika", "models/*/model.onnx"),
    "silero_vad": ("silero_vad", "data/silero_vad.onnx"),
}


def find(name):
    """The path of a model of PACKAGE_MODELS, or FileNotFoundError that says what to do."""
    package, pattern = PACKAGE_MODELS[name]
    spec = importlib.util.find_spec(package)
    for directory in spec.submodule_search_locations if spec else ():
        found = sorted(pathlib.Path(directory).glob(pattern))
        if found:
            return found[-1]
    raise FileNotFoundError(f"no model {name}: package {package} holds no {pattern}; run bench/engine/setup")


def main():
    missing = 0
    for name in PACKAGE_MODELS:
        try:
            print(f"{name}\t{find(name)}")
        except FileNotFoundError as error:
            print(f"package_models: {error}", file=sys.stderr)
            missing = 1
    return missing


if __name__ == "__main__":
    sys.exit(main())
