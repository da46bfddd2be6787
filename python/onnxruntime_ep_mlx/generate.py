"""Greedy generation with an imported model, on MLX or on ONNX Runtime's CPU provider.

The KV cache stays in OrtValues: what a step writes is what the next step reads, without a copy through numpy. With `shared_cache` the
cache is one buffer of the full length, read and written in place; without it each step's cache is one position longer.
"""
from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from .sessions import open_cpu_session, open_mlx_session, record_with_id

PROVIDERS = ("mlx", "cpu")


@dataclass
class Timing:
    """Of the newest generation. Seconds; the first token comes out of the prefill."""
    prompt_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float:
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Decoder:
    """A model folder opened on one provider. One generation at a time.

    `last_logits` is the float32 row that the newest token was chosen from; `timing` tells how long the newest generation took.
    """

    def __init__(self, model_dir: str | Path, provider: str = "mlx", options: Mapping[str, Any] | None = None,
                 threads: int | None = None, shared_cache: bool = False, max_length: int = 0) -> None:
        if provider not in PROVIDERS:
            raise ValueError(f"provider is {provider!r}; it can be {' or '.join(PROVIDERS)}")
        folder = Path(model_dir)
        self.facts = json.loads((folder / "generation.json").read_text(encoding="utf-8"))
        self.provider = provider
        self.max_length = min(max_length or self.facts["context_length"], self.facts["context_length"])
        self.timing = Timing()
        self.last_logits = np.empty(0, np.float32)
        model, threads = str(folder / "model.onnx"), threads or os.cpu_count() or 1
        start = time.perf_counter()
        if provider == "mlx":
            self.session, self._record = open_mlx_session(model, options or {}, threads)
        else:
            self.session, self._record = open_cpu_session(model, threads), {}
        self.open_seconds = time.perf_counter() - start
        self._cache_names = [(f"past_key_values.{layer}.{part}", f"present.{layer}.{part}")
                             for layer in range(self.facts["layers"]) for part in ("key", "value")]
        self._shared_cache = shared_cache
        self._ones = np.ones((1, self.max_length), np.int64)
        self._cache: list[onnxruntime.OrtValue] = []
        self.reset()

    def reset(self) -> None:
        """Forgets the sequence so far."""
        length = self.max_length if self._shared_cache else 0
        shape = (1, self.facts["kv_heads"], length, self.facts["head_size"])
        self._cache = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for _ in self._cache_names]
        self.length = 0

    def record(self) -> dict[str, Any]:
        """The provider's record of this session, as it is now; empty on the CPU provider."""
        if self._record:
            self._record = record_with_id(self._record["id"])
        return self._record

    def step(self, token_ids: Sequence[int]) -> np.ndarray:
        """Appends tokens to the sequence; returns the float32 logits [tokens, vocabulary] after each of them."""
        if not len(token_ids) or self.length + len(token_ids) > self.max_length:
            raise ValueError(f"{len(token_ids)} tokens after {self.length} do not fit a sequence of 1 to {self.max_length}")
        self.length += len(token_ids)
        binding = self.session.io_binding()
        values = {"input_ids": np.asarray([token_ids], np.int64), "attention_mask": self._ones[:, :self.length]}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
        binding.bind_output("logits", "cpu")
        for (past, present), value in zip(self._cache_names, self._cache):
            binding.bind_ortvalue_input(past, value)
            if self._shared_cache:
                binding.bind_ortvalue_output(present, value)
            else:
                binding.bind_output(present, "cpu")
        self.session.run_with_iobinding(binding)
        logits, *cache = binding.get_outputs()
        if not self._shared_cache:  # a shared one belongs to the values made in `reset`
            self._cache = cache
        rows: np.ndarray = logits.numpy()[0]
        return rows

    def generate(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[int]:
        """The most likely continuation, token by token, until an end token (not given out) or `max_new_tokens`."""
        self.reset()
        self.timing = timing = Timing(prompt_tokens=len(prompt_ids))
        pending = list(prompt_ids)
        for index in range(min(max_new_tokens, self.max_length - len(prompt_ids))):
            start = time.perf_counter()
            self.last_logits = self.step(pending)[-1]
            token = int(self.last_logits.argmax())
            spent = time.perf_counter() - start
            if index == 0:
                timing.prefill_seconds = spent
            else:
                timing.decode_seconds += spent
                timing.decode_tokens += 1
            if token in self.facts["eos_token_ids"]:
                return
            yield token
            pending = [token]
