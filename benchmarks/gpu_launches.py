"""Launches of one inference on a GPU beside groups, the CPU program's steps and DNNFusion's layers; planned, and not run.

    python -m benchmarks.gpu_launches [NAME ...] [--device sm_90] [--precision float32] [--form exported|clean] [--json FILE]

Every model is planned for the device at its own sizes, batch 1: `groups` are the planner's, `launches` what its program launches,
of which `second` join what others left in parts; `unfused` are the launches of a program with a kernel for every operator of the
same cleaned graph that is not only strides. `host` are steps on the host, `graphs` the stretches of launches between these. `CPU`
are the steps of the program for a generic processor with AVX-512, `printed` the layers that DNNFusion's authors count after fusion.

Times are a roofline's: the sum over launches of the launch itself and of its bytes or its arithmetic, as if none ran beside
another. They are estimates, not measured on a GPU. Then, for every model with host steps, which nodes these are and why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.dnnfusion_printed import LAYERS
from benchmarks.fusion_table import markdown

from fusewise import api
from fusewise.codegen.assemble import generate
from fusewise.codegen.gpu.device import DEVICES, Device, device_named
from fusewise.codegen.gpu.estimate import launch_estimate, operations_per_second
from fusewise.codegen.gpu.kernel import SCRATCH
from fusewise.codegen.gpu.program import ByteRange, GpuProgram, GpuStep, stretches
from fusewise.codegen.legalize import legalized
from fusewise.codegen.target import TARGETS
from fusewise.fusion.plan import partition
from fusewise.ir.graph import Graph
from fusewise.lower.program import HostStep
from fusewise.making import GpuMaking, gpu_planned
from fusewise.trace import Trace
from fusewise.zoo.catalogue import MODELS, build

_APART = ("CombineParallelConv2D", "CombineParallelDense")
_WORKERS = 2

HEADINGS = (
    *("model", "operators", "groups", "launches", "second", "unfused", "host", "graphs", "CPU", "printed"),
    *("arena MB", "estimate ms", "of it launches", "unfused ms"),
)


def counted(name: str, device: Device, precision: str = "float32", decomposed: bool = False) -> dict[str, Any]:
    """The figures of one model."""
    graph = api.load(build(name, decomposed=decomposed))
    fused = gpu_planned(graph, GpuMaking(device, precision))
    program = fused.program
    apart = gpu_planned(graph, GpuMaking(device, precision, fusion="none", disable=_APART)).program
    hosted = Counter(
        (node.op, why) for step in _on_host(program) for node, why in zip(step.nodes, step.reasons, strict=True)
    )
    return {
        "model": name,
        "operators": len(fused.graph.nodes),
        "groups": len(fused.plan.partition.groups),
        "launches": program.launches,
        "second": _second_launches(program),
        "unfused": apart.launches,
        "host": len(_on_host(program)),
        "graphs": sum(launches for launches, _ in stretches(program.steps)),
        "cpu_steps": _processor_steps(graph),
        "printed": LAYERS[name].dnnfusion if name in LAYERS else None,
        "arena_bytes": program.arena_bytes,
        "estimate_us": sum(estimates(program, device, precision)),
        "launch_us": program.launches * device.launch_us,
        "unfused_us": sum(estimates(apart, device, precision)),
        "on_host": [[op, why, count] for (op, why), count in hosted.most_common()],
    }


def estimates(program: GpuProgram, device: Device, precision: str) -> list[float]:
    """Microseconds of each launch by the roofline.

    A group's arithmetic is its first launch's, on tensor cores where that is a product; bytes are those that a group of one launch
    cannot do without, and of one of several those that each touches.
    """
    launches = Counter(step.group for step in _launched(program))
    begun: set[int] = set()
    found = []
    for step in _launched(program):
        kernel, is_known = program.kernels[step.kernel], 0 <= step.group < len(program.accounts)
        account = program.accounts[step.group] if is_known else None
        alone = account is not None and launches[step.group] == 1
        operations = account.flops if account is not None and step.group not in begun else 0
        begun.add(step.group)
        per_second = operations_per_second(device, precision) if kernel.way.startswith("tile ") else None
        nbytes = account.nbytes if account is not None and alone else sum(map(_nbytes, (*step.reads, *step.writes)))
        found.append(launch_estimate(device, kernel.grid, nbytes, operations, per_second, kernel.wait_us).us)
    return found


def _nbytes(one: ByteRange) -> int:
    whole = one.high - one.low
    return whole if not one.period else -(-whole // one.period) * one.width


def _launched(program: GpuProgram) -> list[GpuStep]:
    return [step for step in program.steps if isinstance(step, GpuStep)]


def _on_host(program: GpuProgram) -> list[HostStep]:
    return [step for step in program.steps if isinstance(step, HostStep)]


def _second_launches(program: GpuProgram) -> int:
    """Launches that finish what another of their group left in working memory."""
    parted = Counter(step.group for step in _launched(program) if SCRATCH in program.kernels[step.kernel].arguments)
    return sum(count - 1 for count in parted.values())


def _processor_steps(graph: Graph) -> int:
    target = replace(TARGETS[0], workers=_WORKERS)
    groups = partition(legalized(graph, target, Trace()), Trace())
    return len(generate(groups, target, Trace(), workers=_WORKERS).steps)


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A line of the table."""
    keys = ("operators", "groups", "launches", "second", "unfused", "host", "graphs", "cpu_steps")
    return (
        found["model"],
        *(str(found[key]) for key in keys),
        "-" if found["printed"] is None else str(found["printed"]),
        f"{found['arena_bytes'] / 1e6:.1f}",
        f"{found['estimate_us'] / 1e3:.2f}",
        f"{found['launch_us'] / found['estimate_us']:.0%}",
        f"{found['unfused_us'] / 1e3:.2f}",
    )


def hosted(results: Sequence[Mapping[str, Any]]) -> str:
    """What runs on the host, model by model."""
    lines = (
        f"{found['model']}: " + "; ".join(f"{count} {op} ({why})" for op, why, count in found["on_host"])
        for found in results
        if found["on_host"]
    )
    return "\n".join(lines)


def main() -> None:
    """Plan and print."""
    parser = argparse.ArgumentParser(description="Count launches of programs for a GPU, and estimate their time.")
    parser.add_argument("names", nargs="*", help="zoo models (default: all)")
    parser.add_argument("--device", choices=[device.name for device in DEVICES], default="sm_90")
    parser.add_argument("--precision", default="float32")
    parser.add_argument(
        "--form", choices=("exported", "clean"), default="clean", help="as exporters wrote it around 2020"
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    device, results = device_named(given.device), []
    for name in given.names or [model.name for model in MODELS]:
        results.append(counted(name, device, given.precision, given.form == "exported"))
        print(" ".join(row(results[-1])), file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(results, indent=2) + "\n")
    print(markdown(HEADINGS, [row(found) for found in results]))
    print()
    print(hosted(results))


if __name__ == "__main__":
    main()
