"""Operators before and groups after fusion, and the bytes between them, beside DNNFusion's published table (its table 5).

    python -m benchmarks.fusion_table [NAME ...] [--form exported|clean|both] [--ort] [--json FILE]

Each model is counted as exporters wrote it around 2020 (normalisation, activations and attention as primitives, sizes read at
run time) and as it is built today. `patterns` are the groups that fixed patterns give on the same cleaned graph, `no rewriting`
those of the planner without the algebraic rules, `on host` those of its groups that are host steps, `heavy` the Many-to-Many
operators, of which the table of types never lets two into one group, and `ORT` the nodes left in the graph that ONNX Runtime
saves after its own optimisation. Nothing is run. Needs the `bench` extra for `--ort`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fusewise import api
from fusewise.fusion.describe import fusion_figures
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.plan import plan
from fusewise.ir.graph import Graph
from fusewise.ops.spec import Mapping
from fusewise.passes.pipeline import CLEAN, run
from fusewise.trace import Trace
from fusewise.zoo.catalogue import MODELS, build

REWRITING = frozenset({"rewrite_exactly", "rewrite_algebra"})


class Published(NamedTuple):
    """One row of the paper: operators before, groups of TVM (None: it could not compile the model) and of DNNFusion, MB of
    intermediate results before and after."""

    operators: int
    tvm: int | None
    groups: int
    megabytes_before: int
    megabytes_after: int


PUBLISHED = MappingProxyType(
    {
        "efficientnet_b0": Published(309, 195, 97, 108, 26),
        "vgg16": Published(51, 22, 17, 161, 52),
        "mobilenet_v1_ssd": Published(202, 124, 71, 110, 37),
        "yolo_v4": Published(398, 192, 135, 329, 205),
        "c3d": Published(27, 27, 16, 195, 90),
        "s3d": Published(272, None, 98, 996, 356),
        "unet": Published(292, 232, 82, 312, 158),
        "faster_rcnn_resnet50_fpn": Published(3640, None, 942, 914, 374),
        "mask_rcnn_resnet50_fpn": Published(3999, None, 981, 1524, 543),
        "tinybert": Published(366, 304, 74, 183, 55),
        "distilbert": Published(457, 416, 109, 540, 197),
        "albert": Published(936, 746, 225, 1260, 320),
        "bert_base": Published(976, 760, 216, 915, 196),
        "mobilebert": Published(2387, 1678, 510, 744, 255),
        "gpt2": Published(2533, 2047, 254, 1389, 356),
    }
)


def counted(name: str, decomposed: bool, with_ort: bool) -> dict[str, Any]:
    """The figures of one model in one form."""
    graph = api.load(build(name, decomposed=decomposed))
    clean, plain = run(graph, CLEAN, Trace()), run(graph, CLEAN, Trace(disabled=REWRITING))
    begin = time.process_time()
    fused = plan(clean, Trace())
    planning_s = time.process_time() - begin
    ecg = ExtendedGraph(clean)
    return {
        "model": name,
        "form": "exported" if decomposed else "clean",
        "operators": len(graph.nodes),
        "cleaned": len(clean.nodes),
        **fusion_figures(graph, fused),
        "host_groups": sum(not ecg.is_native(group.nodes[0]) for group in fused.partition.groups),
        "heavy": sum(ecg.mapping(n) == Mapping.MANY_TO_MANY for n in range(len(clean.nodes))),
        "without_rewriting": len(plan(plain, Trace()).partition.groups),
        "patterns": len(plan(clean, Trace(), "patterns").partition.groups),
        "onnxruntime": _onnxruntime_nodes(graph) if with_ort else None,
        "planning_s": planning_s,
        "published": PUBLISHED[name]._asdict() if name in PUBLISHED else None,
    }


def _onnxruntime_nodes(graph: Graph) -> int | None:
    """Nodes that ONNX Runtime is left with; None when it cannot load or save the model."""
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="fusewise-fusion-") as folder:
        source, saved = Path(folder) / "model.onnx", Path(folder) / "optimized.onnx"
        api.save(graph, source)
        settings = onnxruntime.SessionOptions()
        settings.optimized_model_filepath = str(saved)
        settings.log_severity_level = 4
        settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        try:
            onnxruntime.InferenceSession(str(source), settings, providers=["CPUExecutionProvider"])
            return len(onnx.load(saved, load_external_data=False).graph.node)
        except Exception as error:  # the peer's own errors have no common class
            print(f"{graph.name}: ONNX Runtime: {error}", file=sys.stderr)
            return None


HEADINGS = (
    "model",
    "form",
    "operators",
    "cleaned",
    "groups",
    "rate",
    "on host",
    "heavy",
    "no rewriting",
    "patterns",
    "ORT",
    "MB before",
    "MB after",
    "plan s",
    "paper: operators",
    "TVM",
    "groups",
    "rate",
    "MB before",
    "MB after",
)


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    mine = (
        found["model"],
        found["form"],
        str(found["operators"]),
        str(found["cleaned"]),
        str(found["group_count"]),
        f"{found['fusion_rate']:.1f}",
        str(found["host_groups"]),
        str(found["heavy"]),
        str(found["without_rewriting"]),
        str(found["patterns"]),
        _or_dash(found["onnxruntime"]),
        f"{found['intermediate_bytes_before'] / 1e6:.0f}",
        f"{found['intermediate_bytes_after'] / 1e6:.0f}",
        f"{found['planning_s']:.2f}",
    )
    if found["published"] is None:
        return mine + ("-",) * 6
    paper = Published(**found["published"])
    rate = f"{paper.operators / paper.groups:.1f}"
    theirs = (paper.operators, paper.tvm, paper.groups, rate, paper.megabytes_before, paper.megabytes_after)
    return mine + tuple(_or_dash(figure) for figure in theirs)


def _or_dash(figure: object) -> str:
    return "-" if figure is None else str(figure)


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table, ours left, the paper's right."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"| --- | --- |{' ---: |' * (len(HEADINGS) - 2)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row(found))} |" for found in results)])


def main() -> None:
    """Count and print."""
    known = {model.name for model in MODELS}
    parser = argparse.ArgumentParser(description="Count groups before and after fusion, beside the published counts.")
    parser.add_argument("names", nargs="*", help="zoo models (default: the paper's that the zoo has)")
    parser.add_argument("--form", choices=("exported", "clean", "both"), default="both")
    parser.add_argument("--ort", action="store_true", help="count the nodes of ONNX Runtime's optimised graph too")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    forms = {"exported": (True,), "clean": (False,), "both": (True, False)}[given.form]
    results = []
    for name in given.names or [name for name in PUBLISHED if name in known]:
        for decomposed in forms:
            results.append(counted(name, decomposed, given.ort))
            print(" ".join(row(results[-1])), file=sys.stderr, flush=True)
            if given.json:
                given.json.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
