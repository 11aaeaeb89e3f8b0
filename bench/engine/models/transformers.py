"""ViT-B/16 and BERT-base as PyTorch exports them."""

import math

import numpy as np
from onnx import TensorProto, helper

from .builder import Builder

WIDTH, HEADS, HIDDEN, LAYERS = 768, 12, 3072, 12
HEAD = WIDTH // HEADS


def layer_norm(b, x, eps):
    """One node from opset 17 on; before, what the exporter writes instead."""
    gamma = b.parameter("weight", b.uniform(WIDTH, 0.8, 1.2))
    beta = b.parameter("bias", b.normal(WIDTH, 0.1))
    if b.opset >= 17:
        return b.op("LayerNormalization", [x, gamma, beta], axis=-1, epsilon=eps)
    centred = b.op("Sub", [x, b.op("ReduceMean", [x], axes=[-1])])
    variance = b.op("ReduceMean", [b.op("Pow", [centred, b.constant(np.float32(2))])], axes=[-1])
    deviation = b.op("Sqrt", [b.op("Add", [variance, b.constant(np.float32(eps))])])
    return b.op("Add", [b.op("Mul", [b.op("Div", [centred, deviation]), gamma]), beta])


def linear(b, x, features_in, features_out, std, bias_first=True):
    """MatMul and Add, which is what a Linear over three dimensions becomes. PyTorch writes the bias first."""
    weight = b.parameter("weight", b.normal((features_in, features_out), std))
    y = b.op("MatMul", [x, weight])
    bias = b.parameter("bias", b.normal(features_out, 0.02))
    return b.op("Add", [bias, y] if bias_first else [y, bias])


def gelu(b, x):
    y = b.op("Erf", [b.op("Div", [x, b.constant(np.float32(math.sqrt(2)))])])
    y = b.op("Mul", [x, b.op("Add", [y, b.constant(np.float32(1))])])
    return b.op("Mul", [y, b.constant(np.float32(0.5))])


def feed_forward(b, x):
    with b.scope("fc1"):
        y = linear(b, x, WIDTH, HIDDEN, 0.03)
    y = gelu(b, y)
    with b.scope("fc2"):
        return linear(b, y, HIDDEN, WIDTH, 0.02)


def _vit_attention(b, x):
    """As timm's: one product for query, key and value; each factor scaled by the root, as PyTorch 2 exports it."""
    batch, tokens = b.dim(x, 0), b.dim(x, 1)
    with b.scope("qkv"):
        y = linear(b, x, WIDTH, 3 * WIDTH, 0.04)
    y = b.op("Transpose", [b.reshape(y, [batch, tokens, 3, HEADS, HEAD])], perm=[2, 0, 3, 1, 4])
    query, key, value = (b.op("Gather", [y, b.constant(np.int64(i))], axis=0) for i in range(3))
    scale = b.constant(np.float32(HEAD**-0.25))
    query = b.op("Mul", [query, scale])
    key = b.op("Mul", [b.op("Transpose", [key], perm=[0, 1, 3, 2]), scale])
    weights = b.op("Softmax", [b.op("MatMul", [query, key])], axis=-1)
    y = b.op("Transpose", [b.op("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    y = b.reshape(y, [batch, tokens, WIDTH])
    with b.scope("proj"):
        return linear(b, y, WIDTH, WIDTH, 0.03)


def vit_b16(opset=17, seed=16):
    """Dosovitskiy et al., An Image is Worth 16x16 Words, base size, 16x16 patches of 224x224 pixels."""
    b = Builder("vit_b16", opset, seed)
    x = b.input("input", TensorProto.FLOAT, ["N", 3, 224, 224])
    patches = (224 // 16) ** 2
    with b.scope("patch_embed"):
        weight = b.parameter("weight", b.normal((WIDTH, 3, 16, 16), 0.03))
        bias = b.parameter("bias", b.normal(WIDTH, 0.02))
        y = b.op("Conv", [x, weight, bias], dilations=[1, 1], group=1, kernel_shape=[16, 16], pads=[0] * 4,
                 strides=[16, 16])
        batch = b.dim(y, 0)
        y = b.op("Transpose", [b.reshape(y, [batch, WIDTH, -1])], perm=[0, 2, 1])
    token = b.parameter("cls_token", b.normal((1, 1, WIDTH), 0.5))
    # expand(batch, -1, -1): the exporter turns -1 into 1 by Equal and Where.
    shape = b.op("Concat", [batch] + [b.constant(np.array([-1], np.int64))] * 2, axis=0)
    ones = b.op("ConstantOfShape", [b.constant(np.array([3], np.int64))],
                value=helper.make_tensor("value", TensorProto.INT64, [1], [1]))
    kept = b.op("Equal", [shape, b.op("Mul", [ones, b.constant(np.int64(-1))])])
    token = b.op("Expand", [token, b.op("Where", [kept, ones, shape])])
    y = b.op("Concat", [token, y], axis=1)
    y = b.op("Add", [y, b.parameter("pos_embed", b.normal((1, patches + 1, WIDTH), 0.3))])
    for index in range(LAYERS):
        with b.scope(f"blocks.{index}"):
            with b.scope("norm1"):
                normed = layer_norm(b, y, 1e-6)
            with b.scope("attn"):
                y = b.op("Add", [y, _vit_attention(b, normed)])
            with b.scope("norm2"):
                normed = layer_norm(b, y, 1e-6)
            with b.scope("mlp"):
                y = b.op("Add", [y, feed_forward(b, normed)])
    with b.scope("norm"):
        y = layer_norm(b, y, 1e-6)
    y = b.op("Gather", [y, b.constant(np.int64(0))], axis=1)
    with b.scope("head"):
        weight = b.parameter("weight", b.normal((1000, WIDTH), 0.03))
        y = b.op("Gemm", [y, weight, b.parameter("bias", b.normal(1000, 0.02))], alpha=1.0, beta=1.0, transB=1)
    b.output(y, "output", ["N", 1000])
    return b, b.model()


def _heads(b, x, batch, tokens, perm):
    return b.op("Transpose", [b.reshape(x, [batch, tokens, HEADS, HEAD])], perm=perm)


def _bert_attention(b, x, mask):
    batch, tokens = b.dim(x, 0), b.dim(x, 1)
    parts = []
    for name, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        with b.scope(name):
            parts.append(_heads(b, linear(b, x, WIDTH, WIDTH, 0.04), batch, tokens, perm))
    query, key, value = parts
    scores = b.op("Div", [b.op("MatMul", [query, key]), b.constant(np.float32(math.sqrt(HEAD)))])
    weights = b.op("Softmax", [b.op("Add", [scores, mask])], axis=-1)
    y = b.op("Transpose", [b.op("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    return b.reshape(y, [batch, tokens, WIDTH])


def bert_base(opset=13, seed=12):
    """Devlin et al., BERT, base and uncased, as Hugging Face's BertModel with its pooler. Batch N, sequence S."""
    b = Builder("bert_base", opset, seed)
    ids, attended, kinds = (b.input(name, TensorProto.INT64, ["N", "S"])
                            for name in ("input_ids", "attention_mask", "token_type_ids"))
    lifted = b.unsqueeze(b.unsqueeze(attended, [1]), [2])
    absent = b.op("Sub", [b.constant(np.float32(1)), b.op("Cast", [lifted], to=TensorProto.FLOAT)])
    mask = b.op("Mul", [absent, b.constant(np.float32(np.finfo(np.float32).min))])
    with b.scope("embeddings"):
        positions = b.op("Slice", [b.initializer("position_ids", np.arange(512, dtype=np.int64)[None]),
                                   b.constant(np.array([0], np.int64)), b.dim(ids, 1),
                                   b.constant(np.array([1], np.int64)), b.constant(np.array([1], np.int64))])
        words = b.op("Gather", [b.parameter("word_embeddings.weight", b.normal((30522, WIDTH), 0.05)), ids])
        types = b.op("Gather", [b.parameter("token_type_embeddings.weight", b.normal((2, WIDTH), 0.02)), kinds])
        places = b.op("Gather", [b.parameter("position_embeddings.weight", b.normal((512, WIDTH), 0.02)), positions])
        x = b.op("Add", [b.op("Add", [words, types]), places])
        with b.scope("LayerNorm"):
            x = layer_norm(b, x, 1e-12)
    for index in range(LAYERS):
        with b.scope(f"encoder.layer.{index}"):
            with b.scope("attention"):
                y = _bert_attention(b, x, mask)
                with b.scope("output"):
                    y = b.op("Add", [linear(b, y, WIDTH, WIDTH, 0.03), x])
                    x = layer_norm(b, y, 1e-12)
            with b.scope("output"):
                x = layer_norm(b, b.op("Add", [feed_forward(b, x), x]), 1e-12)
    with b.scope("pooler"):
        first = b.op("Gather", [x, b.constant(np.int64(0))], axis=1)
        weight = b.parameter("weight", b.normal((WIDTH, WIDTH), 0.04))
        pooled = b.op("Tanh", [b.op("Gemm", [first, weight, b.parameter("bias", b.normal(WIDTH, 0.02))], transB=1)])
    b.output(x, "last_hidden_state", ["N", "S", WIDTH])
    b.output(pooled, "pooler_output", ["N", WIDTH])
    return b, b.model()
