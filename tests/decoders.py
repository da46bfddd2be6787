"""Small decoders of random weights, in the forms that exporters emit, and a driver that feeds them step by step."""
from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16),
         "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


@dataclasses.dataclass(frozen=True)
class Shape:
    """attention: gqa (com.microsoft GroupQueryAttention), mha (com.microsoft MultiHeadAttention), onnx (ai.onnx Attention)."""
    attention: str = "gqa"
    layers: int = 2
    width: int = 32
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    vocabulary: int = 50
    positions: int = 600
    type: str = "f32"
    packed: bool = False          # query, key and value as one tensor
    rotary: float = 1.0           # share of the head that turns; 0: none
    interleaved: bool = False
    window: int = -1
    softcap: float = 0.0
    sink: bool = False
    bits: int = 0                 # MatMulNBits of so many bits in blocks of 16; 0: MatMul
    from_mask: bool = True        # lengths are computed from attention_mask, as onnxruntime-genai's builder does
    embeds: bool = False          # inputs_embeds instead of input_ids
    seed: int = 0


class Builder:
    def __init__(self, shape: Shape):
        self.s = shape
        self.onnx_type, self.np_type = TYPES[shape.type]
        self.random = np.random.default_rng(shape.seed)
        self.nodes, self.constants, self.counter = [], {}, 0

    def node(self, op: str, inputs: list[str], outs: int | list[str] = 1, domain: str = "", **attrs) -> str:
        self.counter += 1
        outputs = outs if isinstance(outs, list) else [f"v{self.counter}_{i}" for i in range(outs)]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"n{self.counter}_{op}", domain=domain, **attrs))
        return outputs[0]

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name: str, *dims: int, scale: float | None = None) -> str:
        w = self.random.standard_normal(dims) * (scale or dims[0] ** -0.5)
        return self.constant(name, w.astype(self.np_type))

    def linear(self, x: str, name: str, k: int, n: int) -> str:
        if not self.s.bits:
            return self.node("MatMul", [x, self.weight(name, k, n)])
        blocks, each = -(-k // 16), 16 * self.s.bits // 8
        q = self.constant(name + ".q", self.random.integers(0, 256, (n, blocks, each)).astype(np.uint8))
        scales = self.constant(name + ".scales", (0.02 * self.random.random(n * blocks) + 0.01).astype(self.np_type))
        return self.node("MatMulNBits", [x, q, scales], domain="com.microsoft", K=k, N=n, bits=self.s.bits, block_size=16)

    def norm(self, x: str, name: str) -> str:
        return self.node("SimplifiedLayerNormalization", [x, self.constant(name, np.ones(self.s.width, self.np_type))],
                         axis=-1, epsilon=1e-6, stash_type=1)

    def tables(self) -> list[str]:
        half = int(self.s.size * self.s.rotary) // 2
        angle = np.outer(np.arange(self.s.positions), 100.0 ** (-np.arange(half) / half))
        return [self.constant("cos", np.cos(angle).astype(self.np_type)), self.constant("sin", np.sin(angle).astype(self.np_type))]

    def lengths(self) -> list[str]:
        if not self.s.from_mask:
            return ["seqlens_k", "total_sequence_length"]
        if "lengths" not in self.constants:
            one, axis = self.constant("one", np.array([1], np.int64)), self.constant("axis", np.array(1, np.int64))
            last = self.node("Sub", [self.node("ReduceSum", ["attention_mask", one], keepdims=0), one])
            self.last = self.node("Cast", [last], to=TensorProto.INT32)
            self.total = self.node("Cast", [self.node("Gather", [self.node("Shape", ["attention_mask"]), axis])], to=TensorProto.INT32)
            self.constant("lengths", np.array(0))
        return [self.last, self.total]

    def gqa(self, qkv: list[str], past: list[str], present: list[str]) -> str:
        s = self.s
        tables = self.tables() if s.rotary else ["", ""]
        sink = [self.constant("sink", self.random.standard_normal(s.heads).astype(self.np_type))] if s.sink else []
        inputs = qkv + past + self.lengths() + tables + (["", ""] + sink if sink else [])
        return self.node("GroupQueryAttention", inputs, [f"att{past[0]}"] + present, domain="com.microsoft", num_heads=s.heads,
                         kv_num_heads=s.kv_heads, do_rotary=int(s.rotary > 0), rotary_interleaved=int(s.interleaved),
                         local_window_size=s.window, softcap=s.softcap)

    def mha(self, qkv: list[str], past: list[str], present: list[str]) -> str:
        mask = [self.node("Cast", ["attention_mask"], to=TensorProto.INT32)] if self.s.from_mask else [""]
        return self.node("MultiHeadAttention", qkv + [""] + mask + [""] + past, [f"att{past[0]}"] + present,
                         domain="com.microsoft", num_heads=self.s.heads)

    def plain(self, qkv: list[str], past: list[str], present: list[str]) -> str:
        return self.node("Attention", qkv + [""] + past, [f"att{past[0]}"] + present, q_num_heads=self.s.heads,
                         kv_num_heads=self.s.kv_heads, is_causal=1, softcap=self.s.softcap)

    def layer(self, x: str, i: int) -> str:
        s = self.s
        kv = s.heads if s.attention == "mha" else s.kv_heads
        h = self.norm(x, f"norm{i}")
        if s.packed:
            qkv = [self.linear(h, f"qkv{i}", s.width, (s.heads + 2 * kv) * s.size), "", ""]
        else:
            qkv = [self.linear(h, f"{n}{i}", s.width, c * s.size) for n, c in (("q", s.heads), ("k", kv), ("v", kv))]
        names = [[f"{w}.{i}.{part}" for part in ("key", "value")] for w in ("past_key_values", "present")]
        a = {"gqa": self.gqa, "mha": self.mha, "onnx": self.plain}[s.attention](qkv, *names)
        x = self.node("Add", [x, self.linear(a, f"o{i}", s.heads * s.size, s.width)])
        h = self.norm(x, f"post{i}")
        gate = self.linear(h, f"gate{i}", s.width, 2 * s.width)
        gate = self.node("Mul", [gate, self.node("Sigmoid", [gate])])
        mlp = self.node("Mul", [gate, self.linear(h, f"up{i}", s.width, 2 * s.width)])
        return self.node("Add", [x, self.linear(mlp, f"down{i}", 2 * s.width, s.width)])

    def build(self) -> onnx.ModelProto:
        s = self.s
        kv = s.heads if s.attention == "mha" else s.kv_heads
        x = "inputs_embeds" if s.embeds else self.node("Gather", [self.weight("embedding", s.vocabulary, s.width, scale=1.0), "input_ids"])
        for i in range(s.layers):
            x = self.layer(x, i)
        self.node("MatMul", [self.norm(x, "last"), self.weight("head", s.width, s.vocabulary)], ["logits"])
        info = helper.make_tensor_value_info
        ins = [info("inputs_embeds", self.onnx_type, ["batch", "rows", s.width]) if s.embeds
               else info("input_ids", TensorProto.INT64, ["batch", "rows"])]
        if s.attention != "onnx" and s.from_mask:
            ins.append(info("attention_mask", TensorProto.INT64, ["batch", "total"]))
        elif s.attention == "gqa":
            ins += [info("seqlens_k", TensorProto.INT32, ["batch"]), info("total_sequence_length", TensorProto.INT32, [])]
        outs = [info("logits", self.onnx_type, ["batch", "rows", s.vocabulary])]
        for i in range(s.layers):
            for part in ("key", "value"):
                ins.append(info(f"past_key_values.{i}.{part}", self.onnx_type, ["batch", kv, "past", s.size]))
                outs.append(info(f"present.{i}.{part}", self.onnx_type, ["batch", kv, "all", s.size]))
        self.constants.pop("lengths", None)
        graph = helper.make_graph(self.nodes, "decoder", ins, outs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", 23 if s.attention == "onnx" else 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10
        return model


def decoder(**kw) -> tuple[Shape, onnx.ModelProto]:
    shape = Shape(**kw)
    return shape, Builder(shape).build()


class Driver:
    """Feeds a session: a growing cache, or with `capacity` one buffer that past and present share."""

    def __init__(self, shape: Shape, session: ort.InferenceSession, batch: int = 1, capacity: int = 0):
        self.s, self.session, self.batch, self.capacity = shape, session, batch, capacity
        self.kv = shape.heads if shape.attention == "mha" else shape.kv_heads
        self.names = [i.name for i in session.get_inputs()]
        self.outs = [o.name for o in session.get_outputs()]
        self.lengths = np.zeros(batch, np.int64)
        self.np_type = TYPES[shape.type][1]
        rows = capacity
        empty = np.zeros((batch, self.kv, rows, shape.size), self.np_type)
        self.cache = {n: self.value(empty.copy()) for n in self.names if n.startswith("past")}
        self.table = np.random.default_rng(7).standard_normal((shape.vocabulary, shape.width)).astype(self.np_type)

    def value(self, array: np.ndarray) -> ort.OrtValue:
        if array.dtype.name == "bfloat16":
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
        return ort.OrtValue.ortvalue_from_numpy(array)

    def feeds(self, ids: np.ndarray) -> dict[str, ort.OrtValue]:
        total = int(self.lengths.max()) + ids.shape[1]
        mask = (np.arange(total)[None] < (self.lengths + ids.shape[1])[:, None]).astype(np.int64)
        every = {"input_ids": ids, "attention_mask": mask, "inputs_embeds": self.table[ids],
                 "seqlens_k": (self.lengths + ids.shape[1] - 1).astype(np.int32), "total_sequence_length": np.array(total, np.int32)}
        return {n: self.value(every[n]) for n in self.names if n in every}

    def step(self, ids) -> np.ndarray:
        """Logits [batch, rows, vocabulary] of the new tokens, which join the cache."""
        ids = np.asarray(ids, np.int64).reshape(self.batch, -1)
        bound = self.session.io_binding()
        for name, value in {**self.feeds(ids), **self.cache}.items():
            bound.bind_ortvalue_input(name, value)
        for name in self.outs:
            past = name.replace("present", "past_key_values")
            if self.capacity and past in self.cache:
                bound.bind_ortvalue_output(name, self.cache[past])
            else:
                bound.bind_output(name)
        self.session.run_with_iobinding(bound)
        values = dict(zip(self.outs, bound.get_outputs()))
        self.lengths += ids.shape[1]
        for name in self.cache:
            if not self.capacity:
                self.cache[name] = values[name.replace("past_key_values", "present")]
        return numbers(values["logits"])

    def rows(self, name: str, b: int = 0) -> np.ndarray:
        """The valid rows of one cache [heads, rows, size]."""
        return numbers(self.cache[name])[b, :, :int(self.lengths[b])]


def numbers(value: ort.OrtValue) -> np.ndarray:
    if "bfloat16" not in value.data_type():
        return value.numpy()
    from case import bf16_of
    return bf16_of(value, ml_dtypes.bfloat16)
