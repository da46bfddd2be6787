"""`info`: the versions and the device in use."""
from __future__ import annotations

import argparse

import onnxruntime

from . import describe, register_execution_provider_library
from .cli_common import print_json, print_table


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("info", help="versions and device", description="Prints the versions and the device in use.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    # The library learns ONNX Runtime's API when it is registered.
    register_execution_provider_library()
    report = describe("info")
    info = {"ort": onnxruntime.__version__, **{key: report[key] for key in ("ort_api", "mlx", "device", "library", "version")}}
    if arguments.json:
        print_json(info)
    else:
        titles = {"ort": "ONNX Runtime", "ort_api": "ONNX Runtime API", "mlx": "MLX", "device": "device", "library": "library",
                  "version": "provider"}
        print_table([(title, str(info[key])) for key, title in titles.items()], (False, False))
    return 0
