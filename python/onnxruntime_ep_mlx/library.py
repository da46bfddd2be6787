"""Where the provider's shared library is, and what it reports about itself.

The library is searched in this order: the file named by the environment variable ONNXRUNTIME_EP_MLX_LIBRARY, a file beside this
package (an installed wheel), the build folder of a checkout.
"""
from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

EP_NAME = "MLXExecutionProvider"
LIBRARY_VARIABLE = "ONNXRUNTIME_EP_MLX_LIBRARY"
_LIBRARY_STEM = "libonnxruntime_mlx_ep"


class LibraryNotFoundError(FileNotFoundError):
    """The provider's shared library is in none of the places where it may be."""


class DescribeError(RuntimeError):
    """The library cannot tell about the topic that was asked for."""


def library_file_name() -> str:
    return _LIBRARY_STEM + (".dylib" if sys.platform == "darwin" else ".so")


def _candidates() -> list[Path]:
    package = Path(__file__).resolve().parent
    name = library_file_name()
    return [package / name, package.parent.parent / "build" / name]


def library_path() -> str:
    """Absolute path of the provider's shared library; raises LibraryNotFoundError with what to do when there is none."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        path = Path(named).expanduser()
        if path.is_file():
            return str(path.resolve())
        raise LibraryNotFoundError(f"{LIBRARY_VARIABLE} names {named}, which is not a file")
    for path in _candidates():
        if path.is_file():
            return str(path)
    places = " or ".join(str(path) for path in _candidates())
    raise LibraryNotFoundError(f"the MLX provider's library was not found at {places}: run make build, or set {LIBRARY_VARIABLE}")


def describe(topic: str) -> Any:
    """What the library reports about `topic`, parsed from its JSON.

    "info": a dict with the version, the ORT API in use, the MLX version, the device and the library's path.
    "ops": a list with one dict per operator that can be claimed.
    "absent": a list with one dict per operator that has a schema but is not translated, with the reason.
    "sessions": a list with one dict per session that used the provider in this process, the newest last.
    """
    try:
        function = ctypes.CDLL(library_path()).MlxEpDescribe
    except AttributeError as error:
        raise DescribeError(f"{library_path()} does not export MlxEpDescribe: it is not this provider's library, or an old one") from error
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    text = _read_text(function, topic.encode())
    answer = json.loads(text) if text else {"error": "unknown topic"}
    if isinstance(answer, dict) and "error" in answer:
        topics = "info, ops, absent, sessions and counters"
        raise DescribeError(f"the library has no answer for topic {topic!r} ({answer['error']}); it knows {topics}")
    return answer


def _read_text(function: Any, topic: bytes) -> str:
    # Another thread may add to the text between the two calls: ask again until it fits.
    size = function(topic, None, 0)
    while True:
        buffer = ctypes.create_string_buffer(size + 1)
        full = function(topic, buffer, size + 1)
        if full <= size:
            return buffer.value.decode()
        size = full
