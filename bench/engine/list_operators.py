#!/usr/bin/env python3
"""What ONNX models ask of an engine: versions, inputs, outputs, and each operator with its attributes and types.

    .deps/venv/bin/python bench/engine/list_operators.py MODEL.onnx...
"""

import argparse
import collections
import sys

import onnx


def attribute_text(attribute):
    """A short form: values of scalars and short lists, only the kind of subgraphs and tensors."""
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return f"{attribute.name}=<graph>"
    if attribute.type == onnx.AttributeProto.TENSOR:
        tensor = attribute.t
        return f"{attribute.name}=<{onnx.TensorProto.DataType.Name(tensor.data_type)}>"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return f"{attribute.name}={list(value) if hasattr(value, '__len__') and not isinstance(value, str) else value}"


def shape_text(value):
    dims = value.type.tensor_type.shape.dim
    name = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    return f"{value.name} {name}[{', '.join(d.dim_param or str(d.dim_value) for d in dims)}]"


def visit(graph, depth, found, types):
    for value in list(graph.value_info) + list(graph.input) + list(graph.output):
        types[value.name] = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        types[tensor.name] = onnx.TensorProto.DataType.Name(tensor.data_type)
    for node in graph.node:
        attributes = [attribute_text(a) for a in sorted(node.attribute, key=lambda a: a.name)]
        absent = "".join("-" if not name else "x" for name in node.input)
        kind = types.get(node.input[0], "?") if node.input else ""
        key = (("  " * depth) + (node.domain + "." if node.domain else "") + node.op_type)
        found[key][f"{kind} in={absent} {' '.join(attributes)}".strip()] += 1
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                visit(attribute.g, depth + 1, found, types)


def describe(path):
    model = onnx.load(path)
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    initializers = {t.name for t in model.graph.initializer}
    print(f"{path}\n  IR {model.ir_version}, {opsets}, from {model.producer_name} {model.producer_version}")
    for label, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            if value.name not in initializers:
                print(f"  {label} {shape_text(value)}")
    try:
        model = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError as error:
        print(f"  shapes are not inferred: {error}")
    found = collections.defaultdict(collections.Counter)
    visit(model.graph, 0, found, {})
    for operator in sorted(found):
        print(f"  {operator} x {sum(found[operator].values())}")
        for form, count in found[operator].most_common():
            print(f"      {count} x {form}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx")
    for path in parser.parse_args().models:
        describe(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
