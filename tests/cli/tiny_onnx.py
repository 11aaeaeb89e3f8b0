"""Small ONNX files without the onnx package: the few messages of onnx.proto that the tests need, encoded by hand.

Field numbers are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""
import struct

FLOAT, INT64 = 1, 7


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes(field, value):
    if isinstance(value, str):
        value = value.encode()
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def tensor(name, dims, values, dtype=FLOAT):
    """TensorProto with raw data."""
    raw = struct.pack(f"<{len(values)}{'f' if dtype == FLOAT else 'q'}", *values)
    return b"".join(_number(1, dim) for dim in dims) + _number(2, dtype) + _bytes(8, name) + _bytes(9, raw)


def value(name, dims, dtype=FLOAT):
    """ValueInfoProto; a dimension is a number or a name."""
    shape = b"".join(_bytes(1, _number(1, dim) if isinstance(dim, int) else _bytes(2, dim)) for dim in dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, dtype) + _bytes(2, shape)))


def node(op, inputs, outputs, name="", **attributes):
    """NodeProto; attributes are integers, floats or lists of integers."""
    out = b"".join(_bytes(1, i) for i in inputs) + b"".join(_bytes(2, o) for o in outputs)
    out += _bytes(3, name or f"{op}_{outputs[0]}") + _bytes(4, op)
    for key, what in attributes.items():
        body = _bytes(1, key)
        if isinstance(what, float):
            body += _varint(2 << 3 | 5) + struct.pack("<f", what) + _number(20, 1)
        elif isinstance(what, int):
            body += _number(3, what) + _number(20, 2)
        else:
            body += b"".join(_number(8, i) for i in what) + _number(20, 7)
        out += _bytes(5, body)
    return out


def model(nodes, inputs, outputs, initializers=(), opset=13):
    """ModelProto."""
    graph = b"".join(_bytes(1, n) for n in nodes) + _bytes(2, "tiny")
    graph += b"".join(_bytes(5, i) for i in initializers)
    graph += b"".join(_bytes(11, i) for i in inputs) + b"".join(_bytes(12, o) for o in outputs)
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _number(2, opset))


def perceptron():
    """y[N, 2] = Relu(x[N, 3] * w + b)."""
    return model(
        [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"]), node("Relu", ["a"], ["y"], name="act")],
        [value("x", ["N", 3])], [value("y", ["N", 2])],
        [tensor("w", [3, 2], [1, -1, 2, -2, 3, -3]), tensor("b", [2], [0.5, 0.5])])


def classifier(size=8):
    """A convolution, batch normalisation and activation, pooled to two classes; pixels[N, 3, size, size]."""
    weights = [((i * 37) % 19 - 9) / 20 for i in range(4 * 3 * 9)]
    return model(
        [node("Conv", ["pixels", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
         node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
         node("Relu", ["n"], ["r"]),
         node("GlobalAveragePool", ["r"], ["p"]),
         node("Flatten", ["p"], ["f"]),
         node("Gemm", ["f", "fw", "fb"], ["logits"], transB=1)],
        [value("pixels", ["N", 3, size, size])], [value("logits", ["N", 2])],
        [tensor("w", [4, 3, 3, 3], weights),
         tensor("scale", [4], [1, 0.5, 2, 1]), tensor("shift", [4], [0, 0.1, -0.1, 0.2]),
         tensor("mean", [4], [0.1, 0, -0.1, 0.2]), tensor("var", [4], [1, 0.5, 2, 1.5]),
         tensor("fw", [2, 4], [0.5, -0.25, 0.125, 1, -0.5, 0.75, 0.25, -1]), tensor("fb", [2], [0.1, -0.1])])


def two_inputs():
    """c = a + b, and d = a, with an open dimension that is no batch."""
    return model([node("Add", ["a", "b"], ["c"]), node("Identity", ["a"], ["d"])],
                 [value("a", [2, "length"]), value("b", [2, "length"])],
                 [value("c", [2, "length"]), value("d", [2, "length"])])


def unknown_operator():
    return model([node("Sparkle", ["x"], ["y"], name="spark")], [value("x", [1])], [value("y", [1])])
