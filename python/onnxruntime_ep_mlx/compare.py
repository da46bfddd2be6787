"""How far two results of the same model are apart.

max_abs is the largest |a - b|. max_rel is the largest |a - b| / max(|b|, 1e-2 * max|b|), where b is the reference: entries that are
tiny beside the tensor's largest one are measured against a hundredth of that one, so that rounding around zero does not read as a
large error. Entries that are both NaN, or the same infinity, are equal; a NaN or an infinity on one side only gives infinity for
both numbers. Results of different shape or kind are infinitely far apart.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

_FLOOR = 1e-2


@dataclass(frozen=True)
class Difference:
    max_abs: float
    max_rel: float

    def worst(self, other: Difference) -> Difference:
        return Difference(max(self.max_abs, other.max_abs), max(self.max_rel, other.max_rel))


EQUAL = Difference(0.0, 0.0)
APART = Difference(math.inf, math.inf)


def difference(value: Any, reference: Any) -> Difference:
    """`value` against `reference`: arrays, or the lists and dicts that ONNX sequences and maps become."""
    if isinstance(reference, dict):
        return _of_dicts(value, reference)
    if isinstance(reference, (list, tuple)):
        return _of_lists(value, reference)
    if reference is None or value is None:
        return EQUAL if value is reference else APART
    return _of_arrays(np.asarray(value), np.asarray(reference))


def _of_dicts(value: Any, reference: dict[Any, Any]) -> Difference:
    if not isinstance(value, dict) or value.keys() != reference.keys():
        return APART
    return _of_lists([value[key] for key in reference], list(reference.values()))


def _of_lists(value: Any, reference: Any) -> Difference:
    if not isinstance(value, (list, tuple)) or len(value) != len(reference):
        return APART
    result = EQUAL
    for one, other in zip(value, reference):
        result = result.worst(difference(one, other))
    return result


def _of_arrays(value: np.ndarray, reference: np.ndarray) -> Difference:
    if value.shape != reference.shape or value.dtype != reference.dtype:
        return APART
    if value.dtype.kind not in "biufcV":
        return EQUAL if np.array_equal(value, reference) else APART
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    a, b = value.astype(wide), reference.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return EQUAL
    a, b = a[~same], b[~same]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return APART
    finite = np.abs(reference.astype(wide))
    largest = float(np.max(finite, where=np.isfinite(finite), initial=0.0))
    apart = np.abs(a - b)
    floor = max(_FLOOR * largest, np.finfo(np.float64).tiny)
    return Difference(float(apart.max()), float((apart / np.maximum(np.abs(b), floor)).max()))
