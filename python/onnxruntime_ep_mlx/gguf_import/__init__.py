"""Imports a GGUF file of the Llama family as a folder that ONNX Runtime and this package's decoder can use.

The folder holds model.onnx with model.onnx.data, tokenizer.json and tokenizer_config.json, generation.json (end tokens, chat template,
sizes) and genai_config.json. Folders are kept by the file's content, the options and FORMAT_VERSION, so a second import is a lookup.
"""
from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from . import decoder, metadata
from .blocks import FormatError
from .decoder import QUANT_BITS, Options
from .folder import content_hash, models_root, new_folder
from .graph import GraphBuilder
from .source import GGUFError, Source
from .tokenizer import make_tokenizer

__all__ = ["FORMAT_VERSION", "FormatError", "GGUFError", "Options", "import_gguf"]

FORMAT_VERSION = 1  # of the folders; raised whenever the same file would give another model


def import_gguf(path: str | Path, options: Options | None = None, folder: str | Path | None = None, progress: bool = True) -> Path:
    """The model folder for a GGUF file, made if it is not there yet.

    `folder` names it; by default it is kept in models/ of a checkout or in the user's cache. A folder that is there is returned as it
    is only if it was made from the same file with the same options.
    """
    options = options or Options()
    if options.quant not in QUANT_BITS:
        raise ValueError(f"quant is {options.quant!r}; it can be {', '.join(QUANT_BITS)}")
    file = Path(path)
    if not file.is_file():
        raise GGUFError(f"no such file: {file}")
    facts = {"sha256": content_hash(file), "format_version": FORMAT_VERSION, "options": asdict(options)}
    final = Path(folder) if folder else models_root() / f"{file.stem}-{options.quant}-{_key(facts)}"
    if final.exists():
        if _made_from(final) == facts:
            return final
        raise FileExistsError(f"{final} exists, and was not made from {file} with these options: remove it or name another folder")
    source = Source(file)
    with new_folder(final) as temporary:
        _write(source, options, facts, temporary, progress)
    return final


def _key(facts: dict[str, Any]) -> str:
    """A short name for everything that a made folder depends on."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _made_from(folder: Path) -> Any:
    try:
        return json.loads((folder / "generation.json").read_text(encoding="utf-8"))["made_from"]
    except (OSError, ValueError, KeyError):
        return None


def _write(source: Source, options: Options, facts: dict[str, Any], folder: Path, progress: bool) -> None:
    config = decoder.effective_config(source, options)
    make_tokenizer(source).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", metadata.tokenizer_config(source))
    _write_json(folder / "generation.json", metadata.generation(source, config, facts))
    _write_json(folder / "genai_config.json", metadata.genai_config(source, config))
    with (folder / "model.onnx.data").open("wb") as data:
        graph = GraphBuilder(config.name, data, "model.onnx.data")
        pieces = tqdm(decoder.build(source, options, graph), total=decoder.steps(source, options), disable=not progress, unit="piece",
                      desc=f"importing {source.path.name}")
        for piece in pieces:
            pieces.set_postfix_str(piece, refresh=False)
    graph.save(folder / "model.onnx")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
