"""A GGUF file of the Llama family: its settings and its tensors, checked for being what the importer can turn into a graph."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from .blocks import Affine, read_affine, read_weights

_LAYER_TENSORS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
_TOP_TENSORS = ("token_embd", "output_norm", "output", "rope_freqs")
_REQUIRED_TOP_TENSORS = ("token_embd", "output_norm")


class GGUFError(ValueError):
    """The file is not a GGUF file, or not of a kind that can be imported."""


@dataclass(frozen=True)
class Config:
    """The shape of a decoder. Sizes are in elements; `rotary_size` is the number of rotated elements of a head."""
    architecture: str
    name: str
    layers: int
    hidden_size: int
    ffn_size: int
    heads: int
    kv_heads: int
    head_size: int
    rotary_size: int
    rope_base: float
    rope_scale: float  # positions are divided by it
    norm_epsilon: float
    context_length: int
    vocab_size: int


class Source:
    """An open GGUF file. Tensors are addressed by their name without ".weight"."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise GGUFError(f"no such file: {path}")
        try:
            self._reader = GGUFReader(path)
        except Exception as error:  # the reader raises whatever its parsing runs into
            raise GGUFError(f"{path} is not a GGUF file: {error}") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.path = path
        self.config = self._read_config()
        self._check_tensors()

    def field(self, key: str, default: Any = None) -> Any:
        entry = self._reader.fields.get(key)
        return default if entry is None else entry.contents()

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self._tensors

    def type_name(self, name: str) -> str:
        return str(self._tensor(name).tensor_type.name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Outermost dimension first; a matrix is [outputs, inputs]."""
        return tuple(int(size) for size in reversed(self._tensor(name).shape))

    def weights(self, name: str) -> np.ndarray:
        """float32, rows of q and k in the order of half-split rotary embedding."""
        values = read_weights(self._tensor(name).data, self.type_name(name), self.shape(name))
        return values[self._row_order(name)] if self._is_rotated(name) else values

    def affine(self, name: str) -> Affine | None:
        """A matrix as it is stored, when that is scale * (quant - whole zero); rows ordered as in `weights`."""
        found = read_affine(self._tensor(name).data, self.type_name(name), self.shape(name))
        if found is None or not self._is_rotated(name):
            return found
        order = self._row_order(name)
        return Affine(found.bits, found.quants[order], found.scales[order], found.zeros[order])

    def _tensor(self, name: str) -> Any:
        return self._tensors[f"{name}.weight"]

    @staticmethod
    def _is_rotated(name: str) -> bool:
        return name.endswith((".attn_q", ".attn_k"))

    def _row_order(self, name: str) -> np.ndarray:
        # GGUF stores the rotated rows of a head in pairs (0, half), (1, half + 1), ...; rows past them are not moved.
        rows = np.arange(self.shape(name)[0]).reshape(-1, self.config.head_size)
        rotated = rows[:, :self.config.rotary_size]
        split = np.concatenate([rotated[:, 0::2], rotated[:, 1::2]], axis=1)
        return np.concatenate([split, rows[:, self.config.rotary_size:]], axis=1).reshape(-1)

    def _read_config(self) -> Config:
        architecture = self.field("general.architecture", "")
        if architecture != "llama":
            raise GGUFError(f"{self.path.name} holds a model of architecture {architecture!r}; only llama can be imported")

        def setting(key: str, default: Any = None) -> Any:
            value = self.field(f"{architecture}.{key}", default)
            if value is None:
                raise GGUFError(f"{self.path.name} lacks the setting {architecture}.{key}")
            return value

        hidden, heads = int(setting("embedding_length")), int(setting("attention.head_count"))
        head_size = int(setting("attention.key_length", hidden // heads))
        scaling = setting("rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            raise GGUFError(f"rotary scaling of type {scaling!r} is not supported; none and linear are")
        return Config(
            architecture=architecture, name=self.field("general.name", self.path.stem), layers=int(setting("block_count")),
            hidden_size=hidden, ffn_size=int(setting("feed_forward_length")), heads=heads,
            kv_heads=int(setting("attention.head_count_kv", heads)), head_size=head_size,
            rotary_size=int(setting("rope.dimension_count", head_size)), rope_base=float(setting("rope.freq_base", 10000.0)),
            rope_scale=float(setting("rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0,
            norm_epsilon=float(setting("attention.layer_norm_rms_epsilon")), context_length=int(setting("context_length")),
            vocab_size=self._vocab_size())

    def _vocab_size(self) -> int:
        if not self.has("token_embd"):
            raise GGUFError(f"{self.path.name} lacks the tensor token_embd.weight")
        return self.shape("token_embd")[0]

    def _check_tensors(self) -> None:
        """Every tensor must be one that the graph uses, with the shape it has there: a biased or mixture model is refused, not misread."""
        expected = self._expected_shapes()
        for full_name in self._tensors:
            name = full_name.removesuffix(".weight")
            layer = re.fullmatch(r"blk\.\d+\.(\w+)", name)
            known = layer.group(1) in _LAYER_TENSORS if layer else name in _TOP_TENSORS
            if not known or not full_name.endswith(".weight"):
                raise GGUFError(f"{self.path.name} has the tensor {full_name}, which the importer does not know")
        for name, shape in expected.items():
            if not self.has(name):
                if name in _TOP_TENSORS and name not in _REQUIRED_TOP_TENSORS:
                    continue
                raise GGUFError(f"{self.path.name} lacks the tensor {name}.weight")
            if self.shape(name) != shape:
                raise GGUFError(f"{name}.weight has the shape {self.shape(name)}, its settings say {shape}")

    def _expected_shapes(self) -> dict[str, tuple[int, ...]]:
        c = self.config
        queries, keys = c.heads * c.head_size, c.kv_heads * c.head_size
        layer = {"attn_norm": (c.hidden_size,), "attn_q": (queries, c.hidden_size), "attn_k": (keys, c.hidden_size),
                 "attn_v": (keys, c.hidden_size), "attn_output": (c.hidden_size, queries), "ffn_norm": (c.hidden_size,),
                 "ffn_gate": (c.ffn_size, c.hidden_size), "ffn_up": (c.ffn_size, c.hidden_size), "ffn_down": (c.hidden_size, c.ffn_size)}
        shapes = {f"blk.{index}.{name}": shape for index in range(c.layers) for name, shape in layer.items()}
        shapes.update({"token_embd": (c.vocab_size, c.hidden_size), "output_norm": (c.hidden_size,),
                       "output": (c.vocab_size, c.hidden_size), "rope_freqs": (c.rotary_size // 2,)})
        return shapes
