"""ONNX Runtime's own word on where the nodes of a session went, and that the provider's record says the same."""
from __future__ import annotations

import dataclasses
from collections import Counter

import onnxruntime as ort

RECORD = "session.record_ep_graph_assignment_info"
MLX = "MLXExecutionProvider"


@dataclasses.dataclass(frozen=True)
class Assignment:
    mlx: Counter  # operator type -> nodes, those of bodies not counted
    elsewhere: Counter
    groups: int

    @property
    def nodes(self) -> int:
        return self.mlx.total() + self.elsewhere.total()

    @property
    def placement(self) -> str:
        """none: ONNX Runtime left no node to place."""
        return "none" if not self.nodes else "mlx" if not self.elsewhere else "part" if self.mlx else "cpu"


def record_assignment(options: ort.SessionOptions) -> ort.SessionOptions:
    options.add_session_config_entry(RECORD, "1")
    return options


def assignment_of(session: ort.InferenceSession) -> Assignment:
    parts = session.get_provider_graph_assignment_info()
    ours = [part for part in parts if part.ep_name == MLX]
    mlx = Counter(node.op_type for part in ours for node in part.get_nodes())
    return Assignment(mlx, Counter(node.op_type for part in parts for node in part.get_nodes()) - mlx, len(ours))


def check_record(record: dict, at: Assignment) -> None:
    """The record counts the nodes of bodies too, with their control-flow node: it has each node of ONNX Runtime's, and is of
    the same placement."""
    claimed, nodes = record["claimed"], record["nodes"]
    said = "none" if not nodes else "mlx" if claimed == nodes else "part" if claimed else "cpu"
    assert said == at.placement, f"ONNX Runtime: {at}; the record: {claimed} of {nodes}"
    assert record["groups"] == at.groups, f"ONNX Runtime: {at.groups} groups; the record: {record['groups']}"
    for place, theirs in (("MLX", at.mlx), ("CPU", at.elsewhere)):
        mine = Counter(node["op_type"] for node in record["placed"] if node["place"] == place)
        assert theirs <= mine, f"on {place} ONNX Runtime has {theirs - mine} more than the record"
