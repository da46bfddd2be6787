"""The networks of bench/compare.py as a user of MLX would write them: channels last, weights brought into MLX's layout once, one
function for mx.compile. Weights come from the ONNX files."""
from __future__ import annotations

from typing import Callable

import mlx.core as mx
import numpy as np
import onnx
from onnx import helper, numpy_helper


# ---- convolutional networks: a table over the file's nodes --------------------------------------------------------------------
def attributes(node: onnx.NodeProto) -> dict:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def channels(w: np.ndarray) -> np.ndarray:
    """A constant of a 4-D network, channels last."""
    return np.ascontiguousarray(w.transpose(0, 2, 3, 1)) if w.ndim == 4 else w


class ConvNet:
    def __init__(self, path: str, inputs: list[str]):
        model = onnx.load(path)
        self.nodes, self.inputs = [n for n in model.graph.node], inputs
        self.outputs = [o.name for o in model.graph.output]
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        rest = []
        for n in self.nodes:
            a = attributes(n)
            if n.op_type == "Constant":
                self.constants[n.output[0]] = numpy_helper.to_array(a["value"])
            elif n.op_type == "ConstantOfShape":
                value = numpy_helper.to_array(a["value"]) if "value" in a else np.zeros(1, np.float32)
                self.constants[n.output[0]] = np.full(self.constants[n.input[0]], value[0])
            else:
                rest.append(n)
        self.nodes = rest
        self.held: dict[str, mx.array] = {}
        self.fold_norms()

    def fold_norms(self) -> None:
        """BatchNormalization behind a convolution goes into its weights."""
        made = {n.output[0]: n for n in self.nodes}
        uses: dict[str, int] = {}
        for n in self.nodes:
            for i in n.input:
                uses[i] = uses.get(i, 0) + 1
        for n in [n for n in self.nodes if n.op_type == "BatchNormalization"]:
            conv = made.get(n.input[0])
            if conv is None or conv.op_type != "Conv" or uses[n.input[0]] != 1:
                continue
            scale, bias, mean, var = (self.constants[i] for i in n.input[1:5])
            factor = scale / np.sqrt(var + attributes(n).get("epsilon", 1e-5))
            old = self.constants[conv.input[2]] if len(conv.input) > 2 else 0
            self.constants[conv.input[1] + "/n"] = (self.constants[conv.input[1]] * factor[:, None, None, None]).astype(np.float32)
            self.constants[conv.input[1] + "/b"] = ((old - mean) * factor + bias).astype(np.float32)
            names = [conv.input[0], conv.input[1] + "/n", conv.input[1] + "/b"]
            del conv.input[:]
            conv.input.extend(names)
            conv.output[0] = n.output[0]
            self.nodes.remove(n)

    def constant(self, name: str, change: Callable[[np.ndarray], np.ndarray] = channels) -> mx.array:
        if name not in self.held:
            self.held[name] = mx.array(change(self.constants[name]))
        return self.held[name]

    def value(self, values: dict, name: str) -> mx.array:
        return values[name] if name in values else self.constant(name)

    def conv(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        w = self.constant(n.input[1])
        y = mx.conv_general(v[n.input[0]], w, stride=a.get("strides", [1, 1]), padding=(a.get("pads", [0] * 4)[:2], a.get("pads", [0] * 4)[2:]),
                            kernel_dilation=a.get("dilations", [1, 1]), groups=a.get("group", 1))
        return y + self.constant(n.input[2]) if len(n.input) > 2 else y

    def conv_transpose(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        w = self.constant(n.input[1], lambda w: np.ascontiguousarray(w.transpose(1, 2, 3, 0)))
        y = mx.conv_transpose2d(v[n.input[0]], w, stride=tuple(a["strides"]))
        return y + self.constant(n.input[2]) if len(n.input) > 2 else y

    def norm(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        scale, bias, mean, var = (self.constants[i] for i in n.input[1:5])
        factor = scale / np.sqrt(var + a.get("epsilon", 1e-5))
        return v[n.input[0]] * mx.array(factor.astype(np.float32)) + mx.array((bias - mean * factor).astype(np.float32))

    def pool(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        x, (kh, kw), (sh, sw), p = v[n.input[0]], a["kernel_shape"], a.get("strides", [1, 1]), a.get("pads", [0] * 4)
        most = n.op_type == "MaxPool"
        if any(p):
            x = mx.pad(x, [(0, 0), (p[0], p[2]), (p[1], p[3]), (0, 0)], constant_values=-float("inf") if most else 0)
        b, h, w, c = x.shape
        oh, ow = (h - kh) // sh + 1, (w - kw) // sw + 1
        windows = mx.as_strided(x, (b, oh, ow, kh, kw, c), (h * w * c, sh * w * c, sw * c, w * c, c, 1))
        return mx.max(windows, axis=(3, 4)) if most else mx.mean(windows, axis=(3, 4))

    def step(self, v: dict, n: onnx.NodeProto) -> mx.array:
        a, get = attributes(n), lambda i: self.value(v, n.input[i])
        match n.op_type:
            case "Conv":
                return self.conv(v, n, a)
            case "ConvTranspose":
                return self.conv_transpose(v, n, a)
            case "BatchNormalization":
                return self.norm(v, n, a)
            case "MaxPool" | "AveragePool":
                return self.pool(v, n, a)
            case "GlobalAveragePool":
                return mx.mean(get(0), axis=(1, 2), keepdims=True)
            case "Relu":
                return mx.maximum(get(0), 0)
            case "Sigmoid":
                return mx.sigmoid(get(0))
            case "HardSigmoid":
                return mx.clip(get(0) * a["alpha"] + a["beta"], 0, 1)
            case "Clip":
                return mx.clip(get(0), float(self.constants[n.input[1]]), float(self.constants[n.input[2]]))
            case "Add":
                return get(0) + get(1)
            case "Mul":
                return get(0) * get(1)
            case "Div":
                return get(0) / get(1)
            case "Sum":
                return sum(get(i) for i in range(1, len(n.input))) + get(0)
            case "Concat":
                return mx.concatenate([get(i) for i in range(len(n.input))], axis={1: 3, 2: 1, 3: 2}[a["axis"]])
            case "Resize":
                scale = int(self.constants[n.input[2]][2])
                return mx.repeat(mx.repeat(get(0), scale, axis=1), scale, axis=2)
            case "Reshape":
                x = get(0)
                return mx.transpose(x, (0, 3, 1, 2)).reshape([int(d) for d in self.constants[n.input[1]]])
            case "Gemm":
                w = self.constant(n.input[1], lambda w: w.T if a.get("transB") else w)
                return get(0) @ w + get(2)
            case "Softmax":
                return mx.softmax(get(0), axis=-1)
        raise NotImplementedError(n.op_type)

    def __call__(self, *xs: mx.array) -> list[mx.array]:
        v = {name: mx.transpose(x, (0, 2, 3, 1)) for name, x in zip(self.inputs, xs)}
        for n in self.nodes:
            v[n.output[0]] = self.step(v, n)
        return [mx.transpose(v[o], (0, 3, 1, 2)) if v[o].ndim == 4 else v[o] for o in self.outputs]


# ---- SmolLM2 ------------------------------------------------------------------------------------------------------------------
class Product:
    """MatMulNBits' weights in MLX's affine form, where its blocks are MLX's; 8-bit and 4-bit."""

    def __init__(self, node: onnx.NodeProto, t: dict[str, np.ndarray]):
        a = attributes(node)
        self.bits, self.block, n, k = a["bits"], a["block_size"], a["N"], a["K"]
        q, scales = t[node.input[1]], t[node.input[2]].reshape(n, -1).astype(np.float32)
        blocks = scales.shape[1]
        zero = np.full((n, blocks), 1 << (self.bits - 1), np.float32)
        if len(node.input) > 3 and node.input[3]:
            z = t[node.input[3]]
            if z.dtype == np.uint8:
                z = z.reshape(n, -1)
                z = np.stack([z & 15, z >> 4], -1).reshape(n, -1)[:, :blocks] if self.bits == 4 else z
            zero = z.reshape(n, blocks).astype(np.float32)
        self.q = mx.array(q.reshape(n, -1).view(np.uint32))
        self.scales, self.offsets = mx.array(scales), mx.array(-scales * zero)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.quantized_matmul(x, self.q, self.scales, self.offsets, transpose=True, group_size=self.block, bits=self.bits)


class SmolLM2:
    def __init__(self, path: str):
        model = onnx.load(path)
        t = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        for n in model.graph.node:  # the embedding shares the head's weights in another shape
            if n.op_type == "Reshape" and n.input[0] in t and n.input[1] in t:
                t[n.output[0]] = t[n.input[0]].reshape(t[n.input[1]])
        products = [n for n in model.graph.node if n.op_type == "MatMulNBits"]
        norms = [mx.array(t[n.input[k]]) for n in model.graph.node
                 for k in [{"SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 2}.get(n.op_type, 0)] if k]
        gqa = [n for n in model.graph.node if n.op_type == "GroupQueryAttention"]
        gather = next(n for n in model.graph.node if n.op_type == "GatherBlockQuantized")
        a = attributes(gqa[0])
        self.heads, self.kv = a["num_heads"], a["kv_num_heads"]
        self.layers = len(gqa)
        w = [Product(n, t) for n in products]
        self.blocks, self.head = [w[7 * i:7 * i + 7] for i in range(self.layers)], w[-1]
        self.norms = norms
        cos, sin = (t[gqa[0].input[i]] for i in (7, 8))
        self.cos, self.sin = mx.array(np.concatenate([cos, cos], 1)), mx.array(np.concatenate([sin, sin], 1))
        g = attributes(gather)
        data, scales = t[gather.input[0]], t[gather.input[2]].astype(np.float32)
        zero = t[gather.input[3]].astype(np.float32) if len(gather.input) > 3 else np.float32(1 << (g.get("bits", 4) - 1))
        rows = data.reshape(data.shape[0], -1, g["block_size"]).astype(np.float32)
        table = (rows - np.reshape(zero, (data.shape[0], -1, 1) if np.ndim(zero) else (1, 1, 1))) * scales.reshape(data.shape[0], -1, 1)
        self.table = mx.array(table.reshape(data.shape[0], -1))
        self.eps = attributes(next(n for n in model.graph.node if n.op_type == "SimplifiedLayerNormalization"))["epsilon"]

    def rotate(self, x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        half = x.shape[-1] // 2
        return x * cos + mx.concatenate([-x[..., half:], x[..., :half]], -1) * sin

    def __call__(self, ids: mx.array, cos: mx.array, sin: mx.array, mask: mx.array | None, *cache: mx.array) -> list[mx.array]:
        """cos and sin: the rows of the new positions; cache: keys and values of each layer."""
        x, present = self.table[ids], []
        b, s = ids.shape
        heads = lambda y, n: y.reshape(b, s, n, -1).transpose(0, 2, 1, 3)  # noqa: E731
        for i, (q, k, v, o, gate, up, down) in enumerate(self.blocks):
            h = mx.fast.rms_norm(x, self.norms[2 * i], self.eps)
            q, k, v = heads(q(h), self.heads), heads(k(h), self.kv), heads(v(h), self.kv)
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            if cache:
                k, v = (mx.concatenate([past, new], 2) for past, new in ((cache[2 * i], k), (cache[2 * i + 1], v)))
            y = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)
            x = x + o(y.transpose(0, 2, 1, 3).reshape(b, s, -1))
            h = mx.fast.rms_norm(x, self.norms[2 * i + 1], self.eps)
            g = gate(h)
            x = x + down(g * mx.sigmoid(g) * up(h))
            present += [k, v]
        return [self.head(mx.fast.rms_norm(x, self.norms[-1], self.eps)), *present]
