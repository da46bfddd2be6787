"""The small files beside a model: generation.json for this package's decoder, genai_config.json for onnxruntime-genai."""
from __future__ import annotations

from typing import Any

from .source import Config, Source

_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>")
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_CONTROL = 3


def end_token_ids(source: Source) -> list[int]:
    """The tokens that end an answer; the file's own end token is the first."""
    found = [source.field(f"tokenizer.ggml.{key}") for key in _END_KEYS]
    tokens, kinds = source.field("tokenizer.ggml.tokens", []), source.field("tokenizer.ggml.token_type", [])
    found += [index for index, (token, kind) in enumerate(zip(tokens, kinds)) if kind == _CONTROL and token in _END_TOKENS]
    return list(dict.fromkeys(int(token) for token in found if token is not None))


def generation(source: Source, config: Config, facts: dict[str, Any]) -> dict[str, Any]:
    """What the decode loop needs to know, and how the model was made."""
    return {
        "name": config.name,
        "layers": config.layers, "kv_heads": config.kv_heads, "head_size": config.head_size,
        "vocab_size": config.vocab_size, "context_length": config.context_length,
        "bos_token_id": source.field("tokenizer.ggml.bos_token_id"),
        "add_bos_token": bool(source.field("tokenizer.ggml.add_bos_token", False)),
        "eos_token_ids": end_token_ids(source),
        "chat_template": source.field("tokenizer.chat_template"),
        "made_from": facts,
    }


def genai_config(source: Source, config: Config) -> dict[str, Any]:
    ends = end_token_ids(source)
    decoder = {
        "session_options": {"provider_options": []}, "filename": "model.onnx", "head_size": config.head_size,
        "hidden_size": config.hidden_size, "num_attention_heads": config.heads, "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", "past_key_names": "past_key_values.%d.key",
                   "past_value_names": "past_key_values.%d.value"},
        "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
    }
    model = {"type": config.architecture, "vocab_size": config.vocab_size, "context_length": config.context_length, "decoder": decoder,
             "bos_token_id": source.field("tokenizer.ggml.bos_token_id"), "eos_token_id": ends,
             "pad_token_id": source.field("tokenizer.ggml.padding_token_id", ends[0] if ends else None)}
    search = {"do_sample": False, "max_length": config.context_length, "min_length": 0, "num_beams": 1, "past_present_share_buffer": True}
    return {"model": {key: value for key, value in model.items() if value is not None}, "search": search}


def tokenizer_config(source: Source) -> dict[str, Any]:
    tokens = source.field("tokenizer.ggml.tokens", [])

    def text(key: str) -> str | None:
        index = source.field(f"tokenizer.ggml.{key}")
        return tokens[index] if index is not None and index < len(tokens) else None

    entries = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": text("bos_token_id"), "eos_token": text("eos_token_id"),
               "pad_token": text("padding_token_id"), "chat_template": source.field("tokenizer.chat_template")}
    return {key: value for key, value in entries.items() if value is not None}
