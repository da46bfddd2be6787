"""Every test needs the built library: without it the run fails, it does not skip."""
import json
import os
import pathlib
import random

os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")  # before ONNX Runtime is loaded: the node tests use newer opsets
import onnxruntime
import pytest

import onnxruntime_ep_mlx as mlx_ep


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option
def pytest_configure(config):
    # Without a seed the random cases are the same in every run; with one, a failure prints it.
    seed = os.environ.get("PROPERTY_SEED")
    if seed and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = random.randrange(2**32) if seed == "random" else int(seed)
    onnxruntime.set_default_logger_severity(4)
    mlx_ep.register_execution_provider_library()


def pytest_report_header(config):
    info = mlx_ep.describe("info")
    return f"onnxruntime {onnxruntime.__version__}, mlx {info['mlx']} on {info['device']}, {mlx_ep.library_path()}"


def pytest_sessionfinish():
    """How the operators' cases ran: build/reports/routes.json."""
    import case
    if case.ROUTES:
        path = pathlib.Path(__file__).parent.parent / "build" / "reports" / "routes.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(sorted(case.ROUTES.items())), indent=1) + "\n")
