import numpy as np
import pytest
from case import Family, compare, record_of_newest, session
from ml_dtypes import bfloat16
from onnx import TensorProto, helper

f = Family("gather")
rng = np.random.default_rng(3)
TYPES = [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]


def data(shape, t=np.float32):
    return (rng.standard_normal(shape) * 50).astype(t) if np.dtype(t).kind != "b" else rng.random(shape) < 0.5


def i64(*v):
    return np.array(v, np.int64)


x = data((4, 5, 6))
bf = data((4, 3)).astype(bfloat16)
empty = np.zeros((0, 3), np.float32)
special = np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e-40, 3.4e38]], np.float32)
big = np.array([2**63 - 1, -2**63, 2**53 + 1], np.int64)

# Gather
for opset in (1, 11, 13):
    f.case("Gather", opset, [x, i64(3, 0, 1)])
    f.case("Gather", opset, [x, i64(1, 2).reshape(1, 2)], attrs={"axis": 1}, const=(1,))
for axis in (-3, -1, 0, 1, 2):
    for index in (i64(1, -1), np.int64(2), np.array([[0, 3], [-4, 1]], np.int32)):
        f.case("Gather", 13, [x, index], attrs={"axis": axis})
for t in TYPES:
    f.case("Gather", 13, [data((4, 3), t), i64(3, -2)])
    f.case("Gather", 13, [data((4, 3), t), np.array([[1, 0]], np.int32)], attrs={"axis": 1}, const=(1,))
f.case("Gather", 13, [x, np.zeros((0,), np.int64)])
f.case("Gather", 13, [x, np.zeros((2, 0), np.int64)], attrs={"axis": 1})
f.case("Gather", 13, [empty, np.zeros((0,), np.int64)])
f.case("Gather", 13, [empty, i64(1, 2)], attrs={"axis": 1})
f.case("Gather", 13, [data((1, 1)), i64(0, 0, -1)])
for index in (np.int64(1), i64(0, 2), np.array([[-1]], np.int32)):
    f.case("Gather", 13, [big, index], const=(0, 1), name="known data")
    f.case("Gather", 13, [big, index])
f.case("Gather", 13, [np.array([5, 6, 7], np.int32), i64(2, 0)], const=(0, 1), name="known int32")
f.case("Gather", 13, [np.arange(100), i64(99, -100)], const=(0, 1), name="too long to be known")
f.case("Gather", 13, [bf, i64(1, 1)], want=[bf[[1, 1]]], name="bf16")
f.case("Gather", 13, [special, i64(2, 0)], attrs={"axis": 1}, name="special values")
for bad in (i64(0, 4), i64(-5), i64(2**62)):
    f.fails("Gather", 13, [x, bad], why="out of range")
f.fails("Gather", 13, [x, i64(4)], const=(1,), why="out of range", name="constant")
f.fails("Gather", 13, [empty, i64(0)], why="out of range")
f.fails("Gather", 13, [i64(1, 2), i64(2)], const=(0, 1), why="out of range", name="known data")

# GatherElements
for opset in (11, 13):
    f.case("GatherElements", opset, [x, rng.integers(-4, 4, (4, 5, 6))])
    f.case("GatherElements", opset, [x, rng.integers(-5, 5, (4, 9, 6)).astype(np.int32)], attrs={"axis": 1})
f.case("GatherElements", 13, [x, rng.integers(-6, 6, (2, 3, 7))], attrs={"axis": -1}, const=(1,), name="smaller indices")
f.case("GatherElements", 13, [x, rng.integers(0, 4, (1, 1, 1))])
f.case("GatherElements", 13, [data((5,)), i64(4, 0, -1)])
f.case("GatherElements", 13, [x, np.zeros((0, 5, 6), np.int64)])
f.case("GatherElements", 13, [x, np.zeros((4, 0, 6), np.int64)])
for t in TYPES:
    f.case("GatherElements", 13, [data((3, 4), t), rng.integers(-4, 4, (3, 2))], attrs={"axis": 1})
f.case("GatherElements", 13, [bf, np.array([[1, 0, 3]])], want=[np.take_along_axis(bf, np.array([[1, 0, 3]]), 0)], name="bf16")
f.fails("GatherElements", 13, [x, np.full((4, 5, 6), 4)], why="out of range")
f.fails("GatherElements", 13, [data((1, 3)), np.zeros((2, 3), np.int64)], attrs={"axis": 1}, why="where the data has 1")

# GatherND
for opset in (11, 12, 13):
    f.case("GatherND", opset, [x, np.array([[0, 1], [3, -1]])])
    f.case("GatherND", opset, [x, np.array([[[0, 1, 5]], [[-4, 2, -6]]])], const=(1,))
    f.case("GatherND", opset, [x, np.array([[2], [0], [-1]])])
for t in TYPES:
    f.case("GatherND", 13, [data((3, 4), t), np.array([[0], [-1]])])
for shape in ((4, 1), (4, 2), (4, 2, 2), (4, 7, 1)):
    f.case("GatherND", 13, [x, rng.integers(-5, 5, shape)], attrs={"batch_dims": 1})
f.case("GatherND", 13, [x, rng.integers(-6, 6, (4, 5, 1))], attrs={"batch_dims": 2})
f.case("GatherND", 13, [x, rng.integers(-6, 6, (4, 5, 3, 1))], attrs={"batch_dims": 2})
f.case("GatherND", 13, [x, i64(1, 2)])
f.case("GatherND", 13, [x, np.zeros((0, 2), np.int64)])
f.case("GatherND", 13, [empty, np.zeros((0, 1), np.int64)])
f.case("GatherND", 13, [np.zeros((3, 0), np.float32), np.array([[1], [2]])])
f.case("GatherND", 13, [bf, np.array([[1, 0], [3, 2]])], want=[bf[[1, 3], [0, 2]]], name="bf16")
f.case("GatherND", 1, [x, np.array([[0, 1], [3, -1]])], domain="com.microsoft", want=[x[[0, 3], [1, -1]]])
f.fails("GatherND", 13, [x, np.array([[0, 5]])], why="out of range")
f.fails("GatherND", 13, [x, np.array([[0, 0], [0, -6]])], why="index -6 in input 1 is out of range")
f.fails("GatherND", 13, [x, np.array([[[0]], [[0]]])], attrs={"batch_dims": 1}, why="batch axis 0 is 4 in the data and 2")

# OneHot
def one_hot(index, depth, values, axis=-1):
    index = index.astype(np.int64)
    index = np.where(index < 0, index + depth, index)
    at = axis if axis >= 0 else axis + index.ndim + 1
    hot = np.expand_dims(index, at) == np.arange(depth).reshape([-1 if k == at else 1 for k in range(index.ndim + 1)])
    return [np.where(hot, values[1], values[0]).astype(values.dtype)]


index = np.array([[0, 3, -1], [-4, 4, -5]])
for opset in (9, 11):
    f.case("OneHot", opset, [index, np.int64(4), i64(2, 9)])
for axis in (-3, -1, 0, 1, 2):
    f.case("OneHot", 11, [index, np.int64(4), np.array([0.5, -1], np.float32)], attrs={"axis": axis})
for t in TYPES:
    values = np.array([0, 1], t)
    f.case("OneHot", 11, [index.astype(np.float32), np.float32(4), values], want=one_hot(index, 4, values))
    if t != np.bool_:
        some = np.array([1, 3, 9], t)
        f.case("OneHot", 11, [some, np.array([4], t), i64(0, 1)], want=one_hot(some, 4, i64(0, 1)))
f.case("OneHot", 11, [i64(1), i64(3), i64(2**62 + 1, -2**63)], const=(1, 2), name="exact values")
f.case("OneHot", 11, [np.zeros((0, 2), np.int64), np.int64(3), i64(0, 1)], want=[np.zeros((0, 2, 3), np.int64)])
f.case("OneHot", 11, [i64(0), np.int64(1), i64(7, 8)])
f.fails("OneHot", 11, [index, np.int64(0), i64(0, 1)], why="depth must be positive")
f.fails("OneHot", 11, [index, np.float32(-2), np.float32([0, 1])], why="depth must be positive")

# ReverseSequence
seq = data((4, 3, 2))
f.case("ReverseSequence", 10, [seq, i64(4, 1, 0)])
f.case("ReverseSequence", 10, [seq, i64(1, 2, 3, 0)], attrs={"time_axis": 1, "batch_axis": 0}, const=(1,))
f.case("ReverseSequence", 10, [seq[:, :, 0], i64(2, 3, 4)])
f.case("ReverseSequence", 10, [data((3, 2, 2, 2)), i64(3, 2)])
for t in TYPES:
    plain = data((3, 2), t)
    f.case("ReverseSequence", 10, [plain, i64(3, 2)], want=[np.stack([plain[::-1, 0], plain[[1, 0, 2], 1]], 1)])
f.case("ReverseSequence", 10, [np.zeros((0, 2), np.float32), i64(0, 0)], want=[np.zeros((0, 2), np.float32)])
f.case("ReverseSequence", 10, [np.zeros((3, 0), np.float32), np.zeros((0,), np.int64)], want=[np.zeros((3, 0), np.float32)])
f.fails("ReverseSequence", 10, [seq, i64(5, 1, 1)], why="out of range")
f.fails("ReverseSequence", 10, [seq, i64(1, -1, 1)], why="out of range")
f.fails("ReverseSequence", 10, [seq, i64(1, 1)], why="2 sequence lengths for a batch of 3")
f.declines("ReverseSequence", 10, [seq, i64(1, 1, 1)], attrs={"time_axis": 1, "batch_axis": 1}, why="batch_axis")

test_gather = f.pytest()


@pytest.mark.parametrize("op, index, updates", [("Gather", (3,), None), ("GatherElements", (3, 3), None), ("GatherND", (3, 1), None),
                                                ("ScatterElements", (3, 3), (3, 3)), ("ScatterND", (3, 1), (3, 3))])
def test_computed_indices_are_checked(op, index, updates):
    """Indices that an operator on MLX gives, in and out of range."""
    nodes = [helper.make_node("Expand", ["i", "to"], ["at"]), helper.make_node(op, ["x", "at"] + (["u"] if updates else []), ["y"])]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b"]), helper.make_tensor_value_info("i", TensorProto.INT64, [])]
    infos += [helper.make_tensor_value_info("u", TensorProto.FLOAT, ["c", "d"])] if updates else []
    to = helper.make_tensor("to", TensorProto.INT64, [len(index)], index)
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")], [to])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    cpu, mlx = session(model, False), session(model, True, {"claim_all": "1"})
    assert record_of_newest()["claimed"] == 2, record_of_newest()["declined"]
    feeds = {"x": data((4, 3))} | ({"u": np.ones(updates, np.float32)} if updates else {})
    for at in (3, -4, 0):
        compare(mlx.run(None, feeds | {"i": np.array(at, np.int64)})[0], cpu.run(None, feeds | {"i": np.array(at, np.int64)})[0], None, op)
    for at in (4, -5):
        with pytest.raises(Exception, match="out of range"):
            mlx.run(None, feeds | {"i": np.array(at, np.int64)})
    compare(mlx.run(None, feeds | {"i": np.array(1, np.int64)})[0], cpu.run(None, feeds | {"i": np.array(1, np.int64)})[0], None, op)
