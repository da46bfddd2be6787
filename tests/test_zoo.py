"""Trained models and CNN topologies that packages carry: claimed whole, in one group (ONNX Runtime's assignment and the provider's
record both say so), and the numbers of ONNX Runtime's CPU provider. Writes build/reports/models.json."""
from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import zoo_inputs as inputs
from assignment import assignment_of, check_record, record_assignment
from case import compare_ways
from onnxruntime_ep_mlx.compare import EQUAL, difference
from onnxruntime_ep_mlx.embed import packaged_file
from onnxruntime_ep_mlx.registration import append_to_session_options
from onnxruntime_ep_mlx.sessions import newest_record, newest_record_id, open_cpu_session, open_mlx_session, open_session, record_with_id, session_options

REPORT = Path(__file__).resolve().parent.parent / "build" / "reports" / "models.json"
LINES: dict[str, dict] = {}
NEAR = 1e-3  # float32 models; relative to at least a hundredth of the output's largest value
# Models that choose the scales of 8-bit activations while they run: a last bit of float32 moves a rounding, and the layers behind
# amplify it. ONNX Runtime's own answer moves as far when the scales of the weights move in the last place (test_noise_of_int8).
ROUNDED = 0.03  # relative to the output's largest value


class Pair:
    """One model on MLX and on ONNX Runtime's CPU provider; `feed` gives each its own state back."""

    def __init__(self, path: str):
        settings, before = record_assignment(session_options()), newest_record_id()
        append_to_session_options(settings, {})
        self.mlx = open_session(path, settings)
        record, self.at = newest_record(before), assignment_of(self.mlx)
        check_record(record, self.at)
        self.cpu, self.id = open_cpu_session(path), record["id"]
        self.eager, _ = open_mlx_session(path, {"disable_compile": "1"})
        self.nodes, self.claimed, self.groups, self.declined = (record[k] for k in ("nodes", "claimed", "groups", "declined"))
        self.worst, self.of_largest, self.runs = EQUAL, 0.0, 0
        self.names = [o.name for o in self.mlx.get_outputs()]

    def run(self, feeds: dict, own: dict | None = None) -> list[dict]:
        """Outputs by name: MLX's, ONNX Runtime's. `own` maps a name to the pair of values that MLX and ONNX Runtime get."""
        outs = []
        for k, session in enumerate((self.mlx, self.cpu)):
            feeds_here = {**feeds, **{name: values[k] for name, values in (own or {}).items()}}
            outs.append(dict(zip(self.names, session.run(None, feeds_here))))
            if k == 0:
                for name, value in zip(self.names, self.eager.run(None, feeds_here)):
                    compare_ways(outs[0][name], value, f"{name}, compiled against eager")
        self.runs += 1
        for name in self.names:
            apart = difference(outs[0][name], outs[1][name])
            self.worst = self.worst.worst(apart)
            self.of_largest = max(self.of_largest, apart.max_abs / float(np.abs(outs[1][name]).max()))
        return outs

    def check(self, key: str, package: str, rounded: bool = False) -> None:
        LINES[key] = {"package": package, "nodes": self.nodes, "claimed": self.claimed, "groups": self.groups,
                      "ort_nodes": self.at.nodes, "ort_claimed": self.at.mlx.total(), "ort_groups": self.at.groups,
                      "max_rel": self.worst.max_rel, "of_largest": self.of_largest, "rounded": rounded}
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(json.dumps(LINES, indent=1))
        assert self.claimed == self.nodes >= 1, self.declined
        assert self.at.mlx.total() == self.at.nodes >= 1 and self.at.groups == self.groups == 1, self.at
        assert record_with_id(self.id)["routes"] == {"eager": 0, "general": self.runs, "decode": 0, "prefill": 0}, record_with_id(self.id)["counters"]
        assert self.runs >= 1
        assert self.of_largest <= ROUNDED if rounded else self.worst.max_rel <= NEAR, (self.worst, self.of_largest)


def ocr(name: str) -> str:
    return str(packaged_file("rapidocr", f"models/{name}.onnx", "rapidocr"))


def test_text_detector():
    pair = Pair(ocr("ch_PP-OCRv4_det_infer"))
    for height, width in ((320, 480), (448, 352)):
        lines = [("THE MILK", 40, 40, 11), ("WILL MELT", 30, 150, 9), ("EXIT", 90, 230, 14)]
        maps = pair.run({"x": inputs.scaled(inputs.page(height, width, lines))})[0]
        assert next(iter(maps.values())).max() > 0.8, "no text was found"
    pair.check("ppocrv4-det", "rapidocr")


def test_text_recogniser():
    path = ocr("ch_PP-OCRv4_rec_infer")
    letters = ["", *onnx.load(path).metadata_props[0].value.split("\n"), " "]
    pair = Pair(path)
    for text in ("MILK", "KETTLE"):
        crop = inputs.page(48, 24 * len(text) + 20, [(text, 12, 8, 8)])
        scores = next(iter(pair.run({"x": inputs.scaled(crop)})[0].values()))[0].argmax(1)
        read = "".join(letters[k] for i, k in enumerate(scores) if k and (i == 0 or k != scores[i - 1]))
        assert read == text
    pair.check("ppocrv4-rec", "rapidocr")


def test_text_angle():
    crop = inputs.scaled(inputs.page(48, 192, [("WET HAT", 12, 8, 8)]))
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(inputs.with_logits(ocr("ch_ppocr_mobile_v2.0_cls_infer"), Path(folder)))
        pair.run({"x": np.concatenate([crop, crop[:, :, ::-1, ::-1]])})
    pair.check("ppocr-cls", "rapidocr")


VOICES = [("silero_vad", 16), ("silero_vad", 8), ("silero_vad_op18_ifless", 16), ("silero_vad_op18_ifless", 8),
          ("silero_vad_half", 16), ("silero_vad_16k_op15", 16)]


@pytest.mark.parametrize("name, kilohertz", VOICES)
def test_voice_activity(name, kilohertz):
    pair = Pair(str(packaged_file("silero_vad", f"data/{name}.onnx", "silero-vad")))
    takes = {i.name for i in pair.mlx.get_inputs()}
    state = (np.zeros((2, 1, 128), np.float32),) * 2
    for chunk in inputs.bursts(12, 36 * kilohertz, 1000 * kilohertz):  # 32 ms, and 4 ms of what came before
        feeds = {"input": chunk[None], "sr": np.array(1000 * kilohertz)}
        outs = pair.run({k: v for k, v in feeds.items() if k in takes}, {"state": state})
        state = tuple(o["stateN"] for o in outs)
    pair.check(f"{name}-{kilohertz}k", "silero-vad")


def test_file_type():
    pair = Pair(str(packaged_file("magika", "models/standard_v3_3/model.onnx", "magika")))
    for path in (Path(__file__), Path(inputs.__file__).parent.parent / "CMakeLists.txt"):
        pair.run({"bytes": inputs.file_ends(path.read_bytes(), 1024)})
    pair.check("magika", "magika")


def test_music():
    pair = Pair(str(packaged_file("basic_pitch", "saved_models/icassp_2022/nmp.onnx", "basic-pitch")))
    sound = inputs.chord(43844, 22050, (261.63, 329.63, 392.0))
    pair.run({"serving_default_input_2:0": np.stack([sound, sound[::-1]])[..., None]})
    pair.check("basic-pitch", "basic-pitch")


def captcha(name: str) -> str:
    return str(packaged_file("ddddocr", f"{name}.onnx", "ddddocr"))


def captcha_feeds() -> list[dict]:
    return [{"input1": inputs.page(64, width, [(text, 14, 12, 10)])[None, :1] / 255} for text, width in (("MEX", 120), ("HALT", 160))]


@pytest.mark.parametrize("name, rounded", [("common", False), ("common_old", True)])
def test_captcha(name, rounded):
    pair = Pair(captcha(name))
    for feeds in captcha_feeds():
        pair.run(feeds)
    pair.check(f"ddddocr-{name}", "ddddocr", rounded)


def test_captcha_detector():
    pair = Pair(captcha("common_det"))
    pair.run({"images": inputs.page(416, 416, [("WAXEN", 40, 60, 12), ("MILK", 150, 240, 16)])[None]})
    pair.check("ddddocr-det", "ddddocr")


DIACRITISERS = {"bilstm": ("libtashkeel.maps.json", "input"), "rawi": ("rawi.vocab.json", "char_to_idx"),
                "rawi_v2": ("rawi_v2.vocab.json", "char_to_idx"), "rawi_v3": ("rawi_v2.vocab.json", "char_to_idx"),
                "rawi_ensemble": ("rawi_v2.vocab.json", "char_to_idx")}


def arabic(leaf: str) -> Path:
    return packaged_file("text2tashkeel", f"models/{leaf}", "text2tashkeel")


def arabic_feeds(name: str) -> list[dict]:
    vocabulary, key = DIACRITISERS[name]
    taken = "input_ids" if name == "bilstm" else "input"
    return [{taken: inputs.character_ids(text, arabic(vocabulary), key)} for text in ("ذهب الولد إلى المدرسة", "السلام عليكم")]


@pytest.mark.parametrize("name", DIACRITISERS)
def test_diacritics(name):
    pair = Pair(str(arabic(f"{name}.int8.onnx")))
    for feeds in arabic_feeds(name):
        pair.run(feeds)
    pair.check(f"tashkeel-{name}", "text2tashkeel", rounded=True)


ROUNDING = {"ddddocr-common_old": lambda: (captcha("common_old"), captcha_feeds()),
            "tashkeel-bilstm": lambda: (str(arabic("bilstm.int8.onnx")), arabic_feeds("bilstm"))}


@pytest.mark.parametrize("key", ROUNDING)
def test_noise_of_int8(key):
    """MLX is no farther from ONNX Runtime, on average, than twice what ONNX Runtime moves by itself."""
    path, feeds = ROUNDING[key]()
    pair = Pair(path)
    for one in feeds:
        mine, theirs = (next(iter(out.values())) for out in pair.run(one))
        moved = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(6):
                nudged = open_cpu_session(inputs.with_nudged_scales(path, Path(folder), seed)).run(None, one)[0]
                moved.append(float(np.abs(nudged - theirs).mean()))
        assert float(np.abs(mine - theirs).mean()) <= 2 * max(moved), moved
        assert (mine.argmax(-1) == theirs.argmax(-1)).all()


LIGHT = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512"]


@pytest.mark.parametrize("name", LIGHT)
def test_topologies(name):
    """These ship without weights: random ones take the place of the constants, which would make every class as likely."""
    path = str(packaged_file("onnx", f"backend/test/data/light/light_{name}.onnx", "onnx"))
    picture = inputs.scaled(inputs.page(224, 224, [("FIN", 30, 30, 15), ("ELM", 60, 130, 12)]))
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(inputs.with_logits(path, Path(folder)))
        pair.run({pair.mlx.get_inputs()[0].name: picture})
    pair.check(f"light-{name}", "onnx")
