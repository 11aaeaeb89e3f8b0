"""Seeded inputs for the measured models: name -> function of batch and generator that returns {input name: array}."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont


def _image(name, height, width, low=-2.0, high=2.5):
    """Smooth shapes and a little noise, as photographs have; white noise would average away in the first layers."""

    def make(batch, random):
        y, x = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
        waves = random.normal(size=(batch, 3, 6, 3))
        image = np.zeros((batch, 3, height, width))
        for k in range(6):
            fx, fy, phase = (waves[:, :, k, i, None, None] for i in range(3))
            image += np.sin(2 * np.pi * (k + 1) * (fx * x + fy * y) + 6 * phase)
        image += random.normal(scale=0.3, size=image.shape)
        image = (image - image.min()) / (image.max() - image.min())
        return {name: (low + (high - low) * image).astype(np.float32)}

    return make


def _text(name, height, width, size):
    """Lines of dark digits and words on light paper, normalised to -1..1 as PP-OCR's recognition takes them."""
    words = ("Sluice", "shares", "one", "GPU", "2060", "H200", "among", "many", "jobs", "58 %")

    def make(batch, random):
        font = ImageFont.load_default(size)
        pages = []
        for _ in range(batch):
            page = Image.new("RGB", (width, height), tuple(int(v) for v in random.integers(200, 256, 3)))
            draw = ImageDraw.Draw(page)
            for top in range(max(0, (height - 2 * size) // 4), height - size, 2 * size):
                line = " ".join(random.choice(words, 8))
                draw.text((width * random.uniform(0.02, 0.1), top), line, (20, 30, 60), font)
            pages.append(np.asarray(page, np.float32).transpose(2, 0, 1) / 127.5 - 1)
        return {name: np.stack(pages)}

    return make


def _bert(batch, random, length=128):
    """Sentences of different lengths, filled up with masked positions."""
    lengths = random.integers(length // 2, length + 1, batch)
    mask = (np.arange(length)[None] < lengths[:, None]).astype(np.int64)
    ids = random.integers(1000, 30522, (batch, length)) * mask
    kinds = (np.arange(length)[None] >= (lengths // 2)[:, None]).astype(np.int64) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds}


def _magika(batch, random):
    """The first and last 1024 bytes of a file; 256 stands for no byte."""
    data = random.integers(32, 127, (batch, 2048)).astype(np.int32)
    data[:, 900:1024] = 256
    return {"bytes": data}


def _silero(batch, random):
    """One chunk of 32 ms at 16 kHz behind 64 samples of the chunk before, with the state of silence."""
    time = np.arange(576) / 16000
    sound = 0.3 * np.sin(2 * np.pi * random.uniform(100, 400, (batch, 1)) * time) + random.normal(
        scale=0.02, size=(batch, 576))
    return {"input": sound.astype(np.float32), "state": np.zeros((2, batch, 128), np.float32),
            "sr": np.array(16000, np.int64)}


INPUTS = {
    "resnet50": _image("input", 224, 224),
    "resnet50_opset9": _image("input", 224, 224),
    "mobilenet_v3_large": _image("input", 224, 224),
    "efficientnet_b0": _image("input", 224, 224),
    "yolov8n": _image("images", 640, 640, 0, 1),
    "vit_b16": _image("input", 224, 224),
    "bert_base": _bert,
    "bert_base_opset17": _bert,
    "ppocr_det": _text("x", 480, 640, 28),
    "ppocr_rec": _text("x", 48, 320, 32),
    "ppocr_cls": _image("x", 48, 192, -1, 1),
    "magika": _magika,
    "silero_vad": _silero,
}


def make(name, batch):
    """The same arrays for the same name and batch, in every process."""
    return INPUTS[name](batch, np.random.default_rng([batch, *name.encode()]))
