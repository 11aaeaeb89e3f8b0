#!/usr/bin/env python3
"""Trains a detector shaped like YOLO from JPEGs, the way common training scripts do: the case of docs/case-yolo.md.

    tests/gpu/yolo_like.py [--workers N] [--cache] [--channels-last] [--same-batch | --load-only] [--steps N]
                           [--utilization] [--json]

A CSP backbone, a neck that goes up and down the scales, a head of three scales; mosaics of four pictures made on the
CPU, SGD, mixed precision, and a line of progress in every step. The pictures are generated. Needs PyTorch, NumPy and
Pillow.
Exit code: 0 trained; 1 it failed; 2 bad usage; 3 no GPU.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as functional
from PIL import Image, ImageDraw
from torch import nn

import utilization

CLASSES = 20
STRIDES = (8, 16, 32)
REACH = (64, 160, float("inf"))  # pixels: the longest side of an object that each scale is to find
WARM_UP = 10


# The pictures


def draw(path, seed):
    """A JPEG of 1280 x 960 with boxes on a noisy background. Returns [class, x0, y0, x1, y1] in shares of its sides."""
    generator = numpy.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 255, (60, 80, 3), dtype=numpy.uint8)).resize((1280, 960))
    noise = generator.integers(0, 24, (960, 1280, 3), dtype=numpy.uint8)
    picture = Image.fromarray(numpy.asarray(coarse) // 2 + noise)
    pen, boxes = ImageDraw.Draw(picture), []
    for _ in range(generator.integers(3, 12)):
        kind, size = int(generator.integers(CLASSES)), generator.uniform(0.05, 0.4, 2)
        corner = generator.uniform(0, 1 - size)
        box = [*corner, *(corner + size)]
        boxes.append([kind, *box])
        color = tuple(int(value) for value in numpy.random.default_rng(kind).integers(64, 255, 3))
        (pen.rectangle if kind % 2 else pen.ellipse)([side * scale for side, scale in zip(box, (1280, 960) * 2)], color)
    picture.save(path, quality=92)
    return boxes


def make_pictures(folder, count):
    paths = [os.path.join(folder, f"{i:05}.jpg") for i in range(count)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        labels = list(pool.map(draw, paths, range(count)))
    return paths, [numpy.array(each, dtype=numpy.float32) for each in labels]


class Mosaics(torch.utils.data.Dataset):
    """Each item is made of four pictures, cropped around a point where they meet."""

    def __init__(self, paths, labels, size, cache):
        self.paths, self.labels, self.size = paths, labels, size
        self.cache = [self.decode(i) for i in range(len(paths))] if cache else None

    def __len__(self):
        return len(self.paths)

    def decode(self, i):
        with Image.open(self.paths[i]) as picture:
            return numpy.asarray(picture.convert("RGB").resize((self.size, self.size), Image.Resampling.BILINEAR))

    def __getitem__(self, i):
        size = self.size
        middle = [random.randint(size // 4, size * 3 // 4) for _ in range(2)]
        canvas = numpy.empty((size, size, 3), dtype=numpy.uint8)
        boxes = []
        for corner, index in enumerate([i, *random.choices(range(len(self.paths)), k=3)]):
            picture = self.cache[index] if self.cache else self.decode(index)
            x0, x1 = (0, middle[0]) if corner % 2 == 0 else (middle[0], size)
            y0, y1 = (0, middle[1]) if corner < 2 else (middle[1], size)
            left, top = random.randint(0, size - (x1 - x0)), random.randint(0, size - (y1 - y0))
            canvas[y0:y1, x0:x1] = picture[top:top + y1 - y0, left:left + x1 - x0]
            placed = self.labels[index].copy()
            placed[:, 1::2] = numpy.clip(placed[:, 1::2] * size - left + x0, x0, x1)
            placed[:, 2::2] = numpy.clip(placed[:, 2::2] * size - top + y0, y0, y1)
            boxes.append(placed)
        boxes = numpy.concatenate(boxes)
        boxes = boxes[((boxes[:, 3:] - boxes[:, 1:3]) > 8).all(1)]
        if random.random() < 0.5:
            canvas = canvas[:, ::-1]
            boxes[:, [1, 3]] = size - boxes[:, [3, 1]]
        canvas = numpy.clip(canvas * random.uniform(0.6, 1.4), 0, 255).astype(numpy.uint8)
        return torch.from_numpy(numpy.ascontiguousarray(canvas.transpose(2, 0, 1))), torch.from_numpy(boxes)


def collate(items):
    """Pictures as one tensor, boxes as rows of [picture, class, x0, y0, x1, y1]."""
    pictures, boxes = zip(*items)
    rows = [torch.cat([torch.full((len(each), 1), float(i)), each], 1) for i, each in enumerate(boxes)]
    return torch.stack(pictures), torch.cat(rows)


# The model


class Conv(nn.Sequential):
    def __init__(self, inputs, outputs, kernel=1, stride=1):
        super().__init__(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs), nn.SiLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, width, add):
        super().__init__()
        self.add = add
        self.body = nn.Sequential(Conv(width, width), Conv(width, width, 3))

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


class Partial(nn.Module):
    """A cross-stage partial block: one half goes through residual blocks, the other past them."""

    def __init__(self, inputs, outputs, depth, add=True):
        super().__init__()
        half = outputs // 2
        self.through = nn.Sequential(Conv(inputs, half), *(Residual(half, add) for _ in range(depth)))
        self.past = Conv(inputs, half)
        self.join = Conv(outputs, outputs)

    def forward(self, x):
        return self.join(torch.cat([self.through(x), self.past(x)], 1))


class Pooled(nn.Module):
    """Three poolings in a row, joined."""

    def __init__(self, width):
        super().__init__()
        self.enter, self.leave = Conv(width, width // 2), Conv(width * 2, width)

    def forward(self, x):
        seen = [self.enter(x)]
        for _ in range(3):
            seen.append(functional.max_pool2d(seen[-1], 5, 1, 2))
        return self.leave(torch.cat(seen, 1))


class Detector(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        a, b, c, d = (width * factor for factor in (2, 4, 8, 16))
        self.stem = nn.Sequential(Conv(3, width, 5, 2), Conv(width, a, 3, 2), Partial(a, a, 1))
        self.small = nn.Sequential(Conv(a, b, 3, 2), Partial(b, b, 2))
        self.medium = nn.Sequential(Conv(b, c, 3, 2), Partial(c, c, 3))
        self.large = nn.Sequential(Conv(c, d, 3, 2), Partial(d, d, 1), Pooled(d))
        self.narrow_large, self.up_medium = Conv(d, c), Partial(2 * c, c, 1, add=False)
        self.narrow_medium, self.up_small = Conv(c, b), Partial(2 * b, b, 1, add=False)
        self.step_small, self.down_medium = Conv(b, b, 3, 2), Partial(2 * b, c, 1, add=False)
        self.step_medium, self.down_large = Conv(c, c, 3, 2), Partial(2 * c, d, 1, add=False)
        self.heads = nn.ModuleList(nn.Conv2d(each, 5 + CLASSES, 1) for each in (b, c, d))
        for head in self.heads:
            nn.init.constant_(head.bias[:4], 1.0)
            nn.init.constant_(head.bias[4:], -4.0)  # few cells hold an object

    def forward(self, x):
        small = self.small(self.stem(x))
        medium = self.medium(small)
        large = self.narrow_large(self.large(medium))
        medium = self.up_medium(torch.cat([functional.interpolate(large, scale_factor=2), medium], 1))
        medium = self.narrow_medium(medium)
        small = self.up_small(torch.cat([functional.interpolate(medium, scale_factor=2), small], 1))
        medium = self.down_medium(torch.cat([self.step_small(small), medium], 1))
        large = self.down_large(torch.cat([self.step_medium(medium), large], 1))
        return [head(x).permute(0, 2, 3, 1) for head, x in zip(self.heads, (small, medium, large))]


# The loss


def overlap(a, b):
    """The generalized intersection over union of boxes [x0, y0, x1, y1], pairwise."""
    inside = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inside
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    return inside / (union + 1e-6) - (hull - union) / (hull + 1e-6)


def find_loss(outputs, targets):
    """Boxes, objectness and classes, summed over the scales; the cells around an object's middle are to find it."""
    total = outputs[0].new_zeros((), dtype=torch.float32)
    extent = (targets[:, 4:] - targets[:, 2:4]).amax(1)
    below = 0.0
    around = torch.tensor([[x, y] for x in (-1, 0, 1) for y in (-1, 0, 1)], device=targets.device)
    for output, stride, reach in zip(outputs, STRIDES, REACH):
        output = output.float()
        rows, columns = output.shape[1:3]
        mine = targets[(extent > below) & (extent <= reach)]
        below = reach
        middle = (mine[:, 2:4] + mine[:, 4:]) / 2 / stride
        cells = (middle.long()[:, None] + around).flatten(0, 1)
        mine = mine.repeat_interleave(len(around), 0)
        valid = (cells >= 0).all(1) & (cells[:, 0] < columns) & (cells[:, 1] < rows)
        cells, mine = cells[valid], mine[valid]
        wanted = torch.zeros_like(output[..., 4])
        if len(mine) > 0:
            picture = mine[:, 0].long()
            found = output[picture, cells[:, 1], cells[:, 0]]
            reach_of = functional.softplus(found[:, :4]) * stride
            center = (cells + 0.5) * stride
            quality = overlap(torch.cat([center - reach_of[:, :2], center + reach_of[:, 2:]], 1), mine[:, 2:])
            wanted[picture, cells[:, 1], cells[:, 0]] = quality.detach().clamp(min=0)
            classes = functional.one_hot(mine[:, 1].long(), CLASSES).float()
            total = total + (1 - quality).mean() + functional.binary_cross_entropy_with_logits(found[:, 5:], classes)
        total = total + 4 * functional.binary_cross_entropy_with_logits(output[..., 4], wanted)
    return total


# The training


def warm_up_steps(options):
    """Steps that do not count: the libraries choose their kernels, and workers have two batches each ahead."""
    return WARM_UP + 2 * options.workers


def train(options, folder):
    torch.manual_seed(1)
    random.seed(1)
    on_gpu = options.device == "cuda"
    torch.backends.cudnn.benchmark = True
    paths, labels = make_pictures(folder, options.images)
    data = Mosaics(paths, labels, options.size, options.cache)
    loader = torch.utils.data.DataLoader(
        data, batch_size=options.batch, num_workers=options.workers, pin_memory=on_gpu, collate_fn=collate,
        sampler=torch.utils.data.RandomSampler(data, replacement=True, num_samples=options.batch * options.steps))
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model = Detector().to(options.device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, weight_decay=5e-4, nesterov=True)
    scaler = torch.amp.GradScaler(options.device, enabled=on_gpu)
    sampler = utilization.Sampler(torch.cuda.get_device_properties(0)) if options.utilization else None

    def step(pictures, targets):
        pictures = pictures.to(options.device, non_blocking=True).to(memory_format=layout).float() / 255
        targets = targets.to(options.device, non_blocking=True)
        with torch.autocast(options.device, torch.float16, enabled=on_gpu):
            outputs = model(pictures)
        loss = find_loss(outputs, targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    steps, waits, mean_loss = [], [], 0.0
    warm_up = warm_up_steps(options)
    batches = itertools.repeat(next(iter(loader)), options.steps) if options.same_batch else loader
    begun = time.perf_counter()
    for index, (pictures, targets) in enumerate(batches):
        if index == warm_up and sampler:
            sampler.start()
        arrived = time.perf_counter()
        if not options.load_only:
            mean_loss = (mean_loss * index + step(pictures, targets).item()) / (index + 1)
        now = time.perf_counter()
        if not options.json:
            print(f"step {index + 1}/{options.steps}  loss {mean_loss:.4f}  {now - begun:.3f} s, "
                  f"of this {arrived - begun:.3f} s for data", flush=True)
        if index >= warm_up:
            steps.append(now - begun)
            waits.append(arrived - begun)
        begun = now
    found = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "workers": options.workers, "cache": options.cache,
        "channels_last": options.channels_last, "same_batch": options.same_batch, "load_only": options.load_only,
        "batch": options.batch, "steps": len(steps), "loss": mean_loss,
        "step_us": {"p50": statistics.median(steps) * 1e6, "max": max(steps) * 1e6},
        "images_per_s": options.batch * len(steps) / sum(steps), "data_wait_ratio": sum(waits) / sum(steps),
    }
    if sampler:
        found.update(sampler.stop())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes that load (%(default)s)")
    parser.add_argument("--cache", action="store_true", help="decode every picture once, and keep it in memory")
    parser.add_argument("--channels-last", action="store_true")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--same-batch", action="store_true", help="load one batch, and train on it in every step")
    only.add_argument("--load-only", action="store_true", help="load the batches, and do not train")
    parser.add_argument("--steps", type=int, default=60,
                        help=f"the first {WARM_UP}, and two more a worker, are not measured (%(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="pictures in a step (%(default)s)")
    parser.add_argument("--size", type=int, default=640, help="pixels of a side, a multiple of 32 (%(default)s)")
    parser.add_argument("--images", type=int, default=128, help="JPEGs that are generated (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--utilization", action="store_true", help="sample the GPU's utilization through NVML")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and no progress")
    options = parser.parse_args()
    if options.batch < 1 or options.images < 1 or options.workers < 0:
        parser.error("--batch and --images must be at least 1, --workers not negative")
    if options.steps <= warm_up_steps(options):
        parser.error(f"--steps must be over {warm_up_steps(options)} with --workers {options.workers}")
    if options.size < 64 or options.size % 32:
        parser.error("--size must be a multiple of 32, and at least 64")
    if options.utilization and options.device == "cpu":
        parser.error("--utilization is a GPU's; leave out --device cpu")
    if options.device == "cuda" and not torch.cuda.is_available():
        print("yolo_like: PyTorch finds no GPU here", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="yolo-like-") as folder:
        found = train(options, pathlib.Path(folder))
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{found['images_per_s']:.1f} pictures/s; {found['data_wait_ratio']:.0%} of the time waiting for data")
        if "utilization_ratio" in found:
            print(f"GPU-Util {found['utilization_ratio']:.0%} ({found['utilization_min_ratio']:.0%} to "
                  f"{found['utilization_max_ratio']:.0%}), memory {found['memory_ratio']:.0%} used")
    return 0


if __name__ == "__main__":
    sys.exit(main())
