"""The command line: python -m onnxruntime_ep_mlx run|claim|ops|info."""
from __future__ import annotations

import argparse
import os
import sys

from . import DescribeError, LibraryNotFoundError, OnnxRuntimeTooOldError, cli_claim, cli_info, cli_ops, cli_run, version
from .cli_common import CliError, report
from .sessions import SessionError


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m onnxruntime_ep_mlx", description="ONNX Runtime on MLX: try a model, see what is claimed.")
    top.add_argument("--version", action="version", version=version())
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for module in (cli_run, cli_claim, cli_ops, cli_info):
        module.add_parser(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    try:
        return int(parsed.command(parsed))
    except (CliError, DescribeError, LibraryNotFoundError, OnnxRuntimeTooOldError, SessionError) as error:
        report(error)
        return 1
    except BrokenPipeError:  # the reader has seen enough: `… ops | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
