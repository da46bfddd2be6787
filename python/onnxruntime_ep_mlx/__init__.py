"""ONNX Runtime on Apple's MLX: a plug-in execution provider.

    import onnxruntime as ort, onnxruntime_ep_mlx as mlx_ep
    so = ort.SessionOptions()
    mlx_ep.append_to_session_options(so)
    session = ort.InferenceSession("model.onnx", so, enable_fallback=0)

or, once the library is registered, by name:

    mlx_ep.register_execution_provider_library()
    session = ort.InferenceSession("model.onnx", providers=["MLXExecutionProvider", "CPUExecutionProvider"])
"""
from __future__ import annotations

from typing import Any

from .library import EP_NAME, DescribeError, LibraryNotFoundError, describe, library_path
from .registration import (OnnxRuntimeTooOldError, append_to_session_options, register_execution_provider_library,
                           unregister_execution_provider_library)

__version__ = "0.1.0"

__all__ = ["DescribeError", "LibraryNotFoundError", "OnnxRuntimeTooOldError", "append_to_session_options", "counters", "describe", "ep_name",
           "get_ep_name", "get_ep_names", "get_library_path", "library_path", "register_execution_provider_library",
           "unregister_execution_provider_library", "version"]


def counters() -> dict[str, Any]:
    """What the provider has counted in this process: {"runs": {route: n}, "traces": n, "compiles": n, "hits": n, "evictions": n,
    "bytes_copied": n, "fallbacks": {reason: n}}. Each session's own are in `describe("sessions")`."""
    return dict(describe("counters"))


def ep_name() -> str:
    """The provider's name in ONNX Runtime."""
    return EP_NAME


def get_ep_name() -> str:
    """The same as `ep_name`, in the spelling that plug-in provider packages share."""
    return EP_NAME


def get_ep_names() -> list[str]:
    """The names of all providers in the library: one."""
    return [EP_NAME]


def get_library_path() -> str:
    """The same as `library_path`, in the spelling that plug-in provider packages share."""
    return library_path()


def version() -> str:
    """The version of this package."""
    return __version__
