"""python -m onnxruntime_ep_mlx.gguf_import FILE.gguf [OUT]: a model folder from a GGUF file."""
from __future__ import annotations

import argparse
import sys

from . import FormatError, GGUFError, Options, import_gguf
from .decoder import QUANT_BITS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m onnxruntime_ep_mlx.gguf_import",
                                     description="Makes an ONNX model folder from a GGUF file of the Llama family.")
    parser.add_argument("file", metavar="FILE.gguf")
    parser.add_argument("folder", metavar="OUT", nargs="?", help="the folder to make; by default one in the cache of made models")
    parser.add_argument("--quant", choices=tuple(QUANT_BITS), default="q4", help="bits of the matrix weights (default q4)")
    parser.add_argument("--accuracy-level", type=int, choices=range(5), default=0, metavar="0..4", help="of MatMulNBits (default 0: float32 arithmetic)")
    parser.add_argument("--layers", type=int, default=0, metavar="N", help="only the first N layers")
    parser.add_argument("--context", type=int, default=0, metavar="N", help="positions in the rotary tables")
    parser.add_argument("--packed-qkv", action="store_true", help="one product for q, k and v")
    parsed = parser.parse_args(arguments)
    options = Options(parsed.quant, parsed.accuracy_level, parsed.layers, parsed.context, parsed.packed_qkv)
    try:
        print(import_gguf(parsed.file, options, parsed.folder))
    except (GGUFError, FormatError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
