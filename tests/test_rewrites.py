"""Graph rewrites: each is made where its pattern stands, in the forms that exporters write, and nowhere else; the numbers stay."""
from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_mlx as mlx_ep
from case import compare, session

RNG = np.random.default_rng(7)
KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
MS = "com.microsoft"


class Net:
    """A model built from the outside in: net.mul(a, b) adds a node and gives its output's name."""

    def __init__(self, dtype: str = "float32", opset: int = 20):
        self.nodes, self.inputs, self.outputs, self.constants, self.opset = [], {}, [], {}, opset
        self.dtype = np.dtype(dtype)

    def input(self, array: np.ndarray) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs[name] = np.asarray(array)
        return name

    def const(self, value, dtype=None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype or self.dtype)
        return name

    def op(self, op_type: str, *inputs: str, domain: str = "", outs: int = 1, **attrs):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attrs))
        return names[0] if outs == 1 else names

    def __getattr__(self, name: str):
        return lambda *inputs, **attrs: self.op(name.title().replace("_", ""), *inputs, **attrs)

    def result(self, name: str) -> None:
        self.outputs.append(name)

    def model(self, symbolic: bool) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype),
                                               [f"{n}_{i}" if symbolic and i < a.ndim - 1 else d for i, d in enumerate(a.shape)])
                 for n, a in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "net", infos, [onnx.ValueInfoProto(name=n) for n in self.outputs],
                                  [numpy_helper.from_array(a, n) for n, a in self.constants.items()])
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def run(model: onnx.ModelProto, feeds: dict, options: dict) -> tuple[list, dict]:
    s = session(model, True, {"claim_all": "1", **options})
    before = mlx_ep.describe("sessions")[-1]
    assert before["claimed"] == before["nodes"], before["declined"]
    got = s.run(None, feeds)
    record = next(r for r in mlx_ep.describe("sessions") if r["id"] == before["id"])
    assert sum(record["routes"].values()) == 1
    return got, record["rewrites"]


TOLERANCE = {"float32": (2e-5, 2e-5), "float16": (1e-2, 1e-2)}


def check(net: Net, want: dict, symbolic: bool = False, tol: tuple | None = None, cpu: bool = True) -> None:
    """Rewritten, not rewritten, and ONNX Runtime's CPU provider; `want` is the exact count of each rewrite."""
    model = net.model(symbolic)
    tol = tol or TOLERANCE[net.dtype.name]
    got, made = run(model, net.inputs, {})
    plain, none = run(model, net.inputs, {"disable_rewrites": "all"})
    assert none == {}
    assert made == want
    for k, (g, p) in enumerate(zip(got, plain, strict=True)):
        compare(g, p, tol, f"output {k}, rewritten against not")
    for k, (g, w) in enumerate(zip(got, session(model, False).run(None, net.inputs), strict=True) if cpu else ()):
        compare(g, w, tol, f"output {k}, against ONNX Runtime's CPU provider")


def x_of(dtype: str, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


both_dims = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
both_types = pytest.mark.parametrize("dtype", ["float32", "float16"])


# ---- the switch -------------------------------------------------------------------------------------------------------------
def test_switch_takes_names():
    net = Net()
    x = net.input(x_of("float32", 2, 8))
    net.result(net.mul(x, net.sigmoid(net.identity(x))))
    model = net.model(False)
    assert run(model, net.inputs, {})[1] == {"noop": 1, "silu": 1}
    assert run(model, net.inputs, {"disable_rewrites": "silu, gelu"})[1] == {"noop": 1}
    assert run(model, net.inputs, {"disable_rewrites": "noop,silu"})[1] == {}


def test_switch_refuses_unknown_names():
    net = Net()
    net.result(net.exp(net.input(x_of("float32", 2, 8))))
    with pytest.raises(Exception, match="disable_rewrites names 'silly'; known: all, noop"):
        session(net.model(False), True, {"claim_all": "1", "disable_rewrites": "silly"})


# ---- fold and noop ----------------------------------------------------------------------------------------------------------
@both_dims
def test_constants_are_computed_once(symbolic):
    net = Net()
    x = net.input(x_of("float32", 3, 4))
    w = net.transpose(net.const(x_of("float32", 5, 4)), perm=[1, 0])
    scale = net.sqrt(net.cast(net.const(16, np.int64), to=TensorProto.FLOAT))
    net.result(net.div(net.op("MatMul", x, w), scale))
    check(net, {"fold": 3}, symbolic)


def test_shape_that_is_known_is_a_constant():
    net = Net()
    x = net.input(x_of("float32", 3, 4))
    flat = net.concat(net.gather(net.shape(x), net.const([0], np.int64), axis=0), net.const([2, 2], np.int64), axis=0)
    net.result(net.reshape(x, flat))
    check(net, {"fold": 3})
    model = net.model(True)
    assert run(model, net.inputs, {})[1] == {}


def test_output_that_is_constant():
    net = Net()
    net.result(net.exp(net.input(x_of("float32", 2))))
    net.result(net.add(net.const([1, 2]), net.const(3)))
    check(net, {"fold": 1})


def test_large_results_and_random_numbers_are_not_folded():
    net = Net()
    x = net.input(x_of("float32", 1, 256))
    big = net.op("ConstantOfShape", net.const([256, 256], np.int64))
    noise = net.op("RandomNormal", shape=[1, 256], scale=1e-9)
    net.result(net.add(net.op("MatMul", x, big), noise))
    check(net, {})


def test_errors_stay_errors():
    net = Net()
    net.result(net.gather(net.const([1, 2]), net.const([7], np.int64)))
    net.result(net.exp(net.input(x_of("float32", 2))))
    with pytest.raises(Exception, match="out of range|out of bounds|indices"):
        run(net.model(False), net.inputs, {})


@both_dims
def test_noops_go(symbolic):
    net = Net()
    x = net.input(x_of("float32", 2, 3, 4))
    y = net.identity(net.cast(net.exp(x), to=TensorProto.FLOAT))
    y = net.dropout(net.transpose(y, perm=[0, 1, 2]))
    y = net.reshape(y, net.const([0, 0, -1], np.int64))
    y = net.transpose(net.transpose(y, perm=[1, 2, 0]), perm=[1, 2, 0])
    net.result(net.identity(net.abs(y)))  # an output keeps its name
    check(net, {"noop": 6}, symbolic)


def test_transposes_that_undo_each_other_go():
    net = Net()
    x = net.input(x_of("float32", 2, 3, 4))
    net.result(net.exp(net.transpose(net.transpose(x, perm=[1, 2, 0]), perm=[2, 0, 1])))
    check(net, {"noop": 2})


def test_noops_that_bodies_read():
    net = Net()
    x, c = net.input(x_of("float32", 2, 3)), net.input(np.array(True))
    y = net.identity(net.exp(x))
    info = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 3])
    bodies = {name: helper.make_graph([helper.make_node(op, [y], ["r"])], name, [], [info])
              for name, op in (("then_branch", "Neg"), ("else_branch", "Abs"))}
    net.result(net.op("If", c, **bodies))
    check(net, {"noop": 1})


def test_bodies_are_rewritten():
    net = Net()
    x, c = net.input(x_of("float32", 2, 3)), net.input(np.array(True))
    info = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 3])
    silu = [helper.make_node("Sigmoid", [x], ["s"]), helper.make_node("Mul", [x, "s"], ["r"])]
    bodies = {"then_branch": helper.make_graph(silu, "then", [], [info]),
              "else_branch": helper.make_graph([helper.make_node("Abs", [x], ["r"])], "else", [], [info])}
    net.result(net.op("If", c, **bodies))
    check(net, {"silu": 1})


# ---- gelu, silu ---------------------------------------------------------------------------------------------------------------
def erf_gelu_torch(net, x):  # x * (1 + erf(x / sqrt 2)) * 0.5
    return net.mul(net.mul(x, net.add(net.erf(net.div(x, net.const(2**0.5))), net.const(1))), net.const(0.5))


def erf_gelu_half_first(net, x):
    return net.mul(net.mul(net.const(0.5), x), net.add(net.const(1), net.erf(net.mul(x, net.const(0.5**0.5)))))


def erf_gelu_half_inside(net, x):
    return net.mul(x, net.mul(net.const(0.5), net.add(net.erf(net.div(x, net.const(2**0.5))), net.const(1))))


def tanh_gelu_torch(net, x):  # pow, as of Hugging Face's NewGELU
    inner = net.mul(net.const(0.7978845608028654), net.add(x, net.mul(net.const(0.044715), net.pow(x, net.const(3)))))
    return net.mul(net.mul(net.const(0.5), x), net.add(net.const(1), net.tanh(inner)))


def tanh_gelu_products(net, x):
    cube = net.mul(net.mul(x, x), x)
    inner = net.mul(net.add(x, net.mul(cube, net.const(0.044715))), net.const(0.7978845608028654))
    return net.mul(x, net.mul(net.const(0.5), net.add(net.tanh(inner), net.const(1))))


def tanh_gelu_fast(net, x):  # x * 0.79788456 * (1 + 0.044715 x x)
    inner = net.mul(net.mul(x, net.const(0.7978845608)),
                    net.add(net.const(1), net.mul(net.mul(net.const(0.044715), x), x)))
    return net.mul(net.mul(net.const(0.5), x), net.add(net.const(1), net.tanh(inner)))


@pytest.mark.parametrize("form", [erf_gelu_torch, erf_gelu_half_first, erf_gelu_half_inside, tanh_gelu_torch, tanh_gelu_products,
                                  tanh_gelu_fast], ids=lambda f: f.__name__)
@both_types
@both_dims
def test_gelu(form, dtype, symbolic):
    net = Net(dtype)
    x = net.mul(net.input(x_of(dtype, 2, 3, 8)), net.const(1.5))  # a product that is no part of it
    net.result(form(net, x))
    check(net, {"gelu": 1}, symbolic, cpu=dtype == "float32")


def near_gelu(net, x, half=0.5, root=2**0.5, one=1.0, keep=False):
    e = net.erf(net.div(x, net.const(root)))
    if keep:
        net.result(e)
    return net.mul(net.mul(x, net.add(e, net.const(one))), net.const(half))


@pytest.mark.parametrize("change", [{"half": 0.49}, {"root": 1.4}, {"one": 1.1}, {"keep": True}], ids=str)
def test_what_is_not_gelu(change):
    net = Net()
    net.result(near_gelu(net, net.input(x_of("float32", 2, 8)), **change))
    check(net, {})


def test_gelu_of_another_value():
    net = Net()
    x, y = net.input(x_of("float32", 2, 8)), net.input(x_of("float32", 2, 8))
    net.result(net.mul(net.mul(x, net.add(net.erf(net.div(y, net.const(2**0.5))), net.const(1))), net.const(0.5)))
    check(net, {})


@both_types
@pytest.mark.parametrize("alpha", [None, 1.702])
def test_silu(dtype, alpha):
    net = Net(dtype)
    x = net.input(x_of(dtype, 2, 3, 8))
    net.result(net.mul(net.sigmoid(net.mul(x, net.const(alpha)) if alpha else x), x))
    check(net, {"silu": 1}, cpu=dtype == "float32")


def test_what_is_not_silu():
    net = Net()
    x, y = net.input(x_of("float32", 2, 8)), net.input(x_of("float32", 2, 8))
    s = net.sigmoid(x)
    net.result(net.mul(y, s))
    net.result(net.mul(net.sigmoid(net.mul(x, net.const([[1, 2] * 4]))), x))
    check(net, {})


# ---- normalisation --------------------------------------------------------------------------------------------------------------
def mean(net, x, keepdims=1, axis=-1):
    if net.opset >= 18:
        return net.op("ReduceMean", x, net.const([axis], np.int64), keepdims=keepdims)
    return net.op("ReduceMean", x, axes=[axis], keepdims=keepdims)


def layer_norm(net, x, square="pow", twice=False, axis=-1, eps=1e-5):
    m = mean(net, x, axis=axis)
    d = net.sub(x, m)
    e = net.sub(x, m) if twice else d
    var = mean(net, net.pow(e, net.const(2)) if square == "pow" else net.mul(e, e), axis=axis)
    return net.div(d, net.sqrt(net.add(var, net.const(eps))))


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("form", [{}, {"square": "mul"}, {"twice": True}], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@both_dims
def test_layer_norm(opset, form, bias, symbolic):
    net = Net(opset=opset)
    y = net.mul(layer_norm(net, net.input(x_of("float32", 2, 3, 8)), **form), net.const(x_of("float32", 8)))
    net.result(net.add(net.const(x_of("float32", 8)), y) if bias else y)
    check(net, {"layer_norm": 1}, symbolic)


@both_dims
def test_layer_norm_of_tensorflow(symbolic):
    net = Net(opset=17)
    x = net.input(x_of("float32", 2, 3, 8))
    m = mean(net, x)
    d = net.sub(x, m)
    g = net.mul(net.reciprocal(net.sqrt(net.add(mean(net, net.mul(d, d)), net.const(1e-3)))), net.const(x_of("float32", 8)))
    net.result(net.add(net.mul(g, x), net.sub(net.const(x_of("float32", 8)), net.mul(m, g))))
    check(net, {"layer_norm": 1}, symbolic)


def test_layer_norm_between_casts():
    net = Net("float16")
    x = net.cast(net.input(x_of("float16", 2, 3, 8)), to=TensorProto.FLOAT)
    net.dtype = np.dtype("float32")
    y = net.add(net.mul(layer_norm(net, x), net.const(x_of("float32", 8))), net.const(x_of("float32", 8)))
    net.result(net.cast(y, to=TensorProto.FLOAT16))
    check(net, {"layer_norm": 1}, tol=(1e-2, 1e-2))


@pytest.mark.parametrize("what", ["axis", "scale", "spread", "mean"])
def test_what_is_not_layer_norm(what):
    net = Net()
    x = net.input(x_of("float32", 2, 8, 8))
    y = layer_norm(net, x, axis=1 if what == "axis" else -1)
    if what == "spread":
        d, e = net.sub(x, mean(net, x)), net.sub(x, net.const(0.1))
        y = net.div(d, net.sqrt(net.add(mean(net, net.mul(e, e)), net.const(1e-5))))
    if what == "mean":
        d = net.sub(x, mean(net, net.abs(x)))
        y = net.div(d, net.sqrt(net.add(mean(net, net.mul(d, d)), net.const(1e-5))))
    net.result(net.mul(y, net.const(x_of("float32", 8, 1) if what == "scale" else x_of("float32", 8))))
    check(net, {"rms_norm": 1} if what == "mean" else {})  # there the value less some mean is normalised, rightly


def rms(net, x, form):
    var = net.add(mean(net, net.mul(x, x) if form == "mul" else net.pow(x, net.const(2, np.float32))), net.const(1e-6, np.float32))
    if form == "div":
        return net.div(x, net.sqrt(var))
    if form == "one":
        return net.mul(x, net.div(net.const(1, np.float32), net.sqrt(var)))
    return net.mul(x, net.pow(var, net.const(-0.5, np.float32)) if form == "root" else net.reciprocal(net.sqrt(var)))


@pytest.mark.parametrize("form", ["pow", "mul", "div", "one", "root"])
@pytest.mark.parametrize("casts", [False, True], ids=["plain", "casts"])
@both_dims
def test_rms_norm(form, casts, symbolic):
    net = Net("float16" if casts else "float32")
    x = net.input(x_of(net.dtype.name, 2, 3, 8))
    y = rms(net, net.cast(x, to=TensorProto.FLOAT) if casts else x, form)
    if casts:
        y = net.cast(y, to=TensorProto.FLOAT16)
    net.result(net.mul(net.const(x_of(net.dtype.name, 8)), y))
    check(net, {"rms_norm": 1}, symbolic, cpu=not casts)


def test_what_is_not_rms_norm():
    net = Net()
    x, y = net.input(x_of("float32", 2, 3, 8)), net.input(x_of("float32", 2, 3, 8))
    net.result(net.mul(net.div(y, net.sqrt(net.add(mean(net, net.mul(x, x)), net.const(1e-6)))), net.const(x_of("float32", 8))))
    net.result(net.mul(net.div(x, net.sqrt(net.add(mean(net, net.mul(x, y)), net.const(1e-6)))), net.const(x_of("float32", 8))))
    check(net, {})


# ---- attention --------------------------------------------------------------------------------------------------------------------
def attend(net, scale="div", mask=None, casts=False, perm=(0, 1, 3, 2), kv_heads=4, axis=-1, softmax_of=None):
    q = net.input(x_of(net.dtype.name, 2, 4, 3, 8))
    k = net.input(x_of(net.dtype.name, 2, kv_heads, 5, 8) if perm == (0, 1, 3, 2) else x_of(net.dtype.name, 2, 5, kv_heads, 8))
    v = net.input(x_of(net.dtype.name, 2, kv_heads, 5, 8))
    t = net.transpose(k, perm=perm)
    if scale == "sqrt":
        q, t = net.mul(q, net.const(8**-0.25)), net.mul(t, net.const(8**-0.25))
    if scale == "q":
        q = net.mul(q, net.const(8**-0.5))
    s = net.op("MatMul", q, t)
    if scale in ("div", "mul"):
        s = net.div(s, net.const(8**0.5)) if scale == "div" else net.mul(net.const(8**-0.5), s)
    if casts:
        s = net.cast(s, to=TensorProto.FLOAT)
    if mask is not None:
        s = mask(net, s)
    w = net.softmax(s, axis=axis)
    if casts:
        w = net.cast(w, to=TensorProto.FLOAT16)
    return net.op("MatMul", w, v)


def causal(value=-np.inf, dtype="float32"):
    return np.triu(np.full((3, 5), value, dtype), 1)


def add_constant(net, s):
    return net.add(s, net.const(causal(), "float32"))


def add_input(net, s):
    return net.add(net.input(np.where(RNG.random((2, 1, 1, 5)) < 0.3, np.finfo("float32").min, 0).astype("float32")), s)


def choose(net, s):
    return net.where(net.const(np.tril(np.ones((3, 5))), bool), s, net.const(-np.inf, "float32"))


def choose_other(net, s):
    return net.where(net.const(np.triu(np.ones((3, 5)), 1), bool), net.const(np.finfo("float32").min, "float32"), s)


@pytest.mark.parametrize("scale", ["div", "mul", "sqrt", "q", "none"])
@pytest.mark.parametrize("mask", [None, add_constant, add_input, choose, choose_other], ids=lambda m: m.__name__ if m else "")
def test_attention_scales_and_masks(scale, mask):
    net = Net()
    net.result(attend(net, scale, mask))
    check(net, {"attention": 1})


@pytest.mark.parametrize("perm", [(0, 1, 3, 2), (0, 2, 3, 1)])
@pytest.mark.parametrize("kv_heads", [4, 1])
@pytest.mark.parametrize("mask", [None, add_input], ids=["", "mask"])
@both_dims
def test_attention_keys(perm, kv_heads, mask, symbolic):
    net = Net()
    net.result(attend(net, mask=mask, perm=perm, kv_heads=kv_heads))
    check(net, {"attention": 1}, symbolic)


@pytest.mark.parametrize("casts", [False, True])
def test_attention_of_halves(casts):
    net = Net("float16")
    net.result(attend(net, casts=casts, mask=add_constant if casts else None))
    check(net, {"attention": 1}, cpu=False)


def test_rows_that_see_nothing_stay_as_they_are():
    net = Net()
    hidden = causal()
    hidden[1] = -np.inf
    net.result(attend(net, mask=lambda n, s: n.add(s, n.const(hidden))))
    check(net, {"attention": 1})  # NaN, as the graph says


def test_guarded_rows_are_zero():
    net = Net()
    q, k, v = (net.input(x_of("float32", 1, 2, 3, 8)) for _ in range(3))
    mask = net.input(np.array([[0, 0, -np.inf], [-np.inf] * 3, [0, 0, 0]], np.float32))
    s = net.add(net.op("MatMul", q, net.transpose(k, perm=[0, 1, 3, 2])), mask)
    none = net.equal(net.op("ReduceMax", mask, net.const([-1], np.int64)), net.const(-np.inf))
    net.result(net.op("MatMul", net.where(none, net.const(0), net.softmax(s)), v))
    check(net, {"attention": 1})


@pytest.mark.parametrize("what", ["axis", "weights", "number", "guard"])
def test_what_is_not_attention(what):
    net = Net()
    if what == "axis":
        net.result(attend(net, axis=2))
    elif what == "number":  # -10000 does not hide a score for certain
        net.result(attend(net, mask=lambda n, s: n.where(n.const(np.tril(np.ones((3, 5))), bool), s, n.const(-1e4))))
    else:
        q, k, v = (net.input(x_of("float32", 1, 2, 3, 8)) for _ in range(3))
        w = net.softmax(net.op("MatMul", q, net.transpose(k, perm=[0, 1, 3, 2])))
        if what == "weights":
            net.result(w)
        else:
            w = net.where(net.const([[True], [False], [False]], bool), net.const(0), w)
        net.result(net.op("MatMul", w, v))
    check(net, {})


# ---- merged products ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [2, 3])
@both_types
@both_dims
def test_products_of_one_activation_are_merged(bias, n, dtype, symbolic):
    net = Net(dtype)
    x = net.abs(net.input(x_of(dtype, 2, 3, 16)))
    for i in range(n):
        y = net.op("MatMul", x, net.const(x_of(dtype, 16, 8 + 4 * i)))
        net.result(net.exp(net.neg(net.abs(net.add(net.const(x_of(dtype, 8 + 4 * i)), y) if bias else y))))
    check(net, {"merge_matmul": 1}, symbolic, cpu=dtype == "float32")


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_gemms_are_merged(trans, bias):
    net = Net()
    x = net.input(x_of("float32", 3, 16))
    for n in (8, 5):
        c = [net.const(x_of("float32", n))] if bias else []
        net.result(net.op("Gemm", x, net.const(x_of("float32", *((n, 16) if trans else (16, n)))), *c, transB=trans))
    check(net, {"merge_matmul": 1})


def nbits(net, x, n, k=64, bits=4, block=32, zeros=False, bias=False, level=0):
    ins = [x, net.const(RNG.integers(0, 256, (n, k // block, block * bits // 8)), np.uint8),
           net.const(np.abs(x_of("float32", n * k // block)) / 8)]
    ins.append(net.const(RNG.integers(0, 256, n * -(-k // block * bits // 8)), np.uint8) if zeros else "")
    ins += ["", net.const(x_of("float32", n))] if bias else []
    return net.op("MatMulNBits", *ins, domain=MS, K=k, N=n, bits=bits, block_size=block, accuracy_level=level)


@pytest.mark.parametrize("form", [{}, {"zeros": True}, {"bias": True}, {"bits": 8}, {"zeros": True, "bias": True, "level": 4}], ids=str)
@both_dims
def test_packed_products_are_merged(form, symbolic):
    net = Net()
    x = net.abs(net.input(x_of("float32", 2, 3, 64)))
    for n in (32, 16, 16):
        net.result(nbits(net, x, n, **form))
    check(net, {"merge_matmul": 1}, symbolic, tol=(2e-2, 2e-2) if form.get("level") else (1e-4, 1e-4))


@pytest.mark.parametrize("other", [{"block": 16}, {"bits": 8}, {"zeros": True}, {"level": 4}], ids=str)
def test_packed_products_that_differ_are_not(other):
    net = Net()
    x = net.input(x_of("float32", 2, 3, 64))
    net.result(nbits(net, x, 32))
    net.result(nbits(net, x, 32, **other))
    check(net, {}, tol=(2e-2, 2e-2))


@pytest.mark.parametrize("bias", [False, True])
def test_packed_query_key_value(bias):
    net = Net()
    x = net.input(x_of("float32", 1, 3, 64))
    parts = [nbits(net, x, n) for n in (32, 16, 16)]
    if bias:
        parts = [net.add(p, net.const(x_of("float32", n))) for p, n in zip(parts, (32, 16, 16))]
    past = [net.input(x_of("float32", 1, 2, 0, 8)) for _ in range(2)]
    length, total = net.const([2], np.int32), net.const(3, np.int32)
    for y in net.op("GroupQueryAttention", *parts, *past, length, total, domain=MS, outs=3, num_heads=4, kv_num_heads=2):
        net.result(y)
    model = net.model(False)
    assert len(model.graph.node) > 3
    check(net, {"merge_matmul": 1}, tol=(1e-4, 1e-4))


@pytest.mark.parametrize("what", ["activation", "width", "shared", "batch"])
def test_products_that_are_not_merged(what):
    net = Net()
    x, y = net.input(x_of("float32", 2, 16)), net.input(x_of("float32", 2, 16))
    w = net.const(x_of("float32", 16, 8))
    net.result(net.op("MatMul", x, w))
    if what == "batch":
        net.result(net.op("MatMul", x, net.const(x_of("float32", 3, 16, 8))))
    else:
        net.result(net.op("MatMul", y if what == "activation" else x, w if what == "shared" else net.const(x_of("float32", 16, 8))))
    if what == "width":  # of the third alone
        net.result(net.op("MatMul", net.op("Concat", x, y, axis=1), net.const(x_of("float32", 32, 8))))
        check(net, {"merge_matmul": 1})
    else:
        check(net, {})
