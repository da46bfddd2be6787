"""If, Loop and Scan with bodies of every form against ONNX Runtime's CPU provider."""
import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_mlx as mlx_ep
from case import Family, compare, record_of_newest, run_on_mlx, session
from onnxruntime_ep_mlx.embed import packaged_file

F, I, B, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
rng = np.random.default_rng(20)
f = Family("control")
OPSETS = (8, 11, 13, 16, 19, 21, 23, 24, 25)
X = rng.standard_normal((2, 3)).astype(np.float32)
W = rng.standard_normal((3, 3)).astype(np.float32)
yes, no = np.array(True), np.array(False)


def info(name, t=F, shape=None):
    return helper.make_tensor_value_info(name, t, shape)


def op(kind, ins, outs, **attrs):
    return helper.make_node(kind, ins.split(), outs.split(), name=f"{kind}_{outs.split()[0]}", **attrs)


def infos(text, shapes=None):
    """"a b:i c:b" as value infos; shapes by name, else none is declared."""
    types = {"i": I, "b": B, "f": F, "s": S, "d": TensorProto.DOUBLE, "h": TensorProto.FLOAT16}
    parts = [p.split(":") for p in text.split()]
    return [info(p[0], types[p[1]] if len(p) > 1 else F, (shapes or {}).get(p[0])) for p in parts]


def body(nodes, ins, outs, shapes=None, consts=None):
    inits = [numpy_helper.from_array(np.asarray(v), k) for k, v in (consts or {}).items()]
    return helper.make_graph(nodes, "body", infos(ins, shapes), infos(outs, shapes), inits)


def model(nodes, ins, outs, opset=21, consts=None, shapes=None):
    graph = body(nodes, ins, outs, shapes, consts)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


def check(m, feeds, tol=None):
    """Every node, those of the bodies too, is on MLX; two runs agree with ONNX Runtime."""
    want = session(m, False).run(None, feeds)
    got = run_on_mlx(m, feeds)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        compare(np.asarray(g), w, tol, f"output {k}")
    return got


def fails(m, feeds, why):
    s = session(m, True, {"claim_all": "1"})
    assert record_of_newest()["claimed"] == record_of_newest()["nodes"], record_of_newest()["declined"]
    with pytest.raises(Exception, match=why):
        s.run(None, feeds)


# ---- If -----------------------------------------------------------------------------------------------------------
def const_branch(v, name="r"):
    return body([op("Identity", "k", name)], "", f"{name}:{'i' if v.dtype == np.int64 else 'f'}", consts={"k": v})


for opset in OPSETS:
    for c in (yes, no):
        f.case("If", opset, [c], attrs={"then_branch": const_branch(X), "else_branch": const_branch(W if opset > 8 else X + 1)}, name=f"{c}")
f.case("If", 21, [np.array([True])], attrs={"then_branch": const_branch(X), "else_branch": const_branch(X + 1)})
f.case("If", 21, [no], const=(0,), attrs={"then_branch": const_branch(X), "else_branch": const_branch(X + 1)})
f.case("If", 21, [yes], attrs={"then_branch": const_branch(np.zeros((0, 3), np.float32)), "else_branch": const_branch(X)}, name="empty")
f.case("If", 21, [no], attrs={"then_branch": const_branch(np.array([], np.int64)), "else_branch": const_branch(np.array([1, 2]))})
unknown = body([op("StringNormalizer", "k", "r")], "", "r:s", consts={"k": np.array(["a"], object)})
f.declines("If", 21, [yes], why="string", attrs={"then_branch": unknown, "else_branch": unknown})
# Strings stay on the CPU provider.
by_words = body([helper.make_node("Cast", ["k"], ["w"], name="inside", to=TensorProto.STRING),
                 helper.make_node("Cast", ["w"], ["r"], name="back", to=TensorProto.FLOAT)], "", "r", consts={"k": X})

two = {"then_branch": body([op("Add", "x k", "p"), op("Mul", "p q", "s")], "", "p s", consts={"k": W[:1]}),
       "else_branch": body([op("Sub", "x q", "p"), op("Identity", "w", "s")], "", "p s")}


@pytest.mark.parametrize("c", [yes, no])
@pytest.mark.parametrize("opset", [11, 21])
def test_if_takes_values_from_around_it(c, opset):
    nodes = [op("Exp", "x", "q"), op("If", "c", "a b", **two), op("Add", "a x", "z")]
    m = model(nodes, "x c:b", "z b", opset, consts={"w": W})
    check(m, {"x": X, "c": c})
    check(model([op("If", "c", "a b", **two)], "x q c:b", "a b", consts={"w": W}), {"x": X, "q": X + 1, "c": c})


def test_if_with_an_output_that_nobody_reads():
    check(model([op("Exp", "x", "q"), op("If", "c", "a b", **two)], "x c:b", "a", consts={"w": W}), {"x": X, "c": yes})


@pytest.mark.parametrize("x", [X, -X, np.zeros((0, 3), np.float32)])
def test_if_on_a_computed_condition(x):
    nodes = [op("ReduceSum", "x", "t", keepdims=0), op("Greater", "t zero", "c"), op("If", "c", "z", then_branch=body([op("Neg", "x", "r")], "", "r"),
                                                                                     else_branch=body([op("Exp", "x", "r")], "", "r"))]
    check(model(nodes, "x", "z", consts={"zero": np.float32(0)}), {"x": x})


@pytest.mark.parametrize("a", [yes, no])
@pytest.mark.parametrize("b", [yes, no])
def test_nested_ifs_read_from_every_level(a, b):
    inner = op("If", "b", "r", then_branch=body([op("MatMul", "t w", "r2")], "", "r2"), else_branch=body([op("Add", "x k", "r3")], "", "r3"))
    outer = body([op("Exp", "x", "t"), inner], "", "r", consts={"k": W[:1]})
    nodes = [op("If", "a", "z", then_branch=outer, else_branch=body([op("MatMul", "x w", "r4")], "", "r4"))]
    check(model(nodes, "x a:b b:b", "z", consts={"w": W}), {"x": X, "a": a, "b": b})


def test_a_name_means_the_inner_constant():
    inner = body([op("Add", "x k", "r")], "", "r", consts={"k": 2 * W[:1]})
    other = body([op("Sub", "x k", "r")], "", "r")
    nodes = [op("If", "c", "a", then_branch=inner, else_branch=other), op("Mul", "a k", "z")]
    m = model(nodes, "x c:b", "z", consts={"k": W[:1]})
    for c, a in ((yes, X + 2 * W[:1]), (no, X - W[:1])):  # ONNX Runtime's CPU provider takes the outer one
        compare(run_on_mlx(m, {"x": X, "c": c})[0], a * W[:1], None, "z")


@pytest.mark.parametrize("starts", [0, 1])
def test_a_body_reads_an_outer_input_on_the_host(starts):
    branch = body([op("Slice", "x starts ends", "r")], "", "r")
    nodes = [op("If", "c", "z", then_branch=branch, else_branch=body([op("Identity", "x", "r")], "", "r"))]
    check(model(nodes, "x c:b starts:i", "z", consts={"ends": np.array([2])}), {"x": X, "c": yes, "starts": np.array([starts])})


def test_the_reason_names_the_node_inside():
    both = {"then_branch": by_words, "else_branch": const_branch(X)}
    deep = body([op("If", "c", "r", **both)], "", "r")
    m = model([op("If", "c", "z", then_branch=const_branch(X), else_branch=deep)], "c:b", "z")
    s = session(m, True, {"claim_all": "1"})
    record = record_of_newest()
    assert record["claimed"] == 0 and record["nodes"] == len(record["declined"]) == 6
    assert record["declined"][0]["reason"].startswith("in its body, node 'inside' (Cast): ")
    assert "string" in record["declined"][0]["reason"]
    assert "body" in record["declined"][1]["reason"]
    np.testing.assert_array_equal(s.run(None, {"c": yes})[0], X)


def test_a_body_that_fails_names_its_node():
    branch = body([op("Reshape", "x shape", "r")], "", "r")
    m = model([op("If", "c", "z", then_branch=branch, else_branch=body([op("Identity", "x", "r")], "", "r"))], "x c:b shape:i", "z")
    feeds = {"x": X, "c": yes, "shape": np.array([5, 5])}
    fails(m, feeds, r"node 'Reshape_r' \(Reshape\)")
    check(m, {**feeds, "shape": np.array([3, 2])})


# ---- Loop ---------------------------------------------------------------------------------------------------------
def loop_body(nodes, carried, outs, own=("i", "going", "go"), **kw):
    """The body of a Loop whose condition is handed on, unless the nodes compute it."""
    i, going, go = own
    made = {o for n in nodes for o in n.output}
    nodes = nodes if go in made else [*nodes, op("Identity", going, go)]
    return body(nodes, f"{i}:i {going}:b {carried}", f"{go}:b {outs}", **{**kw, "shapes": {i: [], going: [], go: [], **kw.get("shapes", {})}})


count_up = loop_body([op("Add", "v k", "w"), op("Mul", "w w", "s"), op("Cast", "i", "t", to=F)], "v", "w s t", consts={"k": np.float32(0.25)})
for opset in OPSETS:
    f.case("Loop", opset, [np.array(3), yes, X], outs=3, attrs={"body": count_up})
for trips, go in ((0, True), (5, False), (1, True), (64, True), (65, True), (200, True)):
    f.case("Loop", 21, [np.array(trips), np.array(go), X], outs=3, attrs={"body": count_up}, name=f"{trips}-{go}")
f.case("Loop", 21, [np.array(4), None, X], outs=3, attrs={"body": count_up}, name="no-condition")
f.case("Loop", 21, [np.array(3), yes, np.zeros((0, 3), np.float32)], outs=3, attrs={"body": count_up}, name="empty")
f.case("Loop", 21, [np.array(3), yes, np.float32(2)], outs=3, attrs={"body": count_up}, name="rank0")
f.case("Loop", 21, [np.array(3), yes, X], outs=3, attrs={"body": count_up}, const=(0, 1, 2), name="constants")
while_small = loop_body([op("Add", "v v", "w"), op("ReduceMax", "w", "m", keepdims=0), op("Less", "m top", "go"), op("Identity", "m", "s")],
                        "v", "w s", consts={"top": np.float32(100)})
for first in (X, X * 1000):
    f.case("Loop", 21, [None, yes, first], outs=2, attrs={"body": while_small}, name="while")
    f.case("Loop", 21, [None, None, first], outs=2, attrs={"body": while_small}, name="neither")
    f.case("Loop", 21, [np.array(3), yes, first], outs=2, attrs={"body": while_small}, name="either")
grows = loop_body([op("Concat", "v v", "w", axis=0), op("ReduceSum", "w", "s", keepdims=0)], "v", "w s")
f.case("Loop", 21, [np.array(4), yes, X], outs=2, attrs={"body": grows}, name="grows")
nothing = loop_body([op("Mul", "i i", "s")], "", "s:i")
f.case("Loop", 21, [np.array(70), yes], outs=1, attrs={"body": nothing}, name="no-carried")
ranked = body([op("Add", "v v", "w"), op("Identity", "going", "go"), op("Add", "i i", "s")], "i:i going:b v", "go:b w s:i",
              shapes={"i": [1], "going": [1], "go": [1], "s": [1]})
f.case("Loop", 11, [np.array([3]), np.array([True]), X], outs=2, attrs={"body": ranked}, name="rank1")
for a in (X.astype(np.float64), X.astype(np.float16), np.arange(4, dtype=np.int32), np.arange(3, dtype=np.uint8), np.array([True, False])):
    t = helper.np_dtype_to_tensor_dtype(a.dtype)
    typed = helper.make_graph([op("Identity", "v", "w"), op("Identity", "v", "s"), op("Identity", "going", "go")], "body",
                              [info("i", I, []), info("going", B, []), info("v", t)], [info("go", B, []), info("w", t), info("s", t)])
    for trips in (2, 0):
        f.case("Loop", 21, [np.array(trips), yes, a], outs=2, attrs={"body": typed}, name=f"{a.dtype}-{trips}")


def test_loop_takes_values_from_around_it():
    inside = loop_body([op("MatMul", "v w", "m"), op("Add", "m q", "u"), op("Gather", "table i", "s")], "v", "u s")
    nodes = [op("Tanh", "x", "q"), op("Loop", "n c x", "y ss", body=inside), op("Add", "y q", "z")]
    m = model(nodes, "x n:i c:b", "z ss", consts={"w": W / 3, "table": rng.standard_normal((9, 2)).astype(np.float32)})
    for n in (0, 1, 9):
        if n:
            check(m, {"x": X, "n": np.array(n), "c": yes})
    fails(m, {"x": X, "n": np.array(10), "c": yes}, "out of range")


def test_nested_loops_read_from_every_level():
    inner = loop_body([op("Add", "u v", "u2"), op("Add", "u2 w", "u3"), op("Mul", "u3 half", "u4"), op("ReduceSum", "u4", "part", keepdims=0)], "u", "u4 part",
                      own=("j", "on", "on2"), consts={"half": np.float32(0.5)})
    outer = loop_body([op("Add", "i one", "rounds"), op("Loop", "rounds going v", "v2 ss", body=inner), op("ReduceSum", "ss", "t", keepdims=0)], "v", "v2 t",
                      consts={"one": np.int64(1)})
    m = model([op("Loop", "n c x", "y sums", body=outer)], "x n:i c:b", "y sums", consts={"w": W[:2]})
    for n in (1, 5, 30):
        check(m, {"x": X, "n": np.array(n), "c": yes}, tol=(1e-4, 1e-4))


def test_if_in_a_loop():
    branch = op("If", "odd", "w", then_branch=body([op("Add", "v x", "r")], "", "r"), else_branch=body([op("Mul", "v half", "r")], "", "r"))
    inside = loop_body([op("Mod", "i two", "bit"), op("Cast", "bit", "odd", to=B), branch], "v", "w",
                       consts={"two": np.int64(2), "half": np.float32(0.5)})
    m = model([op("Loop", "n c x", "y", body=inside)], "x n:i c:b", "y")
    for n in (0, 1, 2, 7):
        check(m, {"x": X, "n": np.array(n), "c": yes})


def test_many_rounds():
    m = model([op("Loop", "n c x", "y s t", body=count_up)], "x n:i c:b", "y s t")
    got = check(m, {"x": X, "n": np.array(3000), "c": yes}, tol=(1e-4, 1e-4))
    assert got[1].shape == (3000, 2, 3)


def test_scan_outputs_must_keep_their_shape():
    inside = loop_body([op("Concat", "v v", "w", axis=0), op("Identity", "w", "s")], "v", "w s")
    fails(model([op("Loop", "n c x", "y s", body=inside)], "x n:i c:b", "y s"), {"x": X, "n": np.array(3), "c": yes}, "changes its shape")


def test_a_loop_without_rounds_has_the_declared_shape():
    inside = loop_body([op("Add", "v v", "w"), op("Reshape", "w shape", "s")], "v", "w s", consts={"shape": np.array([3, 2])}, shapes={"s": [3, 2]})
    check(model([op("Loop", "n c x", "y s", body=inside)], "x n:i c:b", "y s"), {"x": X, "n": np.array(0), "c": yes})


# ---- Scan ---------------------------------------------------------------------------------------------------------
running = body([op("Add", "v a", "w"), op("Mul", "w two", "s")], "v a", "w s", consts={"two": np.float32(2)})
steps = rng.standard_normal((5, 3)).astype(np.float32)
for opset in OPSETS[1:]:
    f.case("Scan", opset, [W[0], steps], outs=2, attrs={"body": running, "num_scan_inputs": 1})
f.case("Scan", 9, [W[0], steps], outs=2, attrs={"body": running, "num_scan_inputs": 1})
wide = rng.standard_normal((2, 3, 7)).astype(np.float32)
for axis, back, out_axis, out_back in ((0, 0, 0, 1), (1, 0, 1, 0), (2, 1, 1, 1), (-1, 1, -1, 0), (-3, 0, -2, 1)):
    start = np.take(wide, 0, axis)
    f.case("Scan", 21, [start, wide], outs=2, name=f"{axis}-{back}-{out_axis}-{out_back}",
           attrs={"body": running, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [back],
                  "scan_output_axes": [out_axis], "scan_output_directions": [out_back]})
pair = body([op("Add", "u a", "u2"), op("Mul", "v b", "v2"), op("Add", "u2 v2", "s"), op("Sub", "a b", "t"), op("Identity", "a", "q")], "u v a b", "u2 v2 s t q")
f.case("Scan", 21, [W[0], W[1], steps, np.abs(steps.T)], outs=5,
       attrs={"body": pair, "num_scan_inputs": 2, "scan_input_axes": [0, 1], "scan_input_directions": [1, 0], "scan_output_directions": [0, 1, 0]})
stateless = body([op("Exp", "a", "s"), op("Neg", "a", "t")], "a", "s t")
f.case("Scan", 21, [steps], outs=2, attrs={"body": stateless, "num_scan_inputs": 1, "scan_output_axes": [1, 0]}, name="stateless")
final_only = body([op("Add", "v a", "w")], "v a", "w")
f.case("Scan", 21, [W[0], steps], attrs={"body": final_only, "num_scan_inputs": 1}, name="no-output")
f.case("Scan", 21, [np.float32(1), steps[:, 0]], outs=2, attrs={"body": running, "num_scan_inputs": 1}, name="rank0")
f.case("Scan", 21, [W[0], np.tile(steps, (40, 1))], outs=2, attrs={"body": running, "num_scan_inputs": 1}, name="long")
f.case("Scan", 21, [W[0].astype(np.float64), steps.astype(np.float64)], outs=1, name="double",
       attrs={"body": body([op("Add", "v a", "w")], "v:d a:d", "w:d"), "num_scan_inputs": 1})
counted = body([op("Add", "v a", "w"), op("Identity", "w", "s")], "v:i a:i", "w:i s:i")
f.case("Scan", 21, [np.int64(0), np.arange(9)], outs=2, attrs={"body": counted, "num_scan_inputs": 1}, name="prefix-sum")
shaped = body([op("Add", "v a", "w"), op("Mul", "w two", "s")], "v a", "w s", consts={"two": np.float32(2)}, shapes={k: [3] for k in "vaws"})
f.case("Scan", 21, [W[0], steps[:0]], outs=2, attrs={"body": shaped, "num_scan_inputs": 1}, name="no-rounds",
       want=[W[0], np.zeros((0, 3), np.float32)])  # ONNX Runtime's CPU provider refuses a sequence without elements

in_batches = rng.standard_normal((2, 4, 3)).astype(np.float32)
for lens in (None, [4, 4], [2, 4], [3, 1]):
    for back in (0, 1):
        f.case("Scan", 8, [None if lens is None else np.array(lens), X, in_batches], outs=2, name=f"{lens}-{back}",
               attrs={"body": shaped, "num_scan_inputs": 1, "directions": [back]})
f.case("Scan", 8, [None, in_batches[:, 0], np.abs(in_batches[:, 1]), in_batches, np.abs(in_batches)], outs=5,
       attrs={"body": pair, "num_scan_inputs": 2, "directions": [1, 0]}, name="pair")

test_control = f.pytest()


def test_scan_takes_values_from_around_it():
    inside = body([op("MatMul", "v w", "m"), op("Add", "m a", "n"), op("Tanh", "n", "u"), op("Add", "u q", "s")], "v a", "u s")
    nodes = [op("ReduceMean", "x", "q", keepdims=0), op("Scan", "h x", "y s", body=inside, num_scan_inputs=1)]
    m = model(nodes, "h x", "y s", consts={"w": W}, shapes={"h": ["b", 3], "x": ["t", "b", 3]})
    for t in (1, 6, 100):
        check(m, {"h": X, "x": rng.standard_normal((t, 2, 3)).astype(np.float32)}, tol=(1e-4, 1e-5))


def test_a_loop_in_a_scan():
    inner = loop_body([op("Add", "u a", "u2")], "u", "u2")
    scan = op("Scan", "h x", "y s", num_scan_inputs=1, body=body([op("Loop", "n c v", "w", body=inner), op("Identity", "w", "s")], "v a", "w s", shapes={"w": [3], "s": [3]}))
    m = model([scan], "h x n:i c:b", "y s")
    for n in (0, 3):
        check(m, {"h": W[0], "x": steps, "n": np.array(n), "c": yes})


def test_scan_lengths_must_agree():
    m = model([op("Scan", "u v a b", "p q s t o", body=pair, num_scan_inputs=2)], "u v a b", "p q s t o")
    fails(m, {"u": W[0], "v": W[1], "a": steps, "b": steps[:4]}, "has length 4 where others have 5")


@pytest.mark.parametrize("lens", [[5, 1], [-1, 2]])
def test_lengths_of_sequences_are_checked(lens):
    node = helper.make_node("Scan", ["n", "v", "a"], ["w", "s"], name="scan", body=running, num_scan_inputs=1)
    fails(model([node], "n:i v a", "w s", opset=8), {"n": np.array(lens), "v": X, "a": in_batches}, "is not within 0..4")


@pytest.mark.parametrize("fixed", [False, True])
def test_optimised_graphs(fixed):
    """With the runtime's own optimisations, which fold and inline, the numbers are the same."""
    inner = op("If", "b", "r", then_branch=body([op("MatMul", "t w", "r2")], "", "r2"), else_branch=body([op("Add", "x k", "r3")], "", "r3"))
    outer = body([op("Exp", "x", "t"), inner], "", "r", consts={"k": W[:1]})
    node = op("If", "a", "z", then_branch=outer, else_branch=body([op("MatMul", "x w", "r4")], "", "r4"))
    consts = {"w": W, "a": yes} if fixed else {"w": W}
    m = model([node], "x b:b" if fixed else "x a:b b:b", "z", consts=consts)
    so = ort.SessionOptions()
    mlx_ep.append_to_session_options(so, {"claim_all": "1"})
    s = ort.InferenceSession(m.SerializeToString(), so, enable_fallback=0)
    record = record_of_newest()
    assert record["claimed"] == record["nodes"], record["declined"]
    for b in (yes, no):
        feeds = {"x": X, "b": b, **({} if fixed else {"a": yes})}
        compare(s.run(None, feeds)[0], session(m, False).run(None, feeds)[0], None, "z")


@pytest.mark.parametrize("rate, samples", [(16000, 576), (8000, 288)])
@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_op18_ifless"])
def test_voice_activity_models_with_branches(name, rate, samples):
    """Ifs four levels deep, an LSTM in a branch: claimed whole, and the state of 20 steps stays that of the CPU provider."""
    path = str(packaged_file("silero_vad", f"data/{name}.onnx", "silero-vad"))
    mine, theirs = session(path, True), session(path, False)
    record = record_of_newest()
    assert record["claimed"] == record["nodes"] and record["groups"] == 1, record["declined"]
    state = [np.zeros((2, 1, 128), np.float32)] * 2
    for _ in range(20):
        x = (0.3 * rng.standard_normal((1, samples))).astype(np.float32)
        outs = [s.run(None, {"input": x, "state": st, "sr": np.array(rate)}) for s, st in zip((mine, theirs), state)]
        state = [o[1] for o in outs]
        for a, b in zip(*outs):
            compare(a, b, (1e-4, 1e-4), name)
    assert mlx_ep.describe("sessions")[-1]["runs"] == 20
