"""`run`: a model on MLX and on ONNX Runtime's CPU provider with the same inputs, compared."""
from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import onnxruntime

from .cli_common import CliError, claim_summary, claims_of, load_model, operator_of, print_json, print_table
from .cli_options import dimension, key_value, positive
from .compare import difference
from .model_inputs import load_inputs, make_inputs, specs_of
from .sessions import first_line, open_cpu_session, open_mlx_session, record_with_id

_WARM_UP = 2


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("run", help="run on MLX and on the CPU provider, and compare", description=(
        "Runs the model on MLX and on ONNX Runtime's CPU provider with the same inputs. For each output it prints the largest absolute "
        "difference, and the largest relative one: |a-b| / max(|b|, 1e-2 max|b|). An infinity in JSON is the string \"inf\"."))
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--inputs", metavar="FILE.npz", help="arrays by input name; made from the model's declarations by default")
    parser.add_argument("--dim", metavar="NAME=N", action="append", default=[], type=dimension,
                        help="size of a symbolic dimension of the made inputs, or of one axis as INPUT:AXIS=N")
    parser.add_argument("--runs", metavar="N", type=positive, default=10, help="timed runs on each (default 10)")
    parser.add_argument("--threads", metavar="N", type=positive, help="intra-op threads of both sessions")
    parser.add_argument("--option", metavar="K=V", action="append", default=[], type=key_value, help="a session option of the provider")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    result = measure(arguments)
    if arguments.json:
        print_json(result)
        return 0
    print(claim_summary(result))
    for node in result["declined"]:
        print(f"  declined {node['name'] or '-'} ({operator_of(node)}): {node['reason']}")
    rows = [("output", "max abs", "max rel")]
    rows += [(item["name"], f"{item['max_abs']:.3g}", f"{item['max_rel']:.3g}") for item in result["outputs"]]
    print_table(rows, (False, True, True))
    print("runs     " + "   ".join(f"{route} {n}" for route, n in result["routes"].items()))
    for reason, n in result["fallbacks"].items():
        print(f"  eager {n} times: {reason}")
    print(f"p50 ms   mlx {result['p50_ms']['mlx']:.3f}   cpu {result['p50_ms']['cpu']:.3f}")
    return 0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    model = load_model(arguments.model)
    cpu = open_cpu_session(arguments.model, arguments.threads)
    specs = specs_of(cpu)
    if arguments.inputs:
        if arguments.dim:
            raise CliError("--dim sizes made inputs; it cannot be used with --inputs")
        feeds = load_inputs(arguments.inputs, specs)
    else:
        feeds = make_inputs(specs, dict(arguments.dim), model)
    reference, cpu_ms = timed_runs(cpu, feeds, arguments.runs, "the CPU provider")
    session, record = open_mlx_session(arguments.model, dict(arguments.option), arguments.threads)
    values, mlx_ms = timed_runs(session, feeds, arguments.runs, "MLX")
    outputs = []
    for output, value, expected in zip(cpu.get_outputs(), values, reference):
        apart = difference(value, expected)
        outputs.append({"name": output.name, "max_abs": apart.max_abs, "max_rel": apart.max_rel})
    counted = record_with_id(record["id"])["counters"]
    return {**claims_of(record), "routes": counted["runs"], "fallbacks": counted["fallbacks"], "outputs": outputs,
            "p50_ms": {"mlx": mlx_ms, "cpu": cpu_ms}}


def timed_runs(session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray], runs: int, where: str) -> tuple[list[Any], float]:
    """The outputs of the first run, and the median time of `runs` warm ones in milliseconds."""
    try:
        outputs = session.run(None, feeds)
        for _ in range(_WARM_UP - 1):
            session.run(None, feeds)
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            session.run(None, feeds)
            times.append(time.perf_counter() - start)
    except Exception as error:  # ONNX Runtime raises one type per status code
        raise CliError(f"the run on {where} failed: {first_line(error)}") from error
    return outputs, 1000 * float(np.median(times))
