"""Float weights to blocks of scale * (quant - zero), with a whole zero, by least squared error.

For 4 bits a block has few levels, so both its numbers are searched: zeros around the one that spreads the levels over the block's
range, and for each a few steps, from the one that reaches the whole range down to ones that clip its ends. Quants found with a step
then fix the best scale in closed form: sum(w g) / sum(g g) with g = quant - zero, at the error sum(w w) - sum(w g)^2 / sum(g g).
"""
from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .blocks import BLOCK, Affine

_STEPS = (1.0, 0.96, 0.92, 0.88, 0.84)
_ZERO_OFFSETS = (-1, 0, 1, 2)
_CHUNK = 4096  # blocks at a time: their temporaries stay in a core's cache


def quantize(weights: np.ndarray, bits: int) -> Affine:
    """Quantises float32 [rows, columns]; columns are padded with zeros to whole blocks of 32."""
    rows, columns = weights.shape
    padded = np.pad(weights, ((0, 0), (0, -columns % BLOCK)))
    blocks = padded.reshape(-1, BLOCK)
    pieces = [blocks[start:start + _CHUNK] for start in range(0, len(blocks), _CHUNK)]
    best = _search if bits == 4 else _symmetric_8
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(best, pieces))
    quants, scales, zeros = (np.concatenate(part) for part in zip(*found))
    count = padded.shape[1] // BLOCK
    return Affine(bits, quants.reshape(rows, count, BLOCK), scales.reshape(rows, count), zeros.reshape(rows, count))


def _symmetric_8(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    largest = np.abs(blocks).max(-1)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    quants = (np.rint(blocks / scales[:, None]) + 128).astype(np.uint8)
    return quants, scales, np.full(scales.shape, 128, np.uint8)


def _search(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low = np.minimum(blocks.min(-1), 0)
    high = np.maximum(blocks.max(-1), 0)
    width = np.where(high > low, high - low, 1)
    base = np.floor(-low / width * 15)
    gain = np.zeros(len(blocks), np.float32)   # the squared error is sum(w w) less this
    scales = np.ones(len(blocks), np.float32)
    zeros = np.clip(base, 0, 15).astype(np.float32)
    quants = np.repeat(zeros[:, None], BLOCK, axis=1)
    for offset in _ZERO_OFFSETS:
        zero = np.clip(base + offset, 0, 15).astype(np.float32)
        reach = np.maximum(-low / np.maximum(zero, 0.5), high / np.maximum(15 - zero, 0.5))
        for step in _STEPS:
            found = _quants(blocks, zero, np.where(reach > 0, reach * step, 1))
            centred = found - zero[:, None]
            cross = np.einsum("ij,ij->i", blocks, centred)
            square = np.maximum(np.einsum("ij,ij->i", centred, centred), 1)
            better = (cross > 0) & (cross * cross > gain * square)
            gain[better] = (cross * cross / square)[better]
            scales[better] = (cross / square)[better]
            zeros[better] = zero[better]
            quants[better] = found[better]
    return quants.astype(np.uint8), scales, zeros.astype(np.uint8)


def _quants(blocks: np.ndarray, zero: np.ndarray, step: np.ndarray) -> np.ndarray:
    found = blocks * (1 / step)[:, None].astype(np.float32)
    found += zero[:, None]
    np.rint(found, out=found)
    return np.clip(found, 0, 15, out=found)
