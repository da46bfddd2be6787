"""Residual streams: against ONNX Runtime's CPU kernels, and numpy for bfloat16."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(91)
f = Family("hyper")


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def ms(op, inputs, **kw):
    f.case(op, 1, inputs, domain=MS, **kw)


for dtype, tol in ((np.float32, (2e-5, 2e-6)), (np.float16, (2e-3, 2e-3))):
    for lead in ((2, 3), (4,), (), (2, 0)):
        x = normal(*lead, 4, 6, dtype=dtype)
        flat = x.reshape(*lead, 24)
        for scale in (None, (24,), (4, 6), (6,)):
            s = [] if scale is None else [normal(*scale, dtype=dtype)]
            ms("BranchwiseRMSNorm", [x, *s], tol=tol, attrs={"epsilon": 1e-3})
            ms("BranchwiseRMSNorm", [flat, *s], tol=tol, attrs={"num_branches": 4})
        for mix in ((4,), (4, 1), (4, 6)):
            ms("HyperConnectionPreMix", [x, normal(*lead, *mix, dtype=dtype)], tol=tol, attrs={"reduction_scale": 0.5})
            ms("HyperConnectionPreMix", [flat, normal(*lead, *mix, dtype=dtype)], tol=tol, attrs={"num_branches": 4})
            for streams, attrs in ((x, {}), (flat, {"num_branches": 4})):
                inputs = [streams, normal(*lead, 6, dtype=dtype), normal(*lead, *mix, dtype=dtype)]
                ms("HyperConnectionPostMix", inputs, tol=tol, attrs=attrs)
                ms("HyperConnectionPostMix", [*inputs, normal(*lead, 4, 4, dtype=dtype)], tol=tol, attrs=attrs)
        ms("HyperConnectionPreMix", [flat, normal(*lead, 24, dtype=dtype)], tol=tol, attrs={"num_branches": 4})
    for batch, length in ((2, 3), (1, 1), (0, 2)):
        k, q, v = normal(batch, length, 3, 8, dtype=dtype), normal(batch, length, 3, 8, dtype=dtype), normal(batch, length, 8, dtype=dtype)
        w = [normal(3, 8, dtype=dtype) for _ in range(3)]
        ms("EngramGate", [k, q, v, *w[:2]], tol=tol)
        ms("EngramGate", [k, q, v, *w], outs=2, tol=(5e-3, 5e-3) if dtype == np.float16 else tol, attrs={"epsilon": 1e-4})

b16 = ml_dtypes.bfloat16
x, g = normal(2, 4, 6).astype(b16), normal(2, 4).astype(b16)
wide, gate = x.astype(np.float32), g.astype(np.float32)
ms("HyperConnectionPreMix", [x, g], want=[(wide * gate[..., None]).sum(-2).astype(b16)])
ms("BranchwiseRMSNorm", [x], want=[(wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(b16)])

f.fails("BranchwiseRMSNorm", 1, [normal(2, 4, 6), normal(5)], domain=MS, why="a scale of 5 elements")
f.fails("BranchwiseRMSNorm", 1, [normal(2, 23)], domain=MS, attrs={"num_branches": 4}, why="an axis of 23 for 4 branches")
f.declines("BranchwiseRMSNorm", 1, [normal(2, 24)], domain=MS, attrs={"num_branches": -1}, why="num_branches -1")

test_hyper = f.pytest()
