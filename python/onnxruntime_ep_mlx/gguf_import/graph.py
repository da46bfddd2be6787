"""An ONNX graph under construction. Large initializers go straight to the external data file, so that a model never is in memory whole."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
_OPSETS = {"": 20, MICROSOFT: 1}
_IR_VERSION = 10
_INLINE_BYTES = 1024   # smaller tensors stay in the model file: shape inference reads them
_ALIGNMENT = 4096      # of external tensors, so that they can be mapped into memory


class GraphBuilder:
    """Collects nodes, initializers, inputs and outputs; `save` writes the model beside its data file."""

    def __init__(self, name: str, data: BinaryIO, data_name: str) -> None:
        self._name = name
        self._data = data
        self._data_name = data_name
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def initializer(self, name: str, value: np.ndarray) -> str:
        """Adds `value` once; a name that is already there refers to the same tensor."""
        if name not in self._initializers:
            value = np.ascontiguousarray(value)
            small = value.nbytes < _INLINE_BYTES
            self._initializers[name] = numpy_helper.from_array(value, name) if small else self._external(name, value)
        return name

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        array: np.ndarray = np.asarray(value, dtype)
        return self.initializer(f"/model/constants/{array.dtype.name.upper()}/{value}", array)

    def node(self, op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, domain: str = "",
             **attributes: Any) -> str:
        """Adds a node and returns its first output, by default `name`/output_0."""
        results = list(outputs) if outputs else [f"{name}/output_0"]
        self._nodes.append(helper.make_node(op_type, list(inputs), results, name=name, domain=domain, **attributes))
        return results[0]

    def save(self, path: Path) -> None:
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, list(self._initializers.values()))
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="onnxruntime_ep_mlx.gguf_import")
        onnx.save_model(model, path)

    def _external(self, name: str, value: np.ndarray) -> onnx.TensorProto:
        self._data.write(b"\0" * (-self._data.tell() % _ALIGNMENT))
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(value.dtype), dims=value.shape,
                             data_location=TensorProto.EXTERNAL)
        place = {"location": self._data_name, "offset": self._data.tell(), "length": value.nbytes}
        for key, entry in place.items():
            tensor.external_data.add(key=key, value=str(entry))
        self._data.write(value.tobytes())
        return tensor
