"""The networks of bench/compare.py as a user of MLX would write them: channels last, weights brought into MLX's layout once, one
function for mx.compile. Weights come from the ONNX files."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce

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
    """`by_products`: without MLX's convolution where it is slow on the CPU device: a 1x1 one is a matrix product, a depthwise one a sum."""

    def __init__(self, path: str, by_products: bool = False):
        self.by_products = by_products
        graph = onnx.load(path).graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.inputs = [i.name for i in graph.input if i.name not in self.constants]
        self.outputs = [o.name for o in graph.output]
        self.constants |= {n.output[0]: numpy_helper.to_array(attributes(n)["value"]) for n in graph.node if n.op_type == "Constant"}
        self.nodes = [n for n in graph.node if n.op_type != "Constant"]
        self.held: dict[str, mx.array] = {}
        self.fold()

    def fold(self) -> None:
        """A factor and an offset of each channel behind a convolution go into its weights."""
        made = {n.output[0]: n for n in self.nodes}
        uses = Counter(i for n in self.nodes for i in n.input)
        for n in list(self.nodes):
            (x, *_), change = ([i for i in n.input if i not in self.constants] or [""]), self.scale_and_offset(n)
            conv = made.get(x)
            if change is None or conv is None or conv.op_type not in ("Conv", "ConvTranspose") or uses[x] != 1 or x in self.outputs:
                continue
            (w, b), (factor, offset) = conv.input[1:3] if len(conv.input) > 2 else (conv.input[1], ""), change
            weights = self.constants[w]
            axes = (-1, 1, 1, 1) if conv.op_type == "Conv" else (1, -1, 1, 1)  # where the output's channels are
            old = self.constants[b] if b else np.zeros(weights.shape[axes.index(-1)])
            self.constants[x + "/w"] = (weights * np.reshape(factor, axes)).astype(np.float32)
            self.constants[x + "/b"] = (old * factor + offset).astype(np.float32)
            conv.input[:] = [conv.input[0], x + "/w", x + "/b"]
            conv.output[0] = n.output[0]
            made[n.output[0]] = conv
            self.nodes.remove(n)

    def scale_and_offset(self, n: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
        """Of a node that is no more than that: one number for all channels or one for each."""
        if n.op_type == "BatchNormalization":
            scale, bias, mean, var = (self.constants[i].astype(np.float64) for i in n.input[1:5])
            factor = scale / np.sqrt(var + attributes(n).get("epsilon", 1e-5))
            return factor, bias - mean * factor
        held = [self.constants[i] for i in n.input if i in self.constants]
        if n.op_type not in ("Mul", "Add") or len(held) != 1 or held[0].size not in (1, *held[0].shape[-3:-2]):
            return None
        flat = held[0].astype(np.float64).reshape(-1)
        return (flat, np.zeros(1)) if n.op_type == "Mul" else (np.ones(1), flat)

    def constant(self, name: str, change: Callable[[np.ndarray], np.ndarray] = channels) -> mx.array:
        if name not in self.held:
            self.held[name] = mx.array(change(self.constants[name]))
        return self.held[name]

    def value(self, values: dict, name: str) -> mx.array:
        return values[name] if name in values else self.constant(name)

    def conv(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        x, w = v[n.input[0]], self.constant(n.input[1])
        stride, pads = a.get("strides", [1, 1]), a.get("pads", [0] * 4)
        if self.by_products and a.get("group", 1) == x.shape[-1] == w.shape[0]:
            y = self.depthwise(x, w, stride, pads)
        elif self.by_products and w.shape[1:3] == (1, 1) and not any(pads):
            y = x[:, ::stride[0], ::stride[1]] @ w[:, 0, 0].T
        else:
            y = mx.conv_general(x, w, stride=stride, padding=(pads[:2], pads[2:]), kernel_dilation=a.get("dilations", [1, 1]),
                                groups=a.get("group", 1))
        return y + self.constant(n.input[2]) if len(n.input) > 2 else y

    def depthwise(self, x: mx.array, w: mx.array, stride: list[int], pads: list[int]) -> mx.array:
        """A sum of shifted products, one for each place of the window."""
        x = mx.pad(x, [(0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)])
        _, height, width, _ = x.shape
        places = [(i, j) for i in range(w.shape[1]) for j in range(w.shape[2])]
        (down, right), bottom, end = stride, height - w.shape[1] + 1, width - w.shape[2] + 1
        return reduce(mx.add, (x[:, i:i + bottom:down, j:j + end:right] * w[:, i, j, 0] for i, j in places))

    def conv_transpose(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        w = self.constant(n.input[1], lambda w: np.ascontiguousarray(w.transpose(1, 2, 3, 0)))
        y = mx.conv_transpose2d(v[n.input[0]], w, stride=tuple(a["strides"]))
        return y + self.constant(n.input[2]) if len(n.input) > 2 else y

    def pool(self, v: dict, n: onnx.NodeProto, a: dict) -> mx.array:
        x, (kh, kw), (sh, sw), p = v[n.input[0]], a["kernel_shape"], a.get("strides", [1, 1]), a.get("pads", [0] * 4)
        most = n.op_type == "MaxPool"
        assert most or not any(p)
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
                return reduce(mx.add, map(get, range(len(n.input))))
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
def unpacked(q: np.ndarray, bits: int) -> np.ndarray:
    """One number a byte, from bytes that hold two of them (low half first) or one."""
    return np.stack([q & 15, q >> 4], -1).reshape(*q.shape[:-1], -1) if bits == 4 else q


class Product:
    """MatMulNBits' weights in MLX's affine form, or as float32. Blocks of 32 and unsigned numbers of 4 or 8 bits are in MLX's form."""

    def __init__(self, node: onnx.NodeProto, t: dict[str, np.ndarray], dequantise: bool):
        a = attributes(node)
        self.bits, self.block, n = a["bits"], a["block_size"], a["N"]
        assert self.bits in (4, 8) and self.block == 32
        q, scales = t[node.input[1]].reshape(n, -1), t[node.input[2]].reshape(n, -1).astype(np.float32)
        zero = np.full(scales.shape, 1 << (self.bits - 1), np.float32)
        if len(node.input) > 3 and node.input[3]:
            zero = unpacked(t[node.input[3]].reshape(n, -1), self.bits)[:, :scales.shape[1]].astype(np.float32)
        self.dense: mx.array | None = None
        if dequantise:
            w = unpacked(q, self.bits).reshape(n, -1, self.block).astype(np.float32)
            self.dense = mx.array(((w - zero[..., None]) * scales[..., None]).reshape(n, -1))
            return
        self.q = mx.array(q.view(np.uint32))
        self.scales, self.offsets = mx.array(scales), mx.array(-scales * zero)

    def __call__(self, x: mx.array) -> mx.array:
        if self.dense is not None:
            return x @ self.dense.T
        return mx.quantized_matmul(x, self.q, self.scales, self.offsets, transpose=True, group_size=self.block, bits=self.bits)


class SmolLM2:
    """A Llama decoder. Each of its functions gives the logits, then keys and values of each layer."""

    def __init__(self, path: str, dequantise: bool = False):
        graph = onnx.load(path).graph
        t = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        nodes = {kind: [n for n in graph.node if n.op_type == kind] for kind in {n.op_type for n in graph.node}}
        gqa, gather, norm = nodes["GroupQueryAttention"], nodes["GatherBlockQuantized"][0], nodes["SimplifiedLayerNormalization"]
        w = [Product(n, t, dequantise) for n in nodes["MatMulNBits"]]
        self.products = ", ".join(f"{n} of {bits} bits" for bits, n in sorted(Counter(p.bits for p in w).items())) + ", groups of 32"
        self.layers, self.heads, self.kv_heads = len(gqa), attributes(gqa[0])["num_heads"], attributes(gqa[0])["kv_num_heads"]
        self.blocks, self.head = [w[7 * i:7 * i + 7] for i in range(self.layers)], w[-1]
        self.norms = [mx.array(t[n.input[1]]) for n in norm] + [mx.array(t[n.input[2]]) for n in nodes["SkipSimplifiedLayerNormalization"]]
        self.eps = attributes(norm[0])["epsilon"]
        cos, sin = (t[i].astype(np.float64) for i in gqa[0].input[7:9])
        self.head_size = 2 * cos.shape[1]
        self.periods = mx.array((1 / np.arctan2(sin[1], cos[1])).astype(np.float32))
        self.table = self.embeddings(gather, nodes["MatMulNBits"][-1], t)

    def embeddings(self, gather: onnx.NodeProto, head: onnx.NodeProto, t: dict[str, np.ndarray]) -> mx.array:
        """They share the head's weights, in another shape."""
        same = Product(head, t, dequantise=True).dense
        assert gather.input[2] == head.input[2] and attributes(gather)["bits"] == attributes(head)["bits"] and same is not None
        return self.head.dense if self.head.dense is not None else same

    def forward(self, ids: mx.array, position: mx.array | int, mask: mx.array | str | None, keep: Callable) -> list[mx.array]:
        """`keep(layer, keys, values)` gives what the new rows look at, and what is kept for the next step."""
        x, kept = self.table[ids], []
        b, s = ids.shape
        heads = lambda y, n: y.reshape(b, s, n, -1).transpose(0, 2, 1, 3)  # noqa: E731
        rope = lambda y: mx.fast.rope(y, self.head_size, traditional=False, base=None, scale=1.0, offset=position,  # noqa: E731
                                      freqs=self.periods)
        for i, (q, k, v, o, gate, up, down) in enumerate(self.blocks):
            h = mx.fast.rms_norm(x, self.norms[2 * i], self.eps)
            (k, v), stays = keep(i, rope(heads(k(h), self.kv_heads)), heads(v(h), self.kv_heads))
            kept += stays
            y = mx.fast.scaled_dot_product_attention(rope(heads(q(h), self.heads)), k, v, scale=self.head_size ** -0.5, mask=mask)
            x = x + o(y.transpose(0, 2, 1, 3).reshape(b, s, -1))
            h = mx.fast.rms_norm(x, self.norms[2 * i + 1], self.eps)
            g = gate(h)
            x = x + down(g * mx.sigmoid(g) * up(h))
        return [self.head(mx.fast.rms_norm(x, self.norms[-1], self.eps)), *kept]

    def prefill(self, ids: mx.array) -> list[mx.array]:
        return self.forward(ids, 0, "causal", lambda i, k, v: ((k, v), [k, v]))

    def joined(self, ids: mx.array, position: mx.array, *cache: mx.array) -> list[mx.array]:
        """One new token; the cache of each layer is made anew, one row longer."""
        def keep(i: int, k: mx.array, v: mx.array):
            both = [mx.concatenate([past, new], 2) for past, new in zip(cache[2 * i:2 * i + 2], (k, v))]
            return both, both
        return self.forward(ids, position, None, keep)

    def in_place(self, ids: mx.array, position: mx.array, *cache: mx.array) -> list[mx.array]:
        """One new token; caches with room for more rows. No shape depends on the position, so one compiled function serves all."""
        mask = mx.arange(cache[0].shape[2]) <= position

        def keep(i: int, k: mx.array, v: mx.array):
            both = [mx.slice_update(past, new, position, (2,)) for past, new in zip(cache[2 * i:2 * i + 2], (k, v))]
            return both, both
        return self.forward(ids, position, mask, keep)

    def in_place_up_to(self, length: int) -> Callable[..., list[mx.array]]:
        """The same, but attention sees no more than `length` rows: another function for each length, not for mx.compile."""
        def step(ids: mx.array, position: mx.array, *cache: mx.array) -> list[mx.array]:
            def keep(i: int, k: mx.array, v: mx.array):
                both = [mx.slice_update(past, new, position, (2,)) for past, new in zip(cache[2 * i:2 * i + 2], (k, v))]
                return [kept[:, :, :length] for kept in both], both
            return self.forward(ids, position, None, keep)
        return step


# ---- a sentence encoder: BERT, three layers, mean over the tokens ---------------------------------------------------------------
class MiniLM:
    def __init__(self, path: str, layers: int = 3, heads: int = 12):
        t = {i.name: mx.array(numpy_helper.to_array(i)) for i in onnx.load(path).graph.initializer}
        prefix = "model.0.auto_model."
        self.t = {k.removeprefix(prefix): v for k, v in t.items() if k.startswith(prefix)}
        products = [v for k, v in t.items() if k.startswith("onnx::MatMul")]  # six for each layer, in order
        self.w = [products[6 * i:6 * i + 6] for i in range(layers)]
        self.heads = heads

    def norm(self, x: mx.array, name: str) -> mx.array:
        return mx.fast.layer_norm(x, self.t[name + ".LayerNorm.weight"], self.t[name + ".LayerNorm.bias"], 1e-12)

    def layer(self, x: mx.array, mask: mx.array, i: int) -> mx.array:
        (q, k, v, o, up, down), name = self.w[i], f"encoder.layer.{i}."
        b, n, width = x.shape
        heads = lambda y: y.reshape(b, n, self.heads, -1).transpose(0, 2, 1, 3)  # noqa: E731
        q, k, v = (heads(mx.addmm(self.t[f"{name}attention.self.{part}.bias"], x, w))
                   for part, w in (("query", q), ("key", k), ("value", v)))
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)
        y = mx.addmm(self.t[name + "attention.output.dense.bias"], y.transpose(0, 2, 1, 3).reshape(b, n, width), o)
        x = self.norm(x + y, name + "attention.output")
        h = mx.addmm(self.t[name + "intermediate.dense.bias"], x, up)
        h = h * (1 + mx.erf(h * 2 ** -0.5)) * 0.5
        return self.norm(x + mx.addmm(self.t[name + "output.dense.bias"], h, down), name + "output")

    def __call__(self, ids: mx.array, mask: mx.array) -> list[mx.array]:
        e = "embeddings."
        x = self.t[e + "word_embeddings.weight"][ids] + self.t[e + "token_type_embeddings.weight"][0]
        x = self.norm(x + self.t[e + "position_embeddings.weight"][:ids.shape[1]], "embeddings")
        counted = mask.astype(mx.float32)
        hidden = (1 - counted)[:, None, None, :] * -3.4e38
        for i in range(len(self.w)):
            x = self.layer(x, hidden, i)
        counted = counted[..., None]
        return [mx.sum(x * counted, 1) / mx.maximum(mx.sum(counted, 1), 1e-9)]
