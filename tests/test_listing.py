"""The listing of the operators (docs/ops.md) is what the provider does: of one node of each operator, made from ONNX Runtime's
schema with inputs of unknown shape, it claims the listed types and declines all others that the schema allows."""
from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnxruntime.capi.onnxruntime_pybind11_state as state
import pytest
from onnx import TensorProto, TypeProto, helper

import onnxruntime_ep_mlx as mlx_ep
from case import session

ROWS = mlx_ep.describe("ops")
MS, ML = "com.microsoft", "ai.onnx.ml"
FLOATS = {"float", "float16", "bfloat16", "double"}
AT_LEAST = 100  # operators that the recipe has to reach
# Attributes that the schema requires, by name; other required ones are 1.
ATTRIBUTES = {"direction": "LEFT", "kernel_shape": [2, 2], "axes": [0], "starts": [0], "ends": [1], "pads": [0, 0]}
# By operator: what its schema or its claim wants beside or instead.
MORE: dict[tuple[str, str], dict] = {
    ("", "Shrink"): {"lambd": 1.0, "bias": 0.0},
    ("", "Gelu"): {"approximate": "tanh"},
    ("", "Einsum"): {"equation": "ij,jk->ik"},
    (MS, "FusedMatMulActivation"): {"activation": "Relu"},
    ("", "MaxRoiPool"): {"pooled_shape": [1, 1]},
    (MS, "MRotaryEmbedding"): {"mrope_section": [1, 1, 1]},
    ("", "LinearAttention"): {"update_rule": "linear"},
    (MS, "LinearAttention"): {"update_rule": "linear"},
    ("", "RandomNormalLike"): {"dtype": TensorProto.FLOAT},
    ("", "RandomUniformLike"): {"dtype": TensorProto.FLOAT},
    ("", "Crop"): {"border": [0, 0, 0, 0]},
    ("", "ImageScaler"): {"bias": [0.0]},
    ("", "ParametricSoftplus"): {"alpha": 1.0, "beta": 1.0},
    ("", "ScaledTanh"): {"alpha": 1.0, "beta": 1.0},
    (MS, "NGramHashMapping"): {"max_ngram_size": 2},
    (ML, "LinearRegressor"): {"coefficients": [1.0]},
    (ML, "LinearClassifier"): {"coefficients": [1.0, -1.0], "intercepts": [0.0, 0.0], "classlabels_ints": [0, 1]},
    (ML, "SVMRegressor"): {"coefficients": [1.0], "rho": [0.0]},
    (ML, "FeatureVectorizer"): {"inputdimensions": [1, 1]},
    (ML, "Imputer"): {"imputed_value_floats": [0.0], "imputed_value_int64s": [0]},
    (ML, "OneHotEncoder"): {"cats_int64s": [0]},
    (ML, "Scaler"): {"offset": [0.0], "scale": [1.0]},
}
# Operators whose claim wants more than a node of unknown shapes gives (constant weights, bodies, inputs that go together), or that
# ONNX Runtime refuses before it asks: their families' tests have a case for each type.
NOT_SIMPLE = {
    *(("", name) for name in ("BitCast", "If", "Loop", "Resize", "STFT", "Scan", "TfIdfVectorizer")),
    *((ML, name) for name in ("LabelEncoder", "SVMClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")),
    *((MS, name) for name in ("DecoderMaskedMultiHeadAttention", "EmbedLayerNormalization", "GatedDeltaNet", "GatherBlockQuantized",
                              "Irfft", "MatMulBnb4", "MatMulNBits", "MatMulNBitsMlp", "MatMulNBitsQkv", "MulInteger", "PagedAttention", "QLinearAdd", "QLinearAveragePool", "QLinearConcat",
                              "QLinearMul", "QMoE", "ReduceSumInteger", "VarlenNGramHashMapping")),
}


def schemas() -> dict[tuple[str, str], list]:
    found: dict[tuple[str, str], list] = {}
    for schema in state.get_all_operator_schema():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


SCHEMAS = schemas()


def schema_of(row: dict):
    """The newest one that the row is for."""
    known = [s for s in SCHEMAS.get((row["domain"], row["op_type"]), [])
             if row["since"] <= s.since_version <= (row["until"] or 10**6) and not s.deprecated]
    return max(known, key=lambda s: s.since_version, default=None)


def element_types(schema, parameter) -> list[str]:
    """ONNX's names of the element types of a parameter; ONNX Runtime loads no complex ones."""
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == parameter.typeStr), [parameter.typeStr])
    return [t[len("tensor("):-1] for t in allowed if t.startswith("tensor(") and "complex" not in t]


def given_inputs(schema) -> list:
    """The parameters up to the last one that a node must have, None for an optional one; a variadic one twice."""
    option = state.schemadef.OpSchema.FormalParameterOption
    given: list = []
    for parameter in schema.inputs:
        given += [parameter] * 2 if parameter.option == option.Variadic else [None if parameter.option == option.Optional else parameter]
    while given and given[-1] is None:
        given.pop()
    return given


def chosen(schema, given: list, typed: list[int] | None, element: str) -> list[str | None]:
    """A type for each input: `element` for the typed ones, what shares their parameter, and others that may have it if it
    is a float."""
    names = {p.typeStr for i, p in enumerate(given) if p and (typed is None or i in typed)}
    types: list[str | None] = []
    for parameter in given:
        allowed = element_types(schema, parameter) if parameter else []
        if parameter and parameter.typeStr in names and element in allowed:
            types.append(element)
        else:
            wanted = (element if element in FLOATS else "float", "float", "int64")
            types.append(next((t for t in wanted if t in allowed), allowed[0] if allowed else None))
    return types


def onnx_type(element: str) -> int:
    return getattr(TensorProto, element.upper())


def listed_name(element: str) -> str:
    return {"float": "float32", "double": "float64"}.get(element, element)


def attributes(row: dict, schema) -> dict:
    required = {name: ATTRIBUTES.get(name, 1) for name, a in schema.attributes.items() if a.required}
    return {**required, **MORE.get((row["domain"], row["op_type"]), {})}


def model(row: dict, schema, types: list[str | None]) -> onnx.ModelProto:
    outs = [f"out{k}" for k in range(max(schema.min_output, 1))]
    node = helper.make_node(row["op_type"], [f"in{i}" if t else "" for i, t in enumerate(types)], outs, name="node",
                            domain=row["domain"], **attributes(row, schema))
    infos = [onnx.ValueInfoProto(name=f"in{i}", type=TypeProto(tensor_type=TypeProto.Tensor(elem_type=onnx_type(t))))
             for i, t in enumerate(types) if t]
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in outs])
    opsets = [helper.make_opsetid("", 21)] if row["domain"] else []
    return helper.make_model(graph, ir_version=10, opset_imports=[*opsets, helper.make_opsetid(row["domain"], schema.since_version)])


def verdict(proto: onnx.ModelProto) -> str | None:
    """None when the node is claimed, else the reason. A declined function is no node any more: ONNX Runtime inlines it."""
    before, error = {r["id"] for r in mlx_ep.describe("sessions")}, ""
    try:
        session(proto, True, {"claim_all": "1"})
    except Exception as e:  # declined, and ONNX Runtime's CPU provider has no kernel either
        error = str(e)
    made = [r for r in mlx_ep.describe("sessions") if r["id"] not in before]
    assert made and made[0]["nodes"], f"ONNX Runtime refuses the model: {error}"
    asked = proto.graph.node[0].op_type
    if any(n["op_type"] == asked and n["place"] == "MLX" for n in made[0]["placed"]):
        return None
    return next((n["reason"] for n in made[0]["declined"] if n["op_type"] == asked), "another type of node")


def attempts(row: dict) -> Iterator[tuple[str, list[str | None]]]:
    schema = schema_of(row)
    given = given_inputs(schema)
    for element in element_types(schema, given[(row["typed_in"] or [0])[0]]):
        yield element, chosen(schema, given, row["typed_in"], element)


def simple(row: dict) -> bool:
    schema = schema_of(row)
    if schema is None or (row["domain"], row["op_type"]) in NOT_SIMPLE:
        return False
    given, main = given_inputs(schema), (row["typed_in"] or [0])[0]
    return len(given) > main and given[main] is not None


SIMPLE = [row for row in ROWS if simple(row)]


@pytest.mark.parametrize("row", SIMPLE, ids=lambda r: f"{r['domain'] or 'ai.onnx'}-{r['op_type']}-{r['since']}")
def test_types(row):
    schema = schema_of(row)
    tried = 0
    for element, types in attempts(row):
        why = verdict(model(row, schema, types))
        tried += 1
        if listed_name(element) in row["types"]:
            assert why is None, f"{element} is listed and declined: {why}"
        else:
            assert why is not None, f"{element} is not listed and claimed"
            assert "type" in why, f"{element} is declined, but for another reason: {why}"
    assert tried


def test_reach():
    operators = {(row["domain"], row["op_type"]) for row in SIMPLE}
    print(f"{len(operators)} of {len({(row['domain'], row['op_type']) for row in ROWS})} operators")
    assert len(operators) >= AT_LEAST
    assert not NOT_SIMPLE - {(row["domain"], row["op_type"]) for row in ROWS}


def test_rows_do_not_overlap():
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in ROWS:
        spans.setdefault((row["domain"], row["op_type"]), []).append((row["since"], row["until"] or 10**6))
    for key, listed in spans.items():
        listed.sort()
        assert all(a[1] < b[0] for a, b in zip(listed, listed[1:])), key
