"""Argument types that commands share; a wrong value is a usage error (exit code 2)."""
from __future__ import annotations

import argparse


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form K=V")
    return key, value


def dimension(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not name or not equals or not size.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=N")
    return name, int(size)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
