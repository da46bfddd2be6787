"""Inputs for a model: given in a file, or made from the model's own declarations.

Made inputs are seeded, so that every run of a model sees the same numbers. Floats are normally distributed, token ids stay below the
size of the table they select from, masks are ones. Dimensions of the same symbolic name get the same size.
"""
from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .cli_common import CliError

_BATCH, _SEQUENCE, _PAST, _PIXELS, _SAMPLES = 1, 8, 8, 64, 512
_DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
           "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
           "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64}
_SOUND = ("input", "audio", "samples", "speech", "wave", "waveform")
_TOKEN_LIMIT = 1000  # ids above it are rare words: no need for them when the table's size is unknown


@dataclass(frozen=True)
class InputSpec:
    """A declared input: a dimension is a size, a symbolic name, or None when it has neither."""
    name: str
    type: str
    shape: tuple[int | str | None, ...]


def specs_of(session: Any) -> list[InputSpec]:
    return [InputSpec(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]


def load_inputs(path: str, specs: Iterable[InputSpec]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, checked against the model's input names."""
    if not Path(path).is_file():
        raise CliError(f"no such file: {path}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, AttributeError) as error:
        raise CliError(f"{path} is not an .npz file of arrays: {error}") from error
    names = [spec.name for spec in specs]
    missing = [name for name in names if name not in arrays]
    unknown = [name for name in arrays if name not in names]
    if missing or unknown:
        wrong = "lacks " + ", ".join(missing) if missing else "has " + ", ".join(unknown) + ", which the model does not take"
        raise CliError(f"{path} {wrong}; the model takes {', '.join(names)}")
    return arrays


def make_inputs(specs: list[InputSpec], sizes: Mapping[str, int], model: onnx.ModelProto | None = None) -> dict[str, np.ndarray]:
    """Made inputs; `sizes` overrides dimensions by symbolic name, or by INPUT:AXIS."""
    _check_overrides(specs, sizes)
    limits = _token_limits(model) if model is not None else {}
    shapes = resolve_shapes(specs, sizes)
    return {spec.name: _make(spec, shapes[spec.name], limits.get(spec.name)) for spec in specs}


def resolve_shapes(specs: list[InputSpec], sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """A size for every dimension of every input."""
    symbols: dict[str, int] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, str) and dim not in symbols:
                symbols[dim] = sizes[dim] if dim in sizes else _default_size(spec, axis, dim)
    for name in symbols:
        if name not in sizes:
            symbols[name] = _derived_size(name, symbols)
    shapes = {}
    for spec in specs:
        named = (dim if isinstance(dim, int) else symbols[dim] if dim else _default_size(spec, axis, "")
                 for axis, dim in enumerate(spec.shape))
        shapes[spec.name] = tuple(sizes.get(f"{spec.name}:{axis}", size) for axis, size in enumerate(named))
    return shapes


def _check_overrides(specs: list[InputSpec], sizes: Mapping[str, int]) -> None:
    known = {dim for spec in specs for dim in spec.shape if isinstance(dim, str) and dim}
    places = {f"{spec.name}:{axis}" for spec in specs for axis in range(len(spec.shape))}
    for name in sizes:
        if name not in known and name not in places:
            listed = ", ".join(sorted(known)) or "none by name (use INPUT:AXIS)"
            raise CliError(f"the model has no dimension {name!r}; it has {listed}")


def _default_size(spec: InputSpec, axis: int, symbol: str) -> int:
    name = symbol.lower()
    if "batch" in name or name in ("n", "b"):
        return _BATCH
    if "past" in name:
        return _PAST
    if axis == 1 and len(spec.shape) == 2 and "float" in spec.type and (not symbol or spec.name.lower() in _SOUND):
        return _SAMPLES
    if any(word in name for word in ("seq", "total", "time", "len", "token")):
        return _SEQUENCE
    if any(word in name for word in ("height", "width")):
        return _PIXELS
    if axis == 0 or _is_state(spec.name) and axis == 1:
        return _BATCH
    if len(spec.shape) == 4 and axis >= 2 and "float" in spec.type:
        return _PIXELS
    return _SEQUENCE


def _is_state(name: str) -> bool:
    """Recurrent state, laid out [directions or layers, batch, size]."""
    return bool(re.search(r"state|hidden|^[hc]n?_?[0-9]*$", name.lower()))


def _derived_size(name: str, symbols: Mapping[str, int]) -> int:
    """A sum such as "past_sequence_length + 1", or the total length of a decoder's mask: past and present together."""
    terms = [term.strip() for term in name.split("+")]
    if len(terms) > 1 and all(term in symbols or term.isdigit() for term in terms):
        return sum(symbols[term] if term in symbols else int(term) for term in terms)
    if "total" in name.lower():
        past = [size for other, size in symbols.items() if "past" in other.lower() and "+" not in other]
        new = [size for other, size in symbols.items()
               if re.search("seq", other.lower()) and not re.search(r"past|total|\+", other.lower())]
        if past and new:
            return past[0] + new[0]
    return symbols[name]


def _token_limits(model: onnx.ModelProto) -> dict[str, int]:
    """For each input that selects rows of a table: the number of rows of the smallest such table."""
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    alias = {item.name: item.name for item in model.graph.input}
    limits: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in alias:
            alias[node.output[0]] = alias[node.input[0]]
        if node.op_type in ("Gather", "GatherBlockQuantized") and node.input[1] in alias and node.input[0] in tables:
            name = alias[node.input[1]]
            limits[name] = min(limits.get(name, tables[node.input[0]]), tables[node.input[0]])
    return limits


def _make(spec: InputSpec, shape: tuple[int, ...], limit: int | None) -> np.ndarray:
    dtype = _DTYPES.get(spec.type)
    if dtype is None:
        raise CliError(f"input {spec.name} is {spec.type}, for which no values can be made; give them with --inputs")
    random = np.random.default_rng(zlib.crc32(spec.name.encode()))
    if np.issubdtype(dtype, np.floating):
        return random.standard_normal(shape).astype(dtype)
    if dtype is np.bool_:
        return random.integers(0, 2, shape).astype(dtype)
    return np.asarray(_made_integers(spec.name.lower(), shape, limit, random), dtype=dtype)


def _made_integers(name: str, shape: tuple[int, ...], limit: int | None, random: np.random.Generator) -> Any:
    if "mask" in name:
        return np.ones(shape)
    if "token_type" in name or "segment" in name:
        return np.zeros(shape)
    if "position" in name and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape)
    if name in ("sr", "sample_rate", "sampling_rate"):
        return np.full(shape, 16000)
    if limit is None:
        limit = _TOKEN_LIMIT if "id" in name or "token" in name else 8
    return random.integers(0, min(limit, _TOKEN_LIMIT), shape)
