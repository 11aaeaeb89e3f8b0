"""ResNet-50 v1.5, MobileNetV3-Large and EfficientNet-B0 as torchvision defines and PyTorch exports them."""

import numpy as np
from onnx import TensorProto, helper

from .builder import Builder, Value


def image_input(b, name="input", size=224):
    b.input(name, TensorProto.FLOAT, ["N", 3, size, size])
    return Value(name, 3)


def resnet50(opset=13, seed=50):
    """He et al., Deep Residual Learning for Image Recognition, with the stride in the 3x3 (v1.5).

    Opset 13 as PyTorch writes it: BN folded. Opset 9 as older exporters did: BN kept, Sum, AveragePool, Softmax,
    weights listed among the inputs as IR 3 wants them, ConstantOfShape in the shape arithmetic.
    """
    old = opset < 10
    b = Builder("resnet50", opset, seed, ("pytorch", "1.2") if old else ("pytorch", "2.1.0"))
    form = {"bn_eps": 1e-5, "fold": not old}
    x = image_input(b)
    with b.scope("conv1"):
        x = b.activation(b.conv(x, 64, 7, 2, **form), "relu")
    with b.scope("maxpool"):
        extra = {} if old else {"ceil_mode": 0, "dilations": [1, 1]}
        x = Value(b.op("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2], **extra), 64, 1.0, 0.6)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for block in range(blocks):
            with b.scope(f"layer{stage}"), b.scope(f"layer{stage}.{block}"):
                stride = 2 if stage > 1 and block == 0 else 1
                shortcut = x
                with b.scope("conv1"):
                    y = b.activation(b.conv(x, width, 1, **form), "relu")
                with b.scope("conv2"):
                    y = b.activation(b.conv(y, width, 3, stride, **form), "relu")
                with b.scope("conv3"):
                    y = b.conv(y, 4 * width, 1, gamma=0.5, **form)
                if block == 0:
                    with b.scope("downsample"):
                        shortcut = b.conv(x, 4 * width, 1, stride, identity=stage == 1 and not old, **form)
                x = b.activation(b.add(y, shortcut, "Sum" if old else "Add"), "relu")
    if old:
        with b.scope("avgpool"):
            pooled = b.op("AveragePool", [x], kernel_shape=[7, 7], pads=[0] * 4, strides=[1, 1])
        rest = b.op("ConstantOfShape", [b.constant(np.array([1], np.int64))],
                    value=helper.make_tensor("value", TensorProto.INT64, [1], [-1]))
        flat = b.op("Reshape", [pooled, b.op("Concat", [b.dim(pooled, 0), rest], axis=0)])
    else:
        with b.scope("avgpool"):
            pooled = b.op("GlobalAveragePool", [x])
        flat = b.op("Flatten", [pooled], axis=1)
    with b.scope("fc"):
        y = b.gemm(Value(flat, 2048, x.mean, 0.3 * x.std), 1000)
    if old:
        y = b.op("Softmax", [y], axis=1)
    b.output(y, "output", ["N", 1000])
    return b, b.model(ir_version=3 if old else 8, initializers_as_inputs=old)


def _divisible(value, by=8):
    rounded = max(by, int(value + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * value else rounded


# kernel, expanded, out, squeeze and excite, activation, stride
MOBILENET_V3_LARGE = (
    (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2), (5, 120, 40, True, "relu", 1), (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hard_swish", 2), (3, 200, 80, False, "hard_swish", 1), (3, 184, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1), (3, 480, 112, True, "hard_swish", 1), (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2), (5, 960, 160, True, "hard_swish", 1), (5, 960, 160, True, "hard_swish", 1),
)


def _inverted_residual(b, x, kernel, expanded, out, stride, act, eps, squeezed, inner, gate):
    """Expand (unless it would change nothing), depthwise, squeeze and excite if `squeezed`, project, add."""
    y = x
    if expanded != x.channels:
        with b.scope("expand"):
            y = b.activation(b.conv(y, expanded, 1, bn_eps=eps), act)
    with b.scope("depthwise"):
        y = b.activation(b.conv(y, expanded, kernel, stride, groups=expanded, bn_eps=eps), act)
    if squeezed:
        with b.scope("se"):
            y = b.squeeze_excite(y, squeezed, inner, gate)
    with b.scope("project"):
        residual = stride == 1 and x.channels == out
        y = b.conv(y, out, 1, bn_eps=eps, gamma=0.6 if residual else 1.0)
    return b.add(y, x) if residual else y


def mobilenet_v3_large(opset=13, seed=3):
    """Howard et al., Searching for MobileNetV3. HardSwish is HardSigmoid and Mul before opset 14."""
    b = Builder("mobilenet_v3_large", opset, seed)
    x = image_input(b)
    with b.scope("features.0"):
        x = b.activation(b.conv(x, 16, 3, 2, bn_eps=1e-3), "hard_swish")
    for index, (kernel, expanded, out, excite, act, stride) in enumerate(MOBILENET_V3_LARGE, 1):
        with b.scope(f"features.{index}"):
            squeezed = _divisible(expanded / 4) if excite else 0
            x = _inverted_residual(b, x, kernel, expanded, out, stride, act, 1e-3, squeezed, "relu", "hard_sigmoid")
    with b.scope("features.16"):
        x = b.activation(b.conv(x, 960, 1, bn_eps=1e-3), "hard_swish")
    return _classifier(b, x, 1280, "hard_swish")


# expansion, kernel, stride, out, repeats
EFFICIENTNET_B0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
                   (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))


def efficientnet_b0(opset=13, seed=7):
    """Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks."""
    b = Builder("efficientnet_b0", opset, seed)
    x = image_input(b)
    with b.scope("features.0"):
        x = b.activation(b.conv(x, 32, 3, 2, bn_eps=1e-5), "silu")
    for stage, (expansion, kernel, stride, out, repeats) in enumerate(EFFICIENTNET_B0, 1):
        for repeat in range(repeats):
            with b.scope(f"features.{stage}"), b.scope(f"{repeat}"):
                x = _inverted_residual(b, x, kernel, x.channels * expansion, out, stride if repeat == 0 else 1, "silu",
                                       1e-5, max(1, x.channels // 4), "silu", "sigmoid")
    with b.scope("features.8"):
        x = b.activation(b.conv(x, 1280, 1, bn_eps=1e-5), "silu")
    return _classifier(b, x, None, None)


def _classifier(b, x, hidden, act):
    with b.scope("avgpool"):
        flat = b.op("Flatten", [b.op("GlobalAveragePool", [x])], axis=1)
    y = Value(flat, x.channels, x.mean, 0.3 * x.std)
    if hidden:
        with b.scope("classifier.0"):
            y = b.activation(b.gemm(y, hidden), act)
    with b.scope("classifier"):
        y = b.gemm(y, 1000)
    b.output(y, "output", ["N", 1000])
    return b, b.model()
