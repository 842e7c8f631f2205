"""Operators as exported, after clean-up and after fusion, beside the fusion rate table that DNNFusion's authors print.

    python -m benchmarks.fusion_table [NAME ...] [--form exported|clean|both] [--ort] [--json FILE]

Each model is counted as exporters wrote it around 2020 (normalisation, activations and attention as primitives, sizes read at
run time) and as it is built today. A rate, operators by groups, is the product of two factors, that of clean-up and that of
fusion; all of the source's is called fusion, and its frameworks clean up as well.

The second table has more of ours on the same cleaned graph: groups grown in the order that the source prints (seed, successors,
predecessors; `--fusion published`), those that fixed patterns give, those of the planner without the algebraic rules, `on host`
those of its groups that are host steps, `heavy` the Many-to-Many operators, of which the table of types never lets two into one
group, and `ORT` the nodes left in the graph that ONNX Runtime saves after its own optimisation. Nothing is run. Needs the `bench`
extra for `--ort`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.dnnfusion_printed import LAYERS

from fusewise import api
from fusewise.fusion.describe import fusion_figures
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.plan import plan
from fusewise.ir.graph import Graph
from fusewise.ops.spec import Mapping as MappingType
from fusewise.passes.pipeline import CLEAN, run
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build

REWRITING = frozenset({"rewrite_exactly", "rewrite_algebra"})

FORMS = {"exported": (True,), "clean": (False,), "both": (True, False)}


def counted(name: str, decomposed: bool, with_ort: bool = False) -> dict[str, Any]:
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
        "heavy": sum(ecg.mapping(n) == MappingType.MANY_TO_MANY for n in range(len(clean.nodes))),
        "without_rewriting": len(plan(plain, Trace()).partition.groups),
        "published_order": len(plan(clean, Trace(), "published").partition.groups),
        "patterns": len(plan(clean, Trace(), "patterns").partition.groups),
        "onnxruntime": _onnxruntime_nodes(graph) if with_ort else None,
        "planning_s": planning_s,
        "printed": LAYERS[name]._asdict() if name in LAYERS else None,
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


RATES = (
    *("model", "form", "exported", "cleaned", "groups", "clean-up", "fusion", "rate"),
    *("printed: layers", "MNN", "TVM", "TFLite", "Pytorch", "DNNFusion", "rate"),
)

MORE = (
    *("model", "form", "groups", "published order", "patterns", "no rewriting", "on host", "heavy", "ORT"),
    *("MB before", "MB after", "plan s", "printed: MB before", "MB after"),
)


def rates(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A line of the first table: ours left, all that is printed right."""
    counts = (found["operators"], found["cleaned"], found["group_count"])
    factors = (found["cleanup_factor"], found["fusion_factor"], found["fusion_rate"])
    mine = (found["model"], found["form"], *map(str, counts), *(f"{factor:.1f}" for factor in factors))
    printed = LAYERS.get(found["model"])
    if printed is None:
        return mine + ("-",) * (len(RATES) - len(mine))
    return (*mine, *map(_or_dash, printed[:-1]), f"{printed.total / printed.dnnfusion:.1f}")


def more(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A line of the second table."""
    keys = ("group_count", "published_order", "patterns", "without_rewriting", "host_groups", "heavy", "onnxruntime")
    printed = LAYERS.get(found["model"])
    return (
        found["model"],
        found["form"],
        *(_or_dash(found[key]) for key in keys),
        *(f"{found[f'intermediate_bytes_{when}'] / 1e6:.0f}" for when in ("before", "after")),
        f"{found['planning_s']:.2f}",
        *(("-", "-") if printed is None else map(str, printed.megabytes)),
    )


def _or_dash(figure: object) -> str:
    return "-" if figure is None else str(figure)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A Markdown table; the first `words` columns are text."""
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * words}{' ---: |' * (len(headings) - words)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description="Count operators before and after fusion, beside the printed counts.")
    parser.add_argument("names", nargs="*", help="zoo models (default: the source's)")
    parser.add_argument("--form", choices=tuple(FORMS), default="both")
    parser.add_argument("--ort", action="store_true", help="count the nodes of ONNX Runtime's optimised graph too")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    results = []
    for name in given.names or LAYERS:
        for decomposed in FORMS[given.form]:
            results.append(counted(name, decomposed, given.ort))
            print(" ".join(rates(results[-1])), file=sys.stderr, flush=True)
            if given.json:
                given.json.write_text(json.dumps(results, indent=2) + "\n")
    print(markdown(RATES, [rates(found) for found in results], words=2))
    print()
    print(markdown(MORE, [more(found) for found in results], words=2))


if __name__ == "__main__":
    main()
