"""Runs from many threads: on one session, on many, and while sessions come and go."""
from __future__ import annotations

import threading

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from case import record_of_newest, session
import onnxruntime_ep_mlx as mlx_ep


def small_model():
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["t"]),
             helper.make_node("Add", ["t", "x"], ["y"])]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 8]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], [w])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), numpy_helper.to_array(w)


def run_many(s, w, seed: int, times: int, errors: list) -> None:
    rng = np.random.default_rng(seed)
    try:
        for _ in range(times):
            x = rng.standard_normal((int(rng.integers(1, 9)), 8)).astype(np.float32)
            np.testing.assert_allclose(s.run(None, {"x": x})[0], np.tanh(x @ w) + x, rtol=1e-4, atol=1e-5)
    except BaseException as e:  # noqa: BLE001 - reported by the test
        errors.append(e)


def in_threads(n: int, work) -> None:
    errors: list = []
    threads = [threading.Thread(target=work, args=(i, errors)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "deadlock"
    assert not errors, errors[0]


def test_one_session_from_sixteen_threads():
    model, w = small_model()
    s = session(model, True)
    identity = record_of_newest()["id"]
    in_threads(16, lambda i, errors: run_many(s, w, i, 40, errors))
    record = next(r for r in mlx_ep.describe("sessions") if r["id"] == identity)
    assert record["claimed"] == 3 and sum(record["routes"].values()) == 16 * 40


def test_sixteen_sessions_in_sixteen_threads():
    model, w = small_model()
    sessions = [session(model, True) for _ in range(16)]
    records = mlx_ep.describe("sessions")[-16:]
    in_threads(16, lambda i, errors: run_many(sessions[i], w, i, 25, errors))
    ids = {r["id"] for r in records}
    after = [r for r in mlx_ep.describe("sessions") if r["id"] in ids]
    assert [(r["claimed"], sum(r["routes"].values())) for r in after] == [(3, 25)] * 16


def test_sessions_come_and_go_while_others_run():
    model, w = small_model()
    steady = session(model, True)
    assert record_of_newest()["claimed"] == 3

    def work(i: int, errors: list) -> None:
        if i % 2:
            run_many(steady, w, i, 60, errors)
            return
        for k in range(10):
            run_many(session(model, True), w, 100 * i + k, 2, errors)

    in_threads(8, work)


def test_two_hundred_sessions_leave_no_threads_behind():
    model, w = small_model()
    errors: list = []

    def threads_now() -> int:
        with open("/proc/self/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Threads:"))

    for k in range(20):
        run_many(session(model, True), w, k, 1, errors)
    before = threads_now()
    for k in range(180):
        run_many(session(model, True), w, k, 1, errors)
        assert (record_of_newest()["claimed"], record_of_newest()["runs"]) == (3, 1)
    assert not errors and threads_now() <= before + 2
