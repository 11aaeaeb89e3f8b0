#!/usr/bin/env python3
"""Writes the networks that the engine is measured with as ONNX files, with seeded random weights.

    .deps/venv/bin/python bench/engine/export_models.py --out out/models [--only NAME]...

Built node by node as exporters write them, since the weights of the real ones are not to be had from a package. Each
network has as many parameters as its authors count, which is checked. The same seed gives the same file.
"""

import argparse
import pathlib
import sys

import onnx

from models import convolutional, transformers, yolo

# name -> (builder, parameters as published). Sources: torchvision's table of weights for the first three, Ultralytics'
# model summary, torchvision's table for ViT_B_16, Hugging Face's bert-base-uncased with its pooler.
MODELS = {
    "resnet50": (lambda: convolutional.resnet50(13), 25_557_032),
    "resnet50_opset9": (lambda: convolutional.resnet50(9), 25_557_032),
    "mobilenet_v3_large": (convolutional.mobilenet_v3_large, 5_483_032),
    "efficientnet_b0": (convolutional.efficientnet_b0, 5_288_548),
    "yolov8n": (yolo.yolov8n, 3_157_200),
    "vit_b16": (transformers.vit_b16, 86_567_656),
    "bert_base": (lambda: transformers.bert_base(13), 109_482_240),
    "bert_base_opset17": (lambda: transformers.bert_base(17), 109_482_240),
}


def export(name, directory):
    """Writes DIRECTORY/NAME.onnx and returns its path."""
    build, published = MODELS[name]
    builder, model = build()
    if builder.parameters != published:
        raise AssertionError(f"{name} has {builder.parameters} parameters; published are {published}")
    path = directory / f"{name}.onnx"
    onnx.save(model, path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="directory to write to")
    parser.add_argument("--only", action="append", choices=MODELS, help="write this one (may be repeated)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only or MODELS:
        print(export(name, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
