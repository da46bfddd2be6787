"""Inputs that the models of test_zoo.py were made for: written lines, speech-like sound, a chord, text."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

# Capitals of straight strokes on a grid 2 wide and 4 high; y grows downwards.
STROKES = {
    "A": [(0, 4, 1, 0), (1, 0, 2, 4), (0.4, 2.5, 1.6, 2.5)], "E": [(0, 0, 0, 4), (0, 0, 2, 0), (0, 2, 1.7, 2), (0, 4, 2, 4)],
    "F": [(0, 0, 0, 4), (0, 0, 2, 0), (0, 2, 1.7, 2)], "H": [(0, 0, 0, 4), (2, 0, 2, 4), (0, 2, 2, 2)], "I": [(1, 0, 1, 4)],
    "K": [(0, 0, 0, 4), (2, 0, 0, 2.3), (0.6, 1.7, 2, 4)], "L": [(0, 0, 0, 4), (0, 4, 2, 4)],
    "M": [(0, 4, 0, 0), (0, 0, 1, 2.6), (1, 2.6, 2, 0), (2, 0, 2, 4)], "N": [(0, 4, 0, 0), (0, 0, 2, 4), (2, 4, 2, 0)],
    "T": [(0, 0, 2, 0), (1, 0, 1, 4)], "W": [(0, 0, 0.5, 4), (0.5, 4, 1, 1.4), (1, 1.4, 1.5, 4), (1.5, 4, 2, 0)],
    "X": [(0, 0, 2, 4), (2, 0, 0, 4)],
}


def ink(text: str, height: int, width: int, left: float, top: float, unit: float) -> np.ndarray:
    """float32 [height, width], 1 on the strokes of `text` and 0 away from them, with soft edges."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    nearest = np.full((height, width), np.inf, np.float32)
    for k, letter in enumerate(text):
        for x0, y0, x1, y1 in STROKES.get(letter, []):
            ax, ay = left + unit * (x0 + 3 * k), top + unit * y0
            dx, dy = unit * (x1 - x0), unit * (y1 - y0)
            along = np.clip(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy), 0, 1)
            nearest = np.minimum(nearest, np.hypot(x - ax - along * dx, y - ay - along * dy))
    return np.clip(1 + unit * 0.22 - nearest, 0, 1)


def page(height: int, width: int, lines: list[tuple[str, float, float, float]]) -> np.ndarray:
    """float32 [3, height, width] of 0..255: dark lines (text, left, top, unit) on paper whose light falls off smoothly."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    light = 225 + 20 * np.sin(3 * x / width) * np.cos(2 * y / height)
    paper = np.stack([light, light * 0.98, light * 0.94])
    for text, left, top, unit in lines:
        mark = ink(text, height, width, left, top, unit)
        paper = paper * (1 - mark) + np.array([30, 35, 60], np.float32)[:, None, None] * mark
    return paper.astype(np.float32)


def scaled(picture: np.ndarray) -> np.ndarray:
    """[1, 3, height, width] of -1..1."""
    return picture[None] / 127.5 - 1


def chord(samples: int, rate: int, notes: tuple[float, ...]) -> np.ndarray:
    """Notes in Hz with two overtones each, struck one after the other and fading."""
    t = np.arange(samples) / rate
    sound = np.zeros(samples)
    for k, note in enumerate(notes):
        since = np.maximum(t - 0.2 * k, 0)
        sound += sum(np.sin(2 * np.pi * note * h * since) / h for h in (1, 2, 3)) * np.exp(-2 * since)
    return (0.2 * sound).astype(np.float32)


def bursts(chunks: int, samples: int, rate: int) -> np.ndarray:
    """float32 [chunks, samples]: a buzz with the colour of a vowel in noise, on for some chunks and off for others."""
    t = np.arange(chunks * samples) / rate
    rng = np.random.default_rng(11)
    vowel = sum(np.sin(2 * np.pi * 140 * h * t) * np.exp(-((140 * h - 700) / 500) ** 2) for h in range(1, 20))
    on = (np.arange(chunks) % 4 < 3).repeat(samples)
    return ((0.25 * vowel + 0.02 * rng.standard_normal(t.size)) * on).astype(np.float32).reshape(chunks, samples)


def file_ends(content: bytes, size: int) -> np.ndarray:
    """int32 [1, 2 * size]: the first and the last `size` bytes; 256 stands for none."""
    ends = np.full((2, size), 256, np.int32)
    first, last = np.frombuffer(content[:size], np.uint8), np.frombuffer(content[-size:], np.uint8)
    ends[0, :first.size], ends[1, size - last.size:] = first, last
    return ends.reshape(1, -1)


def character_ids(text: str, vocabulary: Path, key: str) -> np.ndarray:
    """int64 [1, letters]"""
    ids = json.loads(vocabulary.read_text(encoding="utf-8"))[key]
    return np.array([[ids.get(c, 1) for c in text]], np.int64)


def with_logits(path: str, folder: Path) -> str:
    """The model with what enters its softmax as one more output, and with random weights where it ships constant fills."""
    model = onnx.load(path)
    fill_in(model.graph)
    for node in [n for n in model.graph.node if n.op_type == "Softmax"]:
        model.graph.output.append(onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None))
    return saved(model, folder / Path(path).name)


def fill_in(graph: onnx.GraphProto) -> None:
    rng = np.random.default_rng(5)
    shapes = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    for node in [n for n in graph.node if n.op_type == "ConstantOfShape"]:
        shape = tuple(int(d) for d in shapes[node.input[0]])
        if len(shape) == 1:  # scales, means, variances, biases
            weights = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            weights = rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        graph.initializer.append(onnx.numpy_helper.from_array(weights, node.output[0]))
        graph.node.remove(node)


def with_nudged_scales(path: str, folder: Path, seed: int) -> str:
    """The model with each scale of its quantised weights moved by about one unit in the last place."""
    model, rng = onnx.load(path), np.random.default_rng(seed)
    for i in model.graph.initializer:
        if i.name.endswith("_scale") and i.data_type == onnx.TensorProto.FLOAT:
            scale = onnx.numpy_helper.to_array(i)
            nudged = np.nextafter(scale, scale * np.float32(rng.choice([0.5, 2])))
            i.CopyFrom(onnx.numpy_helper.from_array(nudged.astype(np.float32), i.name))
    return saved(model, folder / f"{seed}-{Path(path).name}")


def saved(model: onnx.ModelProto, target: Path) -> str:
    target.write_bytes(model.SerializeToString())
    return str(target)
