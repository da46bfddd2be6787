"""Operators that ONNX has withdrawn, and optionals that are tensors, against ONNX Runtime's CPU kernels."""
import numpy as np

from case import Family, record_of_newest, run_on_mlx, session
from onnx import TensorProto, helper

rng = np.random.default_rng(92)
f = Family("legacy")


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


for x in (normal(5), normal(2, 3, 4), normal(), normal(0, 3)):
    f.case("Affine", 1, [x], attrs={"alpha": 1.5, "beta": -2.0})
    f.case("Affine", 1, [x])
    f.case("ScaledTanh", 1, [x], attrs={"alpha": 1.5, "beta": -2.0})
    f.case("ParametricSoftplus", 1, [x * 20], attrs={"alpha": 1.5, "beta": -2.0})
    f.case("Scale", 1, [x], attrs={"scale": 2.5})
x16 = normal(7, dtype=np.float16)
f.case("Affine", 1, [x16], attrs={"alpha": 0.5}, want=[x16 / 2], out_types=[np.float16])
image = normal(2, 3, 6, 5)
f.case("ImageScaler", 1, [image], attrs={"scale": 0.5, "bias": [1.0, -1.0, 2.0]})
f.case("ImageScaler", 1, [normal(0, 1, 2, 2)], attrs={"bias": [1.0]})
f.case("Crop", 1, [image], attrs={"border": [1, 2, 0, 1]})
f.case("Crop", 1, [image], attrs={"border": [1, 2, 0, 0], "scale": [3, 2]})
for attrs in ({}, {"across_channels": 1}, {"normalize_variance": 0}, {"across_channels": 1, "normalize_variance": 0}):
    f.case("MeanVarianceNormalization", 7, [image], attrs=attrs, tol=(1e-4, 1e-5))
f.case("MeanVarianceNormalization", 1, [np.ones((1, 2, 2, 2), np.float32)], name="no variance")
ints = [np.array(v, np.int64) for v in ([1, -9], [3, 2**31 - 1], [1, -1])]
f.case("DynamicSlice", 1, [normal(4, 5, 6), *ints], const=(1, 2, 3))
f.case("DynamicSlice", 1, [normal(4, 5, 6), *ints[:2]])
f.case("DynamicSlice", 1, [normal(4, 5, 6), *(v.astype(np.int32) for v in ints)])

for opset in (18, 20):
    f.case("OptionalHasElement", opset, [normal(2, 3)])
    f.case("OptionalGetElement", opset, [normal(2, 3)])
    f.case("OptionalGetElement", opset, [np.arange(4).reshape(2, 2)])

f.fails("Crop", 1, [image], attrs={"border": [3, 0, 3, 0]}, why="cannot be cut")
f.fails("ImageScaler", 1, [image], attrs={"bias": [1.0]}, why="1 biases")
f.declines("Crop", 1, [image], attrs={"border": [1, 2]}, why="border with 2 entries")
f.declines("ScaledTanh", 1, [image], attrs={"alpha": 1.0}, why="alpha or beta is missing")

test_legacy = f.pytest()


def test_an_optional_stays_on_the_host():
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    node = helper.make_node("OptionalHasElement", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", helper.make_optional_type_proto(tensor))],
                              [helper.make_tensor_value_info("y", TensorProto.BOOL, [])])
    session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), True)
    assert record_of_newest()["declined"][0]["reason"] == "the input is an optional, which stays on the host"


def test_an_absent_optional_has_no_element():
    graph = helper.make_graph([helper.make_node("OptionalHasElement", [""], ["y"])], "g", [], [helper.make_tensor_value_info("y", TensorProto.BOOL, [])])
    assert run_on_mlx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), {}) == [False]
