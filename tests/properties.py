"""What the property tests share: random shapes, values and parameters, and the check of a random case.

PROPERTY_EXAMPLES is the number of cases for each property (20). A failure prints the smallest failing case, and the seed that
finds it again: `pytest --hypothesis-seed=N`. ONNX Runtime's CPU provider is the oracle; what it refuses is no case.
"""
from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import pathlib

import numpy as np
from hypothesis import HealthCheck, core, given, note, reject, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from case import Case, check_runs, expected, model_of, session

HALVES = (np.float16, bfloat16)
FLOATS = (np.float32, np.float16, np.float64, bfloat16)
SIGNED = (np.int32, np.int64, np.int8, np.int16)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
INTS = SIGNED + UNSIGNED
ALL = FLOATS + INTS + (np.bool_,)
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5)

one_of = st.sampled_from
flags = st.booleans()


def prop(cases):
    """A test of many random cases."""

    @settings(max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "20")), deadline=None, database=None, derandomize="PROPERTY_SEED" not in os.environ,
              print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(case=cases(), symbolic=flags)
    def test(case: Case, symbolic: bool):
        note(f"pytest --hypothesis-seed={core.global_force_seed}")
        check_runs(with_oracle(case, symbolic), symbolic)

    return test


def is_half(a) -> bool:
    return a is not None and np.asarray(a).dtype in [np.dtype(t) for t in HALVES]


def widened(case: Case) -> Case:
    return dataclasses.replace(case, inputs=[a.astype(np.float32) if is_half(a) else a for a in case.inputs], out_types=None)


def ort_values(case: Case, symbolic: bool) -> list:
    feeds = {f"in{i}": a for i, a in enumerate(case.inputs) if a is not None and i not in case.const}
    return expected(case, model_of(case, symbolic), feeds)


def must_be_legal(case: Case, symbolic: bool) -> None:
    """Raises ORT's error for a model that ONNX does not allow; that ORT has no kernel is none."""
    try:
        session(model_of(case, symbolic), False)
    except Exception as e:
        if type(e).__name__ != "NotImplemented":
            raise


def with_oracle(case: Case, symbolic: bool) -> Case:
    """The case with ORT's values. For types that it has no kernel for, float32's values, rounded."""
    if case.want is not None:
        return case
    inputs = [None if a is None else np.asarray(a) for a in case.inputs]
    case = dataclasses.replace(case, inputs=inputs)
    half = next((a.dtype for a in inputs if is_half(a)), None)
    try:
        if half is None:
            return dataclasses.replace(case, want=ort_values(case, symbolic))
        must_be_legal(case, symbolic)
        want = ort_values(widened(case), symbolic)
    except Exception as e:  # ORT's own classes, one for each status
        if type(e).__module__.startswith("onnxruntime"):
            reject()
        raise
    with np.errstate(over="ignore"):
        return dataclasses.replace(case, want=[w.astype(half) if w.dtype == np.float32 else w for w in want])


# ---- values -------------------------------------------------------------------------------------------------------------------
def shape(draw, lo=0, hi=6, most=5, zeros=True) -> tuple:
    rank = draw(st.integers(lo, hi))
    least = 0 if zeros and draw(st.integers(0, 4)) == 4 else 1
    return tuple(draw(st.lists(st.integers(least, most if rank < 5 else min(most, 3)), min_size=rank, max_size=rank)))


def values(draw, dims, t, scale=3.0, special=False, lo=None, hi=None) -> np.ndarray:
    """Floats around 0 or uniform from lo to hi; integers from lo to hi, or small ones, or any of the type."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    t = np.dtype(t)
    if t == np.bool_:
        return np.asarray(rng.random(dims) < 0.5)
    if t.kind in "iu":
        info = np.iinfo(t)
        if special and lo is None and draw(flags):
            lo, hi = info.min, info.max
        lo, hi = max(-9 if lo is None else lo, info.min), min(9 if hi is None else hi, info.max)
        return rng.integers(lo, hi, dims, t, endpoint=True)
    x = rng.standard_normal(dims) * scale if lo is None else rng.uniform(lo, hi, dims)
    if special and draw(flags):
        x = np.where(rng.random(dims) < 0.3, rng.choice(SPECIAL, dims), x)
    return np.asarray(x).astype(t)


def i64(v) -> np.ndarray:
    return np.asarray(v, np.int64)


def index_of(draw, v):
    """Parameters as int64 or int32."""
    return np.asarray(v, draw(one_of((np.int64, np.int32))))


def axis_of(draw, rank: int) -> int:
    return draw(st.integers(-rank, rank - 1))


def axes_of(draw, rank: int, least=0) -> list:
    """Some axes, each once, negative or not, in any order."""
    some = draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=least, max_size=rank)) if rank else []
    return [a - rank if draw(flags) else a for a in some]


def some_const(draw, which) -> tuple:
    return tuple(i for i in which if draw(flags))


def partner(draw, dims: tuple) -> tuple:
    """A shape that broadcasts to dims."""
    cut = draw(st.integers(0, len(dims)))
    return tuple(1 if draw(st.integers(0, 3)) == 3 else d for d in dims[cut:])


def pair(draw, dims: tuple) -> list:
    """Two shapes that broadcast to dims, or to a smaller shape."""
    a, b = tuple(1 if draw(st.integers(0, 4)) == 4 else d for d in dims), partner(draw, dims)
    return [b, a] if draw(flags) else [a, b]


# ---- cases of the families' own builders --------------------------------------------------------------------------------------
@functools.cache
def family(name: str):
    """src/ops/<name>_test.py, apart from the module that pytest collects."""
    path = pathlib.Path(__file__).parent.parent / "src" / "ops" / f"{name}_test.py"
    spec = importlib.util.spec_from_file_location(f"built_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(draw, name: str, build) -> Case:
    """The case that build(module) adds to the family, with the builder's oracle and numbers of this draw."""
    module = family(name)
    module.rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    before = len(module.f.cases)
    build(module)
    added = module.f.cases[before:]
    del module.f.cases[before:]
    assert len(added) == 1, f"{len(added)} cases were built"
    return added[0]
