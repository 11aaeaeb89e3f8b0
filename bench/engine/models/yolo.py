"""YOLOv8n as Ultralytics defines and PyTorch exports it: backbone, neck, and the head with boxes decoded."""

import math

import numpy as np
from onnx import TensorProto

from .builder import Builder, Value

CLASSES, BINS, SIZE = 80, 16, 640
STRIDES = (8, 16, 32)


def _conv(b, x, channels, kernel=1, stride=1, name="conv"):
    with b.scope(name):
        return b.activation(b.conv(x, channels, kernel, stride, bn_eps=1e-3), "silu")


def _c2f(b, x, channels, repeats, shortcut, name):
    """Split into halves; a chain of bottlenecks on the second; all of it concatenated and mixed."""
    with b.scope(name):
        half = channels // 2
        x = _conv(b, x, channels, name="cv1")
        first, second = b.op("Split", [x, b.constant(np.array([half, half], np.int64))], 2, axis=1)
        parts = [Value(first, half, x.mean, x.std), Value(second, half, x.mean, x.std)]
        for index in range(repeats):
            with b.scope(f"m.{index}"):
                y = _conv(b, _conv(b, parts[-1], half, 3, name="cv1"), half, 3, name="cv2")
                parts.append(b.add(parts[-1], y) if shortcut else y)
        return _conv(b, b.concat(parts), channels, name="cv2")


def _sppf(b, x, channels, name):
    with b.scope(name):
        parts = [_conv(b, x, x.channels // 2, name="cv1")]
        for _ in range(3):
            last = parts[-1]
            y = b.op("MaxPool", [last], ceil_mode=0, dilations=[1, 1], kernel_shape=[5, 5], pads=[2] * 4,
                     strides=[1, 1])
            parts.append(Value(y, last.channels, last.mean + last.std, 0.7 * last.std))
        return _conv(b, b.concat(parts), channels, name="cv2")


def _upsample(b, x, name):
    with b.scope(name):
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        y = b.op("Resize", [x, "", scales], coordinate_transformation_mode="asymmetric", cubic_coeff_a=-0.75,
                 mode="nearest", nearest_mode="floor")
        return Value(y, x.channels, x.mean, x.std)


def _branch(b, x, width, out, bias, name):
    with b.scope(name):
        x = _conv(b, _conv(b, x, width, 3, name="0"), width, 3, name="1")
        with b.scope("2"):
            return b.conv(x, out, 1, bias=np.full(out, bias))


def anchors():
    """Centres of all cells, in cells of their level, as [1, 2, 8400], and each one's stride as [1, 8400]."""
    points, strides = [], []
    for stride in STRIDES:
        cells = np.arange(SIZE // stride, dtype=np.float32) + np.float32(0.5)
        y, x = np.meshgrid(cells, cells, indexing="ij")
        points.append(np.stack([x.ravel(), y.ravel()]))
        strides.append(np.full(x.size, stride, np.float32))
    return np.concatenate(points, 1)[None], np.concatenate(strides)[None]


def _half_of(b, x, axis, half):
    """x's first or second half along an axis, cut at a place computed from its shape, as chunk() is exported."""
    size = b.op("Gather", [b.op("Shape", [x]), b.constant(np.array([axis], np.int64))], axis=0)
    rounded = b.op("Add", [size, b.constant(np.array([1], np.int64))])
    middle = b.op("Div", [rounded, b.constant(np.array([2], np.int64))])
    bounds = [b.op("Mul", [middle, b.constant(np.array([factor], np.int64))]) for factor in (half, half + 1)]
    return b.op("Slice", [x, *bounds, b.constant(np.array([axis], np.int64))])


def _decode(b, levels):
    """Distances as distributions over bins, their expectation, boxes as centre and size, class scores."""
    channels = 4 * BINS + CLASSES
    flat = [b.reshape(x, [b.dim(x, 0), channels, -1]) for x in levels]
    joined = b.op("Concat", flat, axis=2)
    box, score = b.op("Split", [joined, b.constant(np.array([4 * BINS, CLASSES], np.int64))], 2, axis=1)
    with b.scope("dfl"):
        batch, cells = b.dim(box, 0), b.dim(box, 2)
        y = b.op("Transpose", [b.reshape(box, [batch, 4, BINS, cells])], perm=[0, 2, 1, 3])
        y = b.op("Softmax", [y], axis=1)
        with b.scope("conv"):
            weight = b.parameter("weight", np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
            y = b.op("Conv", [y, weight], dilations=[1, 1], group=1, kernel_shape=[1, 1], pads=[0] * 4, strides=[1, 1])
        distance = b.reshape(y, [batch, 4, cells])
    points, strides = anchors()
    points = b.constant(points)
    low = b.op("Sub", [points, _half_of(b, distance, 1, 0)])
    high = b.op("Add", [points, _half_of(b, distance, 1, 1)])
    centre = b.op("Div", [b.op("Add", [low, high]), b.constant(np.float32(2))])
    boxes = b.op("Concat", [centre, b.op("Sub", [high, low])], axis=1)
    return b.op("Concat", [b.op("Mul", [boxes, b.constant(strides)]), b.op("Sigmoid", [score])], axis=1)


def yolov8n(opset=17, seed=8):
    b = Builder("yolov8n", opset, seed)
    b.input("images", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])
    x = _conv(b, Value("images", 3, 0.5, 0.3), 16, 3, 2, "model.0")
    x = _conv(b, x, 32, 3, 2, "model.1")
    x = _c2f(b, x, 32, 1, True, "model.2")
    x = _conv(b, x, 64, 3, 2, "model.3")
    p3 = _c2f(b, x, 64, 2, True, "model.4")
    x = _conv(b, p3, 128, 3, 2, "model.5")
    p4 = _c2f(b, x, 128, 2, True, "model.6")
    x = _conv(b, p4, 256, 3, 2, "model.7")
    x = _c2f(b, x, 256, 1, True, "model.8")
    p5 = _sppf(b, x, 256, "model.9")
    n4 = _c2f(b, b.concat([_upsample(b, p5, "model.10"), p4]), 128, 1, False, "model.12")
    n3 = _c2f(b, b.concat([_upsample(b, n4, "model.13"), p3]), 64, 1, False, "model.15")
    n4 = _c2f(b, b.concat([_conv(b, n3, 64, 3, 2, "model.16"), n4]), 128, 1, False, "model.18")
    n5 = _c2f(b, b.concat([_conv(b, n4, 128, 3, 2, "model.19"), p5]), 256, 1, False, "model.21")
    with b.scope("model.22"):
        levels = []
        for index, (x, stride) in enumerate(zip((n3, n4, n5), STRIDES)):
            # Both biases as Ultralytics sets them before training.
            box = _branch(b, x, max(16, n3.channels // 4, 4 * BINS), 4 * BINS, 1.0, f"cv2.{index}")
            rarity = math.log(5 / CLASSES / (SIZE / stride) ** 2)
            score = _branch(b, x, max(n3.channels, min(CLASSES, 100)), CLASSES, rarity, f"cv3.{index}")
            levels.append(b.concat([box, score]))
        b.output(_decode(b, levels), "output0", ["N", 4 + CLASSES, 8400])
    return b, b.model()
