"""GGUF tensor formats: from stored bytes to float32 weights.

A format says how many bytes hold one block of how many weights, and decodes blocks. When the blocks are of the form
scale * (quant - zero) with a whole zero, which ONNX's quantised operators share, `decode_affine` gives them without loss; a format that
is not (Q4_1 has a fractional zero) leaves it None and is quantised anew from its float weights. A further format is one row in FORMATS.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

BLOCK = 32


class FormatError(ValueError):
    """A tensor is stored in a format that cannot be read."""


@dataclass(frozen=True)
class Affine:
    """weight = scale * (quant - zero). quants: uint8 [rows, blocks, 32]; scales: float32, zeros: uint8, both [rows, blocks]."""
    bits: int
    quants: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray

    def weights(self) -> np.ndarray:
        """float32 [rows, blocks * 32]"""
        centred = self.quants.astype(np.float32) - self.zeros[..., None].astype(np.float32)
        values: np.ndarray = (centred * self.scales[..., None]).reshape(self.quants.shape[0], -1)
        return values

    @property
    def symmetric(self) -> bool:
        return bool((self.zeros == 1 << (self.bits - 1)).all())


@dataclass(frozen=True)
class Format:
    block_size: int
    block_bytes: int
    decode: Callable[[np.ndarray], np.ndarray]                 # uint8 [..., block_bytes] -> float32 [..., block_size]
    decode_affine: Callable[[np.ndarray], Affine] | None = None  # uint8 [rows, blocks, block_bytes] -> Affine


def read_weights(raw: np.ndarray, type_name: str, shape: tuple[int, ...]) -> np.ndarray:
    """float32 array of `shape` (outermost dimension first) from a tensor's bytes."""
    return _format(type_name).decode(_blocks(raw, type_name, shape)).reshape(shape)


def read_affine(raw: np.ndarray, type_name: str, shape: tuple[int, ...]) -> Affine | None:
    """The blocks of a matrix as they are stored, when ONNX can express them without loss."""
    decode = _format(type_name).decode_affine
    return decode(_blocks(raw, type_name, shape)) if decode else None


def _format(type_name: str) -> Format:
    if type_name not in FORMATS:
        raise FormatError(f"tensors of type {type_name} are not supported; supported are {', '.join(FORMATS)}")
    return FORMATS[type_name]


def _blocks(raw: np.ndarray, type_name: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = _format(type_name)
    count, rest = divmod(int(np.prod(shape, dtype=np.int64)), kind.block_size)
    flat = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    if rest or shape[-1] % kind.block_size or flat.size != count * kind.block_bytes:
        raise FormatError(f"a {type_name} tensor of shape {shape} has {flat.size} bytes: the file is damaged")
    return flat.reshape(*shape[:-1], shape[-1] // kind.block_size, kind.block_bytes)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[..., at:at + 2]).view(np.float16)[..., 0].astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    # The low halves hold the first 16 weights of a block, the high halves the last 16.
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _decode_f32(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks).view(np.float32)


def _decode_f16(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32)


def _affine_q8_0(blocks: np.ndarray) -> Affine:
    quants = np.ascontiguousarray(blocks[..., 2:]) ^ np.uint8(128)  # two's complement to an offset of 128
    scales = _half(blocks, 0)
    return Affine(8, quants, scales, np.full(scales.shape, 128, np.uint8))


def _affine_q4_0(blocks: np.ndarray) -> Affine:
    scales = _half(blocks, 0)
    return Affine(4, _nibbles(blocks[..., 2:]), scales, np.full(scales.shape, 8, np.uint8))


def _decode_q8_0(blocks: np.ndarray) -> np.ndarray:
    quants = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    weights: np.ndarray = quants * _half(blocks, 0)[..., None]
    return weights


def _decode_q4_0(blocks: np.ndarray) -> np.ndarray:
    quants = _nibbles(blocks[..., 2:]).astype(np.float32) - 8
    weights: np.ndarray = quants * _half(blocks, 0)[..., None]
    return weights


def _decode_q4_1(blocks: np.ndarray) -> np.ndarray:
    quants = _nibbles(blocks[..., 4:])
    weights: np.ndarray = quants * _half(blocks, 0)[..., None] + _half(blocks, 2)[..., None]
    return weights


FORMATS = {
    "F32": Format(1, 4, _decode_f32),
    "F16": Format(1, 2, _decode_f16),
    "Q8_0": Format(BLOCK, 34, _decode_q8_0, _affine_q8_0),
    "Q4_0": Format(BLOCK, 18, _decode_q4_0, _affine_q4_0),
    "Q4_1": Format(BLOCK, 20, _decode_q4_1),
}
