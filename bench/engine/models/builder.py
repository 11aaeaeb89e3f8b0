"""Builds ONNX graphs node by node, as an exporter writes them, with seeded random weights.

A random network is useful for checking errors only while its activations neither vanish nor explode. So each value
carries an estimate of its mean and deviation, from which weights and BatchNormalization's statistics are drawn: the
statistics then fit the data that flows through, as a trained network's do.
"""

import dataclasses
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclasses.dataclass(frozen=True)
class Value:
    """A float tensor between nodes: its name, channels, and estimates of its elements' mean and deviation."""

    name: str
    channels: int
    mean: float = 0.0
    std: float = 1.0


def erf(x):
    return np.vectorize(math.erf)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def hard_sigmoid(x):
    return np.clip(x / 6 + 0.5, 0, 1)


FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * sigmoid(x),
    "hard_swish": lambda x: x * hard_sigmoid(x),
    "sigmoid": sigmoid,
    "hard_sigmoid": hard_sigmoid,
}
# Evenly likely points of the standard normal distribution, by the inverse of its distribution function.
_grid = np.linspace(-4, 4, 4001)
_cdf = 0.5 * (1 + erf(_grid / math.sqrt(2)))
NORMAL = np.interp((np.arange(1000) + 0.5) / 1000, _cdf, _grid)


class Builder:
    """One graph. `parameters` counts what the network's authors count: weights, biases, and BN's scale and shift."""

    def __init__(self, name, opset, seed, producer=("pytorch", "2.1.0")):
        self.name, self.opset, self.producer = name, opset, producer
        self.random = np.random.default_rng(seed)
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.parameters = 0
        self._scope = []
        self._taken = {}

    # Names as PyTorch's exporter forms them: /module/path/Operator_2.
    def scope(self, name):
        return _Scope(self, name)

    def _unique(self, base):
        count = self._taken[base] = self._taken.get(base, -1) + 1
        return f"{base}_{count}" if count else base

    def op(self, kind, inputs, outputs=1, **attributes):
        """Adds a node; returns its output's name, or a tuple of names if it has several."""
        name = self._unique("/" + "/".join(self._scope + [kind]))
        results = [f"{name}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, [i.name if isinstance(i, Value) else i for i in inputs], results,
                                           name=name, **attributes))
        return results[0] if outputs == 1 else tuple(results)

    def constant(self, array):
        """A Constant node, as exporters write small tensors."""
        return self.op("Constant", [], value=numpy_helper.from_array(np.asarray(array)))

    def initializer(self, name, array):
        full = self._unique(".".join(self._scope + [name]))
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), full))
        return full

    def parameter(self, name, array):
        """An initializer that counts as the network's parameters."""
        array = np.asarray(array, np.float32)
        self.parameters += array.size
        return self.initializer(name, array)

    def normal(self, shape, std):
        return self.random.standard_normal(shape, np.float32) * np.float32(std)

    def uniform(self, size, low, high):
        return self.random.uniform(low, high, size).astype(np.float32)

    def input(self, name, dtype, dims):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def output(self, value, name, dims, dtype=TensorProto.FLOAT):
        """Renames a value to what users call it and makes it an output of the graph."""
        old = value.name if isinstance(value, Value) else value
        for node in self.nodes:
            node.output[:] = [name if o == old else o for o in node.output]
            node.input[:] = [name if i == old else i for i in node.input]
        self.outputs.append(helper.make_tensor_value_info(name, dtype, dims))

    # ---- Layers of convolutional networks.

    def conv(self, x, channels, kernel, stride=1, groups=1, bias=None, bn_eps=None, gamma=1.0, fold=True,
             identity=False):
        """Conv without BN (with a bias array), or Conv and BN, folded as PyTorch's exporter does or kept as two nodes.

        `gamma` is the middle of BN's scale. `identity` routes the bias through an Identity, as that exporter does with
        initializers that were equal.
        """
        fan_in = x.channels // groups * kernel * kernel
        weight = self.normal((channels, x.channels // groups, kernel, kernel), math.sqrt(1 / fan_in))
        flat = weight.reshape(channels, -1).astype(np.float64)
        mean, variance = flat.sum(1) * x.mean, np.square(flat).sum(1) * x.std**2
        inputs = [x]
        if bn_eps is None:
            bias = np.zeros(channels) if bias is None else bias
            inputs += [self.parameter("weight", weight), self.parameter("bias", bias)]
            result = (float(np.mean(bias)), math.sqrt(float(np.mean(variance))))
        else:
            scale = self.uniform(channels, 0.8, 1.2) * np.float32(gamma)
            shift = self.normal(channels, 0.2)
            mean = (mean + self.normal(channels, 0.1) * np.sqrt(variance)).astype(np.float32)
            variance = (variance * self.uniform(channels, 0.8, 1.25)).astype(np.float32)
            result = (0.0, math.sqrt(float(np.mean(scale)) ** 2 + 0.2**2))
            self.parameters += weight.size + scale.size + shift.size
            if fold:
                factor = scale / np.sqrt(variance + np.float32(bn_eps))
                inputs += [self.initializer("weight", weight * factor[:, None, None, None]),
                           self.initializer("bias", shift - mean * factor)]
                if identity:
                    inputs[2] = self.op("Identity", [inputs[2]])
            else:
                inputs += [self.initializer("weight", weight)]
        pad = kernel // 2 if stride != kernel else 0
        y = self.op("Conv", inputs, dilations=[1, 1], group=groups, kernel_shape=[kernel, kernel],
                    pads=[pad] * 4, strides=[stride, stride])
        if bn_eps is not None and not fold:
            with self.scope("bn"):
                y = self.op("BatchNormalization", [y] + [self.initializer(n, a) for n, a in (
                    ("weight", scale), ("bias", shift), ("running_mean", mean), ("running_var", variance))],
                            epsilon=bn_eps, momentum=0.9)
        return Value(y, channels, *result)

    def activation(self, x, kind):
        """relu, silu, hard_swish (as opset 13 has to write it), sigmoid, hard_sigmoid; None returns x."""
        if kind is None:
            return x
        if kind == "relu":
            y = self.op("Relu", [x])
        elif kind == "sigmoid":
            y = self.op("Sigmoid", [x])
        elif kind == "hard_sigmoid":
            y = self.op("HardSigmoid", [x], alpha=1 / 6)
        else:
            gate = self.op("Sigmoid", [x]) if kind == "silu" else self.op("HardSigmoid", [x], alpha=1 / 6)
            y = self.op("Mul", [x, gate])
        sample = FUNCTIONS[kind](NORMAL * x.std + x.mean)
        return Value(y, x.channels, float(sample.mean()), float(sample.std()))

    def add(self, a, b, kind="Add"):
        return Value(self.op(kind, [a, b]), a.channels, a.mean + b.mean, math.hypot(a.std, b.std))

    def concat(self, values, axis=1):
        """Concatenation of channels; the estimate weighs each part by its channels."""
        channels = sum(v.channels for v in values)
        mean = sum(v.mean * v.channels for v in values) / channels
        square = sum((v.std**2 + v.mean**2) * v.channels for v in values) / channels
        return Value(self.op("Concat", values, axis=axis), channels, mean, math.sqrt(square - mean**2))

    def squeeze_excite(self, x, squeezed, inner, gate):
        """Scales channels by a gate computed from their means: pool, 1x1 Conv, `inner`, 1x1 Conv, `gate`, Mul."""
        with self.scope("avgpool"):
            pooled = Value(self.op("GlobalAveragePool", [x]), x.channels, x.mean, max(0.3 * x.std, 1e-3))
        with self.scope("fc1"):
            hidden = self.activation(self.conv(pooled, squeezed, 1, bias=self.normal(squeezed, 0.5)), inner)
        with self.scope("fc2"):
            scale = self.activation(self.conv(hidden, x.channels, 1, bias=self.normal(x.channels, 1.0)), gate)
        return Value(self.op("Mul", [scale, x]), x.channels, x.mean * 0.5, x.std * 0.55)

    def gemm(self, x, features, std=None):
        """Fully connected over the last dimension of a matrix, as PyTorch's Linear is exported: weights transposed."""
        std = std or math.sqrt(1 / x.channels)
        weight = self.parameter("weight", self.normal((features, x.channels), std))
        bias = self.parameter("bias", self.normal(features, 0.1))
        y = self.op("Gemm", [x, weight, bias], alpha=1.0, beta=1.0, transB=1)
        return Value(y, features, 0.0, math.sqrt(x.channels * std**2 * (x.std**2 + x.mean**2)))

    # ---- Shape arithmetic as PyTorch's exporter writes it.

    def dim(self, x, axis):
        """Dimension `axis` of x as an int64 tensor of one element."""
        size = self.op("Gather", [self.op("Shape", [x]), self.constant(np.int64(axis))], axis=0)
        return self.unsqueeze(size, [0])

    def unsqueeze(self, x, axes):
        if self.opset < 13:
            return self.op("Unsqueeze", [x], axes=axes)
        return self.op("Unsqueeze", [x, self.constant(np.array(axes, np.int64))])

    def reshape(self, x, dims):
        """Dims are ints or names of int64 tensors of one element."""
        parts = [d if isinstance(d, str) else self.constant(np.array([d], np.int64)) for d in dims]
        return self.op("Reshape", [x, self.op("Concat", parts, axis=0)])

    def model(self, ir_version=8, initializers_as_inputs=False):
        """The checked ModelProto."""
        inputs = list(self.inputs)
        if initializers_as_inputs:
            inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in self.initializers]
        graph = helper.make_graph(self.nodes, self.name, inputs, self.outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir_version,
                                  producer_name=self.producer[0], producer_version=self.producer[1])
        onnx.checker.check_model(model, full_check=True)
        return model


class _Scope:
    def __init__(self, builder, name):
        self._builder, self._name = builder, name

    def __enter__(self):
        self._builder._scope.append(self._name)

    def __exit__(self, *_):
        self._builder._scope.pop()
