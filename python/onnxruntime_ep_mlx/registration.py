"""Registering the provider's library with ONNX Runtime, and adding the provider to session options."""
from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import onnxruntime

from .library import EP_NAME, library_path

_OLDEST_ORT = "1.23"
_lock = threading.Lock()
_registered: dict[str, str] = {}  # registration name -> library path


class OnnxRuntimeTooOldError(RuntimeError):
    """The installed ONNX Runtime cannot load provider libraries."""


def _require_plugin_support() -> None:
    needed = ("register_execution_provider_library", "unregister_execution_provider_library", "get_ep_devices")
    if not all(hasattr(onnxruntime, name) for name in needed):
        raise OnnxRuntimeTooOldError(
            f"onnxruntime {onnxruntime.__version__} cannot load provider libraries: install onnxruntime {_OLDEST_ORT} or newer")


def ep_devices() -> list[Any]:
    """The OrtEpDevices of this provider; empty while the library is not registered."""
    _require_plugin_support()
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]


def register_execution_provider_library(name: str = EP_NAME) -> None:
    """Makes the provider known to ONNX Runtime under `name`. A second call does nothing.

    A library that the host program itself registered counts as registered. The call holds for the whole process; sessions name the
    provider either with `append_to_session_options` or with plain
    `InferenceSession(model, providers=["MLXExecutionProvider", "CPUExecutionProvider"])`. ONNX Runtime 1.31 accepts the second form
    once the library is registered, with options too (`("MLXExecutionProvider", {...})`); before registration it prints an error, and
    silently runs the model on its CPU provider unless the session is made with `enable_fallback=0`.
    """
    _require_plugin_support()
    with _lock:
        if name in _registered or ep_devices():
            return
        path = library_path()
        onnxruntime.register_execution_provider_library(name, path)
        if not ep_devices():
            onnxruntime.unregister_execution_provider_library(name)
            raise RuntimeError(f"{path} was loaded but offers no device for {EP_NAME}")
        _registered[name] = path


def unregister_execution_provider_library(name: str = EP_NAME) -> None:
    """Undoes `register_execution_provider_library(name)`; does nothing when that was not called.

    Every session that uses the provider must be gone by then.
    """
    with _lock:
        if name in _registered:
            onnxruntime.unregister_execution_provider_library(name)
            del _registered[name]


def append_to_session_options(so: onnxruntime.SessionOptions, options: Mapping[str, Any] | None = None) -> None:
    """Adds the provider with its device to `so`, registering the library first if needed.

    `options` are the provider's session options; values are turned into text. Nodes that the provider does not claim run on ONNX
    Runtime's CPU provider. Make the session without `providers=`, and with `enable_fallback=0` to see an error instead of a session
    that silently runs on the CPU provider alone.
    """
    if not ep_devices():
        register_execution_provider_library()
    so.add_provider_for_devices(ep_devices(), {key: option_text(value) for key, value in (options or {}).items()})


def option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
