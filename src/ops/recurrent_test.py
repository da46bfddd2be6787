"""RNN, GRU and LSTM against ONNX Runtime; what it refuses (layout 1, halves) against its float32 answer."""
import ml_dtypes
import numpy as np
import onnxruntime as ort

from case import Case, Family, model_of

rng = np.random.default_rng(14)
f = Family("recurrent")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTS = {"RNN": 2, "GRU": 2, "LSTM": 3}
TOL = (1e-4, 1e-5)


def normal(*shape):
    return (rng.standard_normal(shape) * 0.5).astype(np.float32)


def inputs(op, steps=5, batch=3, size=4, hidden=6, dirs=1, bias=True, lengths=None, initial=False, peephole=False):
    g = GATES[op]
    ins = [normal(steps, batch, size), normal(dirs, g * hidden, size), normal(dirs, g * hidden, hidden),
           normal(dirs, 2 * g * hidden) if bias else None, None if lengths is None else np.array(lengths, np.int32),
           normal(dirs, batch, hidden) if initial else None]
    if op == "LSTM":
        ins += [normal(dirs, batch, hidden) if initial else None, normal(dirs, 3 * hidden) if peephole else None]
    while ins[-1] is None:
        ins.pop()
    return ins


def attrs_of(ins, direction="forward", **attrs):
    return {"hidden_size": ins[2].shape[2], "direction": direction, **attrs}


def run(op, opset=22, direction="forward", const=(), attrs=None, tol=TOL, **kw):
    ins = inputs(op, dirs=2 if direction == "bidirectional" else 1, **kw)
    f.case(op, opset, ins, outs=OUTS[op], attrs=attrs_of(ins, direction, **(attrs or {})), const=const, tol=tol,
           name=direction + str(attrs or ""))


for op in GATES:
    for opset in (7, 14, 22):
        run(op, opset)
    for direction in ("forward", "reverse", "bidirectional"):
        run(op, direction=direction, initial=True)
        run(op, direction=direction, lengths=[5, 2, 3], initial=True)
        run(op, direction=direction, lengths=[1, 4, 0], const=(1, 2, 3))
    run(op, bias=False)
    run(op, steps=1, batch=1, const=(1, 2, 3))
    run(op, attrs={"clip": 0.3})
    f.case(op, 22, (ins := inputs(op)), outs=1, attrs=attrs_of(ins), tol=TOL, name="Y only")
    f.case(op, 22, (ins := inputs(op)), outs=OUTS[op], skip_outs=(0,), attrs=attrs_of(ins), tol=TOL, name="no Y")
for direction in ("forward", "bidirectional"):
    run("LSTM", direction=direction, peephole=True, initial=True)
    run("LSTM", direction=direction, peephole=True, lengths=[5, 1, 4], attrs={"clip": 0.4})
run("LSTM", attrs={"input_forget": 1})
for direction in ("forward", "reverse", "bidirectional"):
    run("GRU", direction=direction, attrs={"linear_before_reset": 1}, initial=True)
    run("GRU", direction=direction, attrs={"linear_before_reset": 1}, bias=False)
    run("GRU", direction=direction, attrs={"linear_before_reset": 1}, lengths=[2, 5, 1])
for act, a, b in [("Relu", [], []), ("Tanh", [], []), ("Sigmoid", [], []), ("Affine", [0.5], [0.1]), ("LeakyRelu", [0.2], []),
                  ("ThresholdedRelu", [0.3], []), ("ScaledTanh", [0.8], [0.7]), ("HardSigmoid", [0.3], [0.4]), ("Elu", [0.7], []),
                  ("Softsign", [], []), ("Softplus", [], [])]:
    kw = {k: v for k, v in (("activation_alpha", a), ("activation_beta", b)) if v}
    run("RNN", attrs={"activations": [act], **kw})
    run("LSTM", attrs={"activations": ["Sigmoid", act, "Tanh"], **kw})
    run("GRU", attrs={"activations": ["Sigmoid", act], **kw})
run("RNN", direction="bidirectional", attrs={"activations": ["LeakyRelu", "Affine"], "activation_alpha": [0.3, 0.6], "activation_beta": [0.2]})
run("LSTM", direction="bidirectional", attrs={"activations": ["HardSigmoid", "Tanh", "Tanh", "Sigmoid", "Elu", "Relu"],
                                              "activation_alpha": [0.25, 0.9], "activation_beta": [0.45]})
run("GRU", attrs={"activations": ["hardsigmoid", "ScaledTanh"], "activation_alpha": [0.2, 0.9], "activation_beta": [0.5, 0.8]})


def reference(op, ins, attrs):
    """ONNX Runtime's answer in float32 and layout 0."""
    model = model_of(Case(op, 22, ins, outs=OUTS[op], attrs=attrs), False)
    s = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return s.run(None, {f"in{i}": x for i, x in enumerate(ins) if x is not None})


for op in GATES:
    for direction in ("forward", "bidirectional"):
        ins = inputs(op, dirs=2 if direction == "bidirectional" else 1, initial=True, lengths=[5, 2, 3])
        at = attrs_of(ins, direction)
        want = reference(op, ins, at)
        turned = [x.swapaxes(0, 1).copy() if x is not None and i in (0, 5, 6) else x for i, x in enumerate(ins)]
        f.case(op, 22, turned, outs=OUTS[op], attrs={**at, "layout": 1}, tol=TOL, name="layout 1 " + direction,
               want=[want[0].transpose(2, 0, 1, 3)] + [w.swapaxes(0, 1) for w in want[1:]])
    for t in (np.float16, ml_dtypes.bfloat16):
        ins = [x if x is None or x.dtype == np.int32 else x.astype(t) for x in inputs(op, initial=True)]
        at = attrs_of(ins)
        want = reference(op, [x if x is None or x.dtype == np.int32 else x.astype(np.float32) for x in ins], at)
        f.case(op, 22, ins, outs=OUTS[op], attrs=at, want=[w.astype(t) for w in want])

for op, opset in (("RNN", 1), ("GRU", 1), ("GRU", 3), ("LSTM", 1)):  # the versions before ONNX Runtime's first kernels
    ins = inputs(op, initial=True)
    f.case(op, opset, ins, outs=OUTS[op], attrs=attrs_of(ins), want=reference(op, ins, attrs_of(ins)), tol=TOL)

x = inputs("LSTM")
f.declines("LSTM", 22, [i if i is None else i.astype(np.float64) for i in x], why="type float64", attrs=attrs_of(x), outs=3)
f.declines("LSTM", 22, x, why="activation", attrs=attrs_of(x, activations=["Sigmoid", "Nothing", "Tanh"]), outs=3)
f.declines("LSTM", 22, x, why="3 names", attrs=attrs_of(x, activations=["Sigmoid"]), outs=3)

test_recurrent = f.pytest()
