import numpy as np
import pytest
from case import Case, Family, model_of, record_of_newest, session

f = Family("random")
f32, f64, f16 = np.float32, np.float64, np.float16
x = np.zeros((3, 4), f32)

# Types and shapes; the values are tested below.
FORMS = ("RandomNormal", "RandomUniform")
for op in FORMS:
    for code, t in ((1, f32), (11, f64), (10, f16)):
        f.case(op, 22, [], attrs={"shape": [3, 4], "dtype": code}, want=[np.zeros((3, 4), t)], any_out=(0,))
        f.case(op + "Like", 22, [x], attrs={"dtype": code}, want=[np.zeros((3, 4), t)], any_out=(0,))
        f.case(op + "Like", 1, [x.astype(t)], want=[x.astype(t)], any_out=(0,))
    f.case(op, 1, [], attrs={"shape": [0, 2]}, want=[np.zeros((0, 2), f32)], any_out=())
    f.case(op + "Like", 1, [np.zeros((0, 2), f32)], want=[np.zeros((0, 2), f32)])
    f.case(op, 1, [], attrs={"shape": [2]}, want=[np.zeros(2, f32)], any_out=(0,))
for p in (0.0, 1.0):
    for t in (f32, f64, f16):
        f.case("Bernoulli", 15, [np.full((5, 3), p, t)], want=[np.full((5, 3), p, t)])
        f.case("Bernoulli", 22, [np.full((5, 3), p, t)], attrs={"dtype": 9}, want=[np.full((5, 3), p, bool)])
        f.case("Bernoulli", 15, [np.full((5, 3), p, t)], attrs={"dtype": 7}, want=[np.full((5, 3), p, np.int64)])
one = np.full((2, 4), -np.inf, f32)
one[0, 2] = one[1, 0] = 1.0
for t in (f32, f64, f16):
    for code, kind in ((6, np.int32), (7, np.int64)):
        f.case("Multinomial", 7, [one.astype(t)], attrs={"sample_size": 5, "dtype": code}, want=[np.array([[2] * 5, [0] * 5], kind)])
f.case("Multinomial", 22, [np.zeros((0, 4), f32)], attrs={"sample_size": 3}, want=[np.zeros((0, 3), np.int32)])
test_random = f.pytest()


def drawn(op, inputs, attrs, sessions=1, runs=1, opset=22):
    case = Case(op, opset, inputs, attrs=attrs)
    feeds = {f"in{i}": a for i, a in enumerate(inputs)}
    found = []
    for _ in range(sessions):
        s = session(model_of(case, False), True, {"claim_all": "1"})
        assert record_of_newest()["claimed"] == 1
        found += [s.run(None, feeds)[0] for _ in range(runs)]
    return found


N = 200_000


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("seed", [{}, {"seed": 3.5}])
def test_moments(like, seed):
    inputs = [np.zeros(N, f32)] if like else []
    shape = {} if like else {"shape": [N]}
    v = drawn("RandomNormal" + "Like" * like, inputs, {**shape, **seed, "mean": 2.0, "scale": 3.0})[0].astype(f64)
    assert abs(v.mean() - 2) < 0.05 and abs(v.std() - 3) < 0.05
    assert abs(((v - 2) ** 3).mean()) / 27 < 0.05 and abs(((v - 2) ** 4).mean() / 81 - 3) < 0.15
    v = drawn("RandomUniform" + "Like" * like, inputs, {**shape, **seed, "low": -1.0, "high": 4.0})[0].astype(f64)
    assert v.min() >= -1 and v.max() <= 4
    assert abs(v.mean() - 1.5) < 0.03 and abs(v.var() - 25 / 12) < 0.05
    assert np.abs(np.histogram(v, 10, (-1, 4))[0] / N - 0.1).max() < 0.005
    assert abs(np.corrcoef(v[1:], v[:-1])[0, 1]) < 0.01


def test_shares():
    p = np.linspace(0, 1, 11, dtype=f32)
    v = drawn("Bernoulli", [np.repeat(p[:, None], N // 10, 1)], {})[0]
    assert np.abs(v.mean(1) - p).max() < 0.02 and set(np.unique(v)) == {0.0, 1.0}
    logits = np.array([[0.0, 1.0, -1.0, 2.0], [5.0, 5.0, -np.inf, 5.0]], f32)
    want = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    v = drawn("Multinomial", [logits], {"sample_size": N})[0]
    for row in range(2):
        assert np.abs(np.bincount(v[row], minlength=4) / N - want[row]).max() < 0.01


@pytest.mark.parametrize("op, inputs, attrs", [("RandomNormal", [], {"shape": [64]}), ("RandomUniformLike", [np.zeros(64, f32)], {}),
                                               ("Bernoulli", [np.full(64, 0.5, f32)], {}), ("Multinomial", [np.zeros((1, 9), f32)], {"sample_size": 64})])
def test_seed_repeats_and_its_absence_does_not(op, inputs, attrs):
    same = drawn(op, inputs, {**attrs, "seed": 7.0}, sessions=2, runs=2)
    assert all(np.array_equal(same[0], v) for v in same[1:])
    assert not np.array_equal(same[0], drawn(op, inputs, {**attrs, "seed": 8.0})[0])
    free = drawn(op, inputs, attrs, sessions=2, runs=2)
    assert not any(np.array_equal(a, b) for i, a in enumerate(free) for b in free[:i])
