#!/usr/bin/env python3
"""Reads the text on a picture with PP-OCR's models, run by Sluice's engine through its C interface.

    make build && bench/engine/setup
    .deps/venv/bin/python examples/ocr/ocr.py [PICTURE] [--boxes OUT.png]

Without PICTURE it draws a sign of its own and reads that. The models are those inside PyPI's rapidocr-onnxruntime,
which bench/engine/setup installs. Text is taken to be upright. Prints a line a text: place, confidence, text.
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "engine"))
import package_models  # noqa: E402
import sluice_c  # noqa: E402

# As PaddleOCR sets them for PP-OCRv4.
SHORT_SIDE = 736  # the detector sees pictures no smaller than this
PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
UNCLIP_RATIO = 1.6  # the detector marks text shrunk by this ratio of area to outline
LINE_HEIGHT, LEAST_WIDTH = 48, 320
TEXT_THRESHOLD = 0.5


def draw_sign():
    """A picture with text of several sizes on an uneven ground."""
    width, height = 960, 540
    ramp = np.linspace(0, 1, width) * 60 + np.linspace(0, 1, height)[:, None] * 40
    noise = np.random.default_rng(1).normal(0, 6, (height, width))
    ground = np.clip(140 + ramp + noise, 0, 255).astype(np.uint8)
    picture = Image.fromarray(np.stack([ground, ground, np.minimum(ground, 200)], axis=2))
    draw = ImageDraw.Draw(picture)
    for text, at, size, colour in (("SLUICE GATE No. 7", (60, 50), 72, (20, 30, 60)),
                                   ("Many jobs share one GPU.", (60, 190), 44, (120, 20, 20)),
                                   ("Opening hours: 08:30 - 17:45", (60, 290), 36, (20, 20, 20)),
                                   ("Call +49 30 1234567 before entering", (60, 380), 30, (10, 60, 30)),
                                   ("e-mail: lock@example.org", (520, 470), 24, (40, 40, 90))):
        draw.text(at, text, fill=colour, font=ImageFont.load_default(size))
    return picture


def to_input(picture):
    """Pixels as the models were trained on: BGR, -1 to 1, channels first."""
    pixels = np.asarray(picture, np.float32)[:, :, ::-1] / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def components(mask):
    """The 8-connected regions of a mask, each as arrays (rows, columns): runs of each row, joined where they touch."""
    parent, runs, above = [], [], []

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        here = []
        for begin, end in zip(edges[::2], edges[1::2]):
            number = len(parent)
            parent.append(number)
            runs.append((row, begin, end))
            here.append(number)
            for other in above:
                if runs[other][1] <= end and begin <= runs[other][2]:
                    parent[root(number)] = root(other)
        above = here
    regions = {}
    for number, run in enumerate(runs):
        regions.setdefault(root(number), []).append(run)
    for region in regions.values():
        yield (np.concatenate([np.full(end - begin, row) for row, begin, end in region]),
               np.concatenate([np.arange(begin, end) for _, begin, end in region]))


def find_boxes(probability, picture):
    """Boxes (left, top, right, bottom) of text in the picture, from what the detector says of each pixel."""
    scale_x, scale_y = picture.width / probability.shape[1], picture.height / probability.shape[0]
    boxes = []
    for rows, columns in components(probability > PIXEL_THRESHOLD):
        left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        width, height = right - left, bottom - top
        if min(width, height) < 3 or probability[rows, columns].mean() < BOX_THRESHOLD:
            continue
        grow = width * height * UNCLIP_RATIO / (2 * (width + height))
        boxes.append((max(0, round((left - grow) * scale_x)), max(0, round((top - grow) * scale_y)),
                      min(picture.width, round((right + grow) * scale_x)),
                      min(picture.height, round((bottom + grow) * scale_y))))
    return sorted(boxes, key=lambda box: (box[1], box[0]))


class Reader:
    def __init__(self, library, threads):
        lib = sluice_c.Library(str(library))
        self._detector = lib.session(package_models.find("ppocr_det"), threads)
        recogniser = package_models.find("ppocr_rec")
        self._recogniser = lib.session(recogniser, threads)
        properties = {entry.key: entry.value for entry in onnx.load(recogniser).metadata_props}
        self._characters = ["", *properties["character"].splitlines(), " "]  # class 0 is "nothing new"

    @staticmethod
    def _run(session, pixels):
        session.bind({"x": pixels})
        session.run()
        return session.outputs()[session.output_names[0]]

    def find(self, picture):
        scale = max(1.0, SHORT_SIDE / min(picture.size))
        size = [max(32, round(side * scale / 32) * 32) for side in picture.size]
        pixels = to_input(picture.resize(size, Image.Resampling.BILINEAR))
        return find_boxes(self._run(self._detector, pixels[None])[0, 0], picture)

    def read(self, picture, boxes):
        """(text, confidence) of each box; all boxes are one batch, padded to the widest."""
        if not boxes:
            return []
        ratios = [(right - left) / (bottom - top) for left, top, right, bottom in boxes]
        width = max(LEAST_WIDTH, int(np.ceil(LINE_HEIGHT * max(ratios))))
        pixels = np.zeros((len(boxes), 3, LINE_HEIGHT, width), np.float32)
        for line, box, ratio in zip(pixels, boxes, ratios):
            own = min(width, int(np.ceil(LINE_HEIGHT * ratio)))
            line[:, :, :own] = to_input(picture.crop(box).resize((own, LINE_HEIGHT), Image.Resampling.BILINEAR))
        results = []
        for steps in self._run(self._recogniser, pixels):
            classes, confidence = steps.argmax(axis=1), steps.max(axis=1)
            kept = (classes != 0) & (classes != np.concatenate(([0], classes[:-1])))
            text = "".join(self._characters[c] for c in classes[kept])
            results.append((text, float(confidence[kept].mean()) if kept.any() else 0.0))
        return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", nargs="?", type=pathlib.Path)
    parser.add_argument("--boxes", type=pathlib.Path, metavar="OUT.png", help="writes the picture with what was found")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build" / "lib" / "libsluice.so")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    try:
        picture = Image.open(options.picture).convert("RGB") if options.picture else draw_sign()
        reader = Reader(options.library, options.threads)
        start = time.perf_counter()
        boxes = reader.find(picture)
        results = reader.read(picture, boxes)
        elapsed = time.perf_counter() - start
    except (OSError, sluice_c.Error) as error:
        print(f"ocr: {error}", file=sys.stderr)
        return 2
    draw = ImageDraw.Draw(picture)
    shown = 0
    for box, (text, confidence) in zip(boxes, results):
        if confidence >= TEXT_THRESHOLD:
            print(f"{box[0]:4},{box[1]:4} to {box[2]:4},{box[3]:4}  {confidence:.2f}  {text}")
            draw.rectangle(box, outline=(220, 0, 0), width=2)
            shown += 1
    print(f"{shown} texts in {elapsed:.2f} s, the preparation of both models for these sizes included")
    if options.boxes:
        picture.save(options.boxes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
