"""The tokenizer inside a GGUF file, as a tokenizers.Tokenizer: byte-level BPE with the pre-tokenization that the file names."""
from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from .source import GGUFError, Source

_CONTROL, _USER_DEFINED = 3, 4  # token types of GGUF
_LLAMA_3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_tokenizer(source: Source) -> Tokenizer:
    model = source.field("tokenizer.ggml.model")
    if model != "gpt2":
        raise GGUFError(f"a tokenizer of type {model!r} cannot be imported; gpt2 (byte-level BPE) can")
    tokens = source.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in source.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(source.field("tokenizer.ggml.pre", "default"))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = source.field("tokenizer.ggml.token_type", [])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds) if kind == _CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds) if kind == _USER_DEFINED])
    return tokenizer


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    bytes_in_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in ("default", "gpt-2"):
        return bytes_in_words
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_in_words])
    if name in ("llama-bpe", "llama3", "llama-v3"):
        split = pre_tokenizers.Split(Regex(_LLAMA_3_SPLIT), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise GGUFError(f"pre-tokenization {name!r} is not known; default, gpt-2, smollm and llama-bpe are")
