"""Prompts in a model's chat format, and text from a growing list of tokens."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

Message = dict[str, str]
_START, _END = "<|im_start|>", "<|im_end|>"


class ChatTemplateError(ValueError):
    """The model's chat template cannot be rendered here."""


def load_tokenizer(model_dir: str | Path) -> Tokenizer:
    return Tokenizer.from_file(str(Path(model_dir) / "tokenizer.json"))


def chat_prompt(facts: dict[str, Any], messages: Sequence[Message], tokens: dict[str, str] | None = None) -> str:
    """The text that asks for the next answer; `facts` are those of generation.json.

    The template is rendered with jinja2 where that is installed. Without it ChatML is written here, by far the most common format.
    """
    template = facts.get("chat_template")
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        return chatml(messages, _default_system(template))
    if not template:
        return chatml(messages, "")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    rendered: str = environment.from_string(template).render(messages=list(messages), add_generation_prompt=True, **(tokens or {}))
    return rendered


def chatml(messages: Sequence[Message], system: str) -> str:
    """ChatML; `system` is said first when the messages do not start with a system message of their own."""
    listed = list(messages)
    if system and (not listed or listed[0]["role"] != "system"):
        listed.insert(0, {"role": "system", "content": system})
    said = "".join(f"{_START}{message['role']}\n{message['content']}{_END}\n" for message in listed)
    return f"{said}{_START}assistant\n"


def _default_system(template: str | None) -> str:
    """The system message that a ChatML template writes into conversations that have none."""
    if not template:
        return ""
    if _START not in template or _END not in template:
        raise ChatTemplateError("the model's chat template is not ChatML: install jinja2 to render it")
    _, found, rest = template.partition(f"{_START}system\n")
    return rest.partition(_END)[0] if found and "{" not in rest.partition(_END)[0] else ""


def encode_chat(tokenizer: Tokenizer, facts: dict[str, Any], messages: Sequence[Message]) -> list[int]:
    ids: list[int] = tokenizer.encode(chat_prompt(facts, messages), add_special_tokens=False).ids
    first = facts.get("bos_token_id")
    return [first, *ids] if facts.get("add_bos_token") and first is not None and ids[:1] != [first] else ids


def stream_text(tokenizer: Tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """Text as it becomes complete: a character whose bytes are spread over tokens comes out with its last token."""
    ids: list[int] = []
    shown = 0
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids)
        if not text.endswith("\ufffd"):
            yield text[shown:]
            shown = len(text)
    rest = tokenizer.decode(ids)[shown:]
    if rest:
        yield rest
