"""The graph of a Llama decoder in the form that onnxruntime-genai's model builder emits.

Grouped-query attention does the rotary embedding and owns the KV cache; matrix products are MatMulNBits (or MatMul with quant "none");
residual sums are part of the norms. A tied token embedding is one 8-bit table, read by GatherBlockQuantized and by the lm_head product.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto

from .blocks import BLOCK, Affine
from .graph import MICROSOFT, GraphBuilder
from .quantize import quantize
from .source import Config, Source

QUANT_BITS = {"q4": 4, "q8": 8, "none": 0}
_HEAD_BITS = 8  # the embedding and lm_head keep 8 bits in a quantised model
_MAX_POSITIONS = 131072


@dataclass(frozen=True)
class Options:
    """How a model is built. Every field is part of the cache key.

    quant: "q4" or "q8" (MatMulNBits of 4 or 8 bits), or "none" (float32 MatMul).
    accuracy_level: of MatMulNBits; 4 lets a provider round activations to int8, 0 leaves it free.
    layers: keep only the first N layers (0: all), for small test models.
    context: number of positions in the rotary tables (0: as many as the model was trained for).
    packed_qkv: one product for q, k and v instead of three.
    """
    quant: str = "q4"
    accuracy_level: int = 4
    layers: int = 0
    context: int = 0
    packed_qkv: bool = False


def build(source: Source, options: Options, graph: GraphBuilder) -> Iterator[str]:
    """Fills `graph`, yielding a word before each of its `steps` pieces."""
    return _Decoder(source, options, graph).build()


def effective_config(source: Source, options: Options) -> Config:
    """The model's shape with the options applied."""
    config = source.config
    context = min(options.context or config.context_length, _MAX_POSITIONS)
    return replace(config, layers=min(options.layers or config.layers, config.layers), context_length=context)


def steps(source: Source, options: Options) -> int:
    return effective_config(source, options).layers + 2


class _Decoder:
    def __init__(self, source: Source, options: Options, graph: GraphBuilder) -> None:
        self.source = source
        self.options = options
        self.graph = graph
        self.config = effective_config(source, options)
        self.bits = QUANT_BITS[options.quant]
        self.tied = not source.has("output")

    def build(self) -> Iterator[str]:
        graph, config = self.graph, self.config
        graph.input("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        graph.input("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])
        graph.output("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", config.vocab_size])
        yield "embedding"
        hidden = self.embedding()
        lengths = self.sequence_lengths()
        tables = self.rotary_tables()
        residual = hidden
        normed = graph.node("SimplifiedLayerNormalization", "/model/layers.0/input_layernorm/LayerNorm",
                            [hidden, self.vector("model.layers.0.input_layernorm.weight", "blk.0.attn_norm")],
                            axis=-1, epsilon=config.norm_epsilon, stash_type=1)
        for layer in range(config.layers):
            yield f"layer {layer}"
            normed, residual = self.layer(layer, normed, residual, lengths, tables)
        yield "head"
        self.head(normed)

    def layer(self, index: int, normed: str, residual: str, lengths: list[str], tables: list[str]) -> tuple[str, str]:
        """One block: returns the normed input of the next one and the residual stream."""
        last = index == self.config.layers - 1
        attended = self.attention(index, normed, lengths, tables)
        root, weight = f"/model/layers.{index}", f"model.layers.{index}"
        normed, residual = self.skip_norm(f"{root}/post_attention_layernorm", attended, residual,
                                          self.vector(f"{weight}.post_attention_layernorm.weight", f"blk.{index}.ffn_norm"), True)
        fed = self.feed_forward(index, normed)
        name = f"/model/layers.{index + 1}/final_norm_layernorm" if last else f"/model/layers.{index + 1}/input_layernorm"
        scale = (self.vector("model.norm.weight", "output_norm") if last else
                 self.vector(f"model.layers.{index + 1}.input_layernorm.weight", f"blk.{index + 1}.attn_norm"))
        return self.skip_norm(name, fed, residual, scale, not last)

    def attention(self, index: int, normed: str, lengths: list[str], tables: list[str]) -> str:
        graph, config = self.graph, self.config
        root, block = f"/model/layers.{index}/attn", f"blk.{index}"
        queries = self.projections(index, normed)
        cache = []
        for part in ("key", "value"):
            shape: list[int | str] = ["batch_size", config.kv_heads]
            cache.append(graph.input(f"past_key_values.{index}.{part}", TensorProto.FLOAT, [*shape, "past_sequence_length", config.head_size]))
            graph.output(f"present.{index}.{part}", TensorProto.FLOAT, [*shape, "total_sequence_length", config.head_size])
        attributes = {"num_heads": config.heads, "kv_num_heads": config.kv_heads, "scale": 1 / float(np.sqrt(config.head_size)),
                      "do_rotary": 1, "rotary_interleaved": 0}
        name = f"{root}/GroupQueryAttention"
        outputs = [f"{name}/output_0", f"present.{index}.key", f"present.{index}.value"]
        attended = graph.node("GroupQueryAttention", name, [*queries, *cache, *lengths, *tables], outputs, MICROSOFT, **attributes)
        return self.product(f"{root}/o_proj", f"model.layers.{index}.attn.o_proj", attended, [f"{block}.attn_output"])

    def projections(self, index: int, normed: str) -> list[str]:
        """The query, key and value inputs of the attention; packed ones go in as a query alone."""
        root, weight, block = f"/model/layers.{index}/attn", f"model.layers.{index}.attn", f"blk.{index}"
        if self.options.packed_qkv:
            names = [f"{block}.attn_{part}" for part in "qkv"]
            return [self.product(f"{root}/qkv_proj", f"{weight}.qkv_proj", normed, names), "", ""]
        return [self.product(f"{root}/{part}_proj", f"{weight}.{part}_proj", normed, [f"{block}.attn_{part}"]) for part in "qkv"]

    def feed_forward(self, index: int, normed: str) -> str:
        graph, root, weight, block = self.graph, f"/model/layers.{index}/mlp", f"model.layers.{index}.mlp", f"blk.{index}"
        gate = self.product(f"{root}/gate_proj", f"{weight}.gate_proj", normed, [f"{block}.ffn_gate"])
        up = self.product(f"{root}/up_proj", f"{weight}.up_proj", normed, [f"{block}.ffn_up"])
        opened = graph.node("Sigmoid", f"{root}/act_fn/Sigmoid", [gate])
        active = graph.node("Mul", f"{root}/act_fn/Mul", [gate, opened])
        both = graph.node("Mul", f"{root}/Mul", [active, up])
        return self.product(f"{root}/down_proj", f"{weight}.down_proj", both, [f"{block}.ffn_down"])

    def skip_norm(self, root: str, value: str, residual: str, scale: str, keep_sum: bool) -> tuple[str, str]:
        """norm(value + residual), and the sum itself where the next block needs it."""
        name = f"{root}/SkipLayerNorm"
        outputs = [f"{name}/output_0", "", "", f"{name}/output_3"] if keep_sum else [f"{name}/output_0"]
        normed = self.graph.node("SkipSimplifiedLayerNormalization", name, [value, residual, scale], outputs, MICROSOFT,
                                 epsilon=self.config.norm_epsilon)
        return normed, outputs[-1]

    def embedding(self) -> str:
        graph = self.graph
        if not self.bits:
            table = graph.initializer("model.embed_tokens.weight", self.source.weights("token_embd"))
            return graph.node("Gather", "/model/embed_tokens/Gather", [table, "input_ids"])
        # The product of a tied head wants the table as [vocabulary, blocks, 32]: the lookup reads the same bytes as rows.
        weight = "lm_head.MatMul" if self.tied else "model.embed_tokens"
        stored = self.affine(["token_embd"], _HEAD_BITS)
        table = graph.initializer(f"{weight}.weight_Q8", stored.quants)
        scales = graph.initializer(f"{weight}.weight_scales", stored.scales)
        rows = [stored.quants.shape[0], stored.quants.shape[1] * BLOCK]
        flat = graph.node("Reshape", "/model/embed_tokens/Reshape", [table, graph.constant(rows)])
        return graph.node("GatherBlockQuantized", "/model/embed_tokens/GatherBlockQuantized", [flat, "input_ids", scales],
                          domain=MICROSOFT, bits=_HEAD_BITS, block_size=BLOCK, gather_axis=0, quantize_axis=1)

    def head(self, normed: str) -> None:
        tensor = "token_embd" if self.tied else "output"
        self.product("/lm_head", "lm_head", normed, [tensor], "logits", _HEAD_BITS)

    def product(self, root: str, weight: str, value: str, tensors: list[str], output: str = "", bits: int = 0) -> str:
        """value times the transposed matrices of `tensors`, stacked."""
        outputs = [output] if output else None
        if not self.bits:
            matrix = np.concatenate([self.source.weights(name) for name in tensors])
            return self.graph.node("MatMul", f"{root}/MatMul", [value, self.graph.initializer(f"{weight}.MatMul.weight", matrix.T)], outputs)
        bits = bits or self.bits
        stored = self.affine(tensors, bits)
        inputs = [value, self.graph.initializer(f"{weight}.MatMul.weight_Q{bits}", pack_quants(stored)),
                  self.graph.initializer(f"{weight}.MatMul.weight_scales", stored.scales)]
        if not stored.symmetric:
            inputs.append(self.graph.initializer(f"{weight}.MatMul.weight_zp", pack_zeros(stored)))
        rows, columns = stored.quants.shape[0], self.source.shape(tensors[0])[1]
        return self.graph.node("MatMulNBits", f"{root}/MatMul_Q{bits}", inputs, outputs, MICROSOFT, K=columns, N=rows, bits=bits,
                               block_size=BLOCK, accuracy_level=self.options.accuracy_level)

    def affine(self, tensors: list[str], bits: int) -> Affine:
        """The stored blocks where they fit `bits`, blocks quantised anew elsewhere."""
        parts = []
        for name in tensors:
            stored = self.source.affine(name)
            parts.append(stored if stored is not None and stored.bits == bits else quantize(self.source.weights(name), bits))
        if len(parts) == 1:
            return parts[0]
        return Affine(bits, *(np.concatenate([getattr(part, key) for part in parts]) for key in ("quants", "scales", "zeros")))

    def vector(self, name: str, tensor: str) -> str:
        return self.graph.initializer(name, self.source.weights(tensor))

    def sequence_lengths(self) -> list[str]:
        """The last position of each sequence, and the total length, as the attention wants them."""
        graph, root = self.graph, "/model/attn_mask_reformat/attn_mask_subgraph"
        total = graph.node("ReduceSum", f"{root}/ReduceSum", ["attention_mask", graph.constant([1])], keepdims=0)
        last = graph.node("Sub", f"{root}/Sub", [total, graph.constant(1)])
        lasts = graph.node("Cast", f"{root}/Sub/Cast", [last], to=TensorProto.INT32)
        shape = graph.node("Shape", f"{root}/Shape", ["attention_mask"])
        length = graph.node("Gather", f"{root}/Gather", [shape, graph.constant(1)], axis=0)
        return [lasts, graph.node("Cast", f"{root}/Gather/Cast", [length], to=TensorProto.INT32)]

    def rotary_tables(self) -> list[str]:
        """cos and sin, float32 [positions, rotated elements / 2]: their width tells the attention how much of a head is rotated."""
        config = self.config
        rates = 1 / config.rope_base ** (np.arange(0, config.rotary_size, 2) / config.rotary_size)
        if self.source.has("rope_freqs"):
            rates = rates / self.source.weights("rope_freqs")
        angles = np.outer(np.arange(config.context_length) / config.rope_scale, rates)
        make: dict[str, Callable[[np.ndarray], np.ndarray]] = {"cos_cache": np.cos, "sin_cache": np.sin}
        return [self.graph.initializer(name, function(angles).astype(np.float32)) for name, function in make.items()]


def pack_quants(stored: Affine) -> np.ndarray:
    """uint8 [rows, blocks, bytes]: 4-bit quants in pairs, the first of a pair in the low half."""
    if stored.bits == 8:
        return stored.quants
    packed: np.ndarray = stored.quants[..., 0::2] | stored.quants[..., 1::2] << 4
    return packed


def pack_zeros(stored: Affine) -> np.ndarray:
    """uint8 [rows, bytes]: 4-bit zeros in pairs, each row padded to whole bytes."""
    if stored.bits == 8:
        return stored.zeros
    even = np.pad(stored.zeros, ((0, 0), (0, stored.zeros.shape[1] % 2)))
    packed: np.ndarray = even[:, 0::2] | even[:, 1::2] << 4
    return packed
