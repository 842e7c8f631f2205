"""Architecture-aware passes: models in three frameworks' styles under different lists of passes (Verma et al., CF 2022).

    python -m benchmarks.passes [NAME[@STYLE] ...] [--styles pytorch,tensorflow,mxnet] [--search SECONDS [--approximate]]
        [--no-measure] [--json F]
    python -m benchmarks.passes ssd_resnet50@pytorch --lists     # the paper's lists as printed, the seven of its experiment first
    python -m benchmarks.passes --table FILE     # what --json wrote, as the tables of docs/passes.md
    python -m benchmarks.passes --enabling       # derive select/enabling.toml again, by running every pass
    python -m benchmarks.passes --agreement      # relevant passes beside the table made by hand

For every model and style: no passes, the paper's baseline BL, the set of the model's family, the passes found relevant, the
default clean-up, and with --search the order found. Runs are taken in turn, all programs in one process, on one thread in
processor time, so that other work on the machine counts little; throughput is that of the fastest run. Compile time is that of
the passes and of native code without a cache, all threads added up. The paper's figures are from GPUs and another compiler, where
its baseline leaves operators unfused too. A file of --json keeps what other models and styles gave, so that rows can be run one at
a time. Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fusewise import api
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.power import GPU, NOT_HERE, PROCESSOR
from fusewise.benchmarking.timing import Timing
from fusewise.files import write_text
from fusewise.frontend.bind import bind
from fusewise.ir.graph import Graph
from fusewise.measuring import METRICS, executable_of, held_bytes, metric_cells, telling
from fusewise.outcomes import blocks_of
from fusewise.runtime.executable import Executable
from fusewise.select.enabling import derived, enabling, enabling_toml
from fusewise.select.pipeline import BL, DEFAULT, FAMILY_SETS, NONE, PAPER, Pipeline
from fusewise.select.sequence import Outcome, run_pipeline
from fusewise.selecting import OrderSearch, Selection, searched, selection
from fusewise.zoo.catalogue import MODELS, build
from fusewise.zoo.scaled import SCALED, scaled
from fusewise.zoo.styles import STYLES, styled

NETWORKS = ("resnet50", "mobilenet_v2", "ssd_resnet50", "bert_base")

PUBLISHED = {
    "resnet50": "throughput +24 % (TensorFlow) and +32 % (PyTorch), compile time -15 %",
    "mobilenet_v2": "compile time -45 %, throughput the same",
    "ssd_resnet50": "compile time -54 %, throughput the same",
    "bert_base": "compile time -92 %",
}
"""The family's set against BL, on GPUs."""

TABLE = Path("src/fusewise/select/enabling.toml")


def as_printed() -> dict[str, Pipeline]:
    """The published lists, and those that change answers do."""
    return {pipeline.name: replace(pipeline, approximate=pipeline is not DEFAULT) for pipeline in PAPER}


def compared_lists(found: Selection) -> dict[str, Pipeline]:
    """The lists of the tables: none, the baseline, the set of the family, the relevant passes, the default."""
    family = FAMILY_SETS.get(found.classification.family)
    listed = {} if family is None else {f"family ({family.name})": family}
    return {"none": NONE, "BL": BL, **listed, "relevance": found.pipeline, "default": DEFAULT}


def outcomes_of(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Outcome], dict[str, Any]]:
    """What each list of passes makes of a graph, and the record of the search; pass times are the least of five runs."""
    found = selection(graph)
    record: dict[str, Any] = {}
    pipelines = as_printed() if options.lists else compared_lists(found)
    if options.search:
        allowed = {"threads": options.threads, "approximate": options.approximate}
        outcome, record = searched(graph, found, OrderSearch("latency", options.search, **allowed))
        pipelines["searched"] = outcome.effective if record["chosen"] == "searched" else DEFAULT
    made: dict[str, Outcome] = {}
    for _ in range(5):  # in turn; the quickest counts
        for name, pipeline in pipelines.items():
            outcome = run_pipeline(pipeline, graph, blocks=blocks_of)
            if name not in made or outcome.total_ms < made[name].total_ms:
                made[name] = outcome
    return made, record


@dataclass(frozen=True)
class Row:
    """Figures of one list of passes, times in ms; power in W and temperatures in degrees C, None where they are not told."""

    pass_ms: float
    compile_ms: float
    p50_ms: float
    least_ms: float
    arena_bytes: int
    memory_bytes: int
    power_w: float | None
    gpu_power_w: float | None
    temperature_c: float | None
    gpu_temperature_c: float | None

    @property
    def total_ms(self) -> float:
        return self.pass_ms + self.compile_ms


def published(row: dict[str, Any]) -> dict[str, Any]:
    """A row by the keys of the six metrics; throughput is that of the fastest run."""
    memory = row.get("memory_bytes")
    told = {key: row.get(key) for key in ("power_w", "gpu_power_w", "temperature_c", "gpu_temperature_c")}
    figures = {
        "throughput_per_s": 1000 / row["least_ms"],
        "latency_p50_ms": row["p50_ms"],
        "compile_time_ms": row["pass_ms"] + row["compile_ms"],
        "memory_used_mb": None if memory is None else memory / 1e6,
        **told,
    }
    return {key: NOT_HERE if value is None else value for key, value in figures.items()}


def measured(outcomes: dict[str, Outcome], options: argparse.Namespace) -> dict[str, Row]:
    """The figures of each list; lists that lead to one program are measured once, and all programs run in turn."""
    first: dict[str, str] = {}
    for name, outcome in outcomes.items():
        first.setdefault(outcome.cost_key, name)
    models, compile_ms = {}, {}
    for name in first.values():
        begin = time.process_time()
        models[name] = executable_of(outcomes[name], threads=options.threads)
        compile_ms[name] = (time.process_time() - begin) * 1e3
    clock = time.process_time if options.threads == 1 else time.perf_counter
    feeds = random_feeds(next(iter(outcomes.values())).graph)
    samples: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(options.runs + 1):
        for name in models if turn % 2 else reversed(models):
            models[name].run(None, feeds)  # wakes the caches, and is not counted
            begin = clock()
            models[name].run(None, feeds)
            samples[name].append((clock() - begin) * 1e3)
    held = {name: _held(model, feeds) for name, model in models.items()}
    found = {}
    for name, outcome in outcomes.items():
        key = first[outcome.cost_key]
        timing = Timing(tuple(samples[key][1:]))
        found[name] = Row(outcome.total_ms, compile_ms[key], timing.p50_ms, timing.min_ms, *held[key])
    return found


def _held(model: Executable, feeds: dict[str, Any]) -> tuple[Any, ...]:
    """Bytes of the arena and of all that is held, power and temperature: the end of a `Row`."""
    _, used, hot = telling(lambda: model.run(None, feeds))
    watts = (used[device].watts if device in used else None for device in (PROCESSOR, GPU))
    return model.figures.arena_bytes, held_bytes(model), *watts, hot.processor, hot.gpu


HEADS = (
    f"{'passes':16}",
    "nodes",
    "fusion",
    *(f"{metric.name}, {metric.unit}" for metric in METRICS),
    "to BL",
    "Compile Time to BL",
)


def line(name: str, outcome: Outcome, row: Row | None, base: Row | None, same: str) -> str:
    cells = [name, str(len(outcome.graph.nodes)), outcome.fusion]
    if row is not None and base is not None:
        faster, sooner = base.least_ms / row.least_ms - 1, row.total_ms / base.total_ms - 1
        cells += [*metric_cells(published(asdict(row))), f"{faster:+.0%}", f"{sooner:+.0%}"]
    return "  ".join((*(f"{cell:>{len(head)}}" for cell, head in zip(cells, HEADS, strict=False)), same))


def table(name: str, style: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    graph = api.load(f"zoo:{name}@{style}")
    outcomes, search = outcomes_of(graph, options)
    figures = measured(outcomes, options) if options.measure else {}
    keys: dict[str, str] = {}
    rows = []
    print(f"\n{name} as {style} exports it, {len(graph.nodes)} nodes; published: {PUBLISHED.get(name, 'nothing')}")
    print("  ".join(HEADS))
    for label, outcome in outcomes.items():
        same = keys.setdefault(outcome.key, label)
        told = "" if same == label else f"same graph as {same}"
        print(line(label, outcome, figures.get(label), figures.get("BL"), told), flush=True)
        plain = asdict(figures[label]) if label in figures else {}
        rows.append(
            {
                "model": name,
                "style": style,
                "passes": label,
                "same_as": "" if same == label else same,
                "nodes": len(outcome.graph.nodes),
                "order": list(outcome.effective.passes),
                "unchanged": list(outcome.unchanged),
                "pass_ms": outcome.total_ms,
                **({"search": search} if label == "searched" else {}),
                **plain,
            }
        )
    if search:
        tried = f"{search['tried']} orders tried, {search['duplicates']} again the same graph"
        print(f"{'':16} {tried}; searched to default: {won({'search': search})}")
    if "relevance" in outcomes:
        share = outcomes["relevance"].total_ms / outcomes["default"].total_ms
        print(f"{'':16} relevance takes {share:.0%} of the default's pass time")
    return rows


def kept(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows to a file that keeps those of other models and styles."""
    new = {(row["model"], row["style"]) for row in rows}
    old = read(path) if path.exists() else []
    others = [row for row in old if (row["model"], row["style"]) not in new]
    write_text(path, json.dumps([*others, *rows], indent=1) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(rows, list), path
    return rows


TITLES = dict(zip(NETWORKS, ("ResNet-50", "MobileNetV2", "SSD-ResNet50", "BERT-base"), strict=True))
FRAMEWORKS = {"pytorch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet"}
SPEED = (
    *("model", "style", "Throughput, per s: none", "BL", "family set", "default", "to BL"),
    *("searched to default", "Latency, ms: BL", "default"),
)
COST = (
    *("model", "style", "Compile Time, s: BL", "family set", "default", "to BL", "Power, W: BL", "default"),
    *("Memory used, MB: BL", "default", "Temperature, degrees C: BL", "default", "ms of passes"),
)
NAMES = ("BL", "family", "default")


def won(row: dict[str, Any] | None) -> str:
    """What the duel of the searched order with the default came to."""
    if row is None:
        return ""
    search = row["search"]
    if search["chosen"] == "searched":
        apart = f"; answers {search['difference']:.2%} apart" if "difference" in search else ""
        return f"{search['speedup']:.3f}, at least {search['at_least']:.3f}{apart}"
    return f"the default stays ({search['speedup']:.3f})" if "rounds" in search else "the default stays"


def markdown(rows: list[dict[str, Any]]) -> str:
    """The measured rows as two tables, speed and cost, a line for each model and style."""
    speed, cost = ([_cells(heads), "|---" * len(heads) + "|"] for heads in (SPEED, COST))
    for model, style in dict.fromkeys((row["model"], row["style"]) for row in rows if "least_ms" in row):
        found = {row["passes"].split()[0]: row for row in rows if (row["model"], row["style"]) == (model, style)}
        base, best = found["BL"], found["default"]
        names = (TITLES.get(model, model), FRAMEWORKS[style])
        rates = [f"{1000 / found[name]['least_ms']:.1f}" if name in found else "-" for name in ("none", *NAMES)]
        faster = f"{base['least_ms'] / best['least_ms'] - 1:+.0%}"
        speed.append(
            _cells(
                (*names, *rates, faster, won(found.get("searched")), *(f"{one['p50_ms']:.1f}" for one in (base, best)))
            )
        )
        took = {name: row["pass_ms"] + row["compile_ms"] for name, row in found.items()}
        times = [f"{took[name] / 1000:.1f}" if name in found else "-" for name in NAMES]
        told = [cell for metric in METRICS[3:] for cell in (metric.cell(published(one)) for one in (base, best))]
        share, whole = found["relevance"]["pass_ms"], best["pass_ms"]
        passes = f"{share:.0f} of {whole:.0f} ({share / whole:.0%})"
        cost.append(_cells((*names, *times, f"{took['default'] / took['BL'] - 1:+.0%}", *told, passes)))
    return "\n".join([*speed, "", *cost])


def _cells(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def derive() -> None:
    """Run every pass on members of every family, in every style, and write down which made work for which."""
    graphs = [scaled(kind, decomposed=form) for kind in SCALED for form in (False, True)]
    graphs += [styled(scaled(kind), style) for kind in SCALED for style in STYLES if style != "pytorch"]
    names = ("tinybert", "mobilenet_v3_small", "mobilenet_v1_ssd", "distilbert", "mask_rcnn_resnet50_fpn")
    graphs += [bind(build(name, decomposed=True), {}, {}) for name in names]
    TABLE.write_text(enabling_toml(derived(graphs)), encoding="utf-8")
    print(f"wrote {TABLE}: {sum(map(len, enabling().values()))} pairs")


def agreements(names: Iterable[str]) -> None:
    print(f"{'model':28} {'family':12} {'set':4} {'recall':>6} {'precision':>9}  found only | listed only")
    for name in names:
        for style in STYLES:
            found = selection(api.load(f"zoo:{name}@{style}"))
            agreed = found.agreement
            family = f"{name + '@' + style:28} {found.classification.family:12}"
            if agreed is None:
                print(f"{family} no table")
                continue
            listed = [f"{p}*" if p in agreed.idle else p for p in agreed.listed_only]
            print(
                f"{family} {FAMILY_SETS[agreed.family].name:4} {agreed.recall:6.2f} {agreed.precision:9.2f}  "
                f"{' '.join(agreed.found_only)} | {' '.join(listed)}",
                flush=True,
            )
    print("* has nothing to do on any graph here")


def main() -> int:
    parser = argparse.ArgumentParser(description="Lists of passes on models in three styles.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"zoo models; by default {', '.join(NETWORKS)}")
    parser.add_argument("--styles", default=",".join(STYLES))
    parser.add_argument("--search", type=float, default=0.0, metavar="SECONDS", help="search for an order, so long")
    parser.add_argument("--approximate", action="store_true", help="the search may use passes that change answers")
    parser.add_argument("--lists", action="store_true", help="the paper's lists, approximations allowed")
    parser.add_argument("--no-measure", dest="measure", action="store_false", help="pass times and graphs only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--enabling", action="store_true", help="derive the enabling table again and write it")
    parser.add_argument("--agreement", action="store_true", help="compare relevant passes with the published table")
    parser.add_argument("--json", type=Path, help="also write the rows here, beside those of other models and styles")
    parser.add_argument("--table", type=Path, metavar="FILE", help="show what --json wrote as a table")
    options = parser.parse_args()
    if options.table is not None:
        print(markdown(read(options.table)))
        return 0
    if options.enabling:
        derive()
        return 0
    wanted = [(name, given) for name, _, given in (text.partition("@") for text in options.names or NETWORKS)]
    known = {model.name for model in MODELS}
    if unknown := sorted({name for name, _ in wanted} - known):
        parser.error(f"no such model: {', '.join(unknown)}")
    if unknown := sorted({*options.styles.split(","), *(given for _, given in wanted if given)} - set(STYLES)):
        parser.error(f"no such style: {', '.join(unknown)}")
    if options.agreement:
        agreements(name for name, _ in wanted)
        return 0
    times = "processor time" if options.threads == 1 else "elapsed time, passes and compilation in processor time"
    print(f"{options.threads} thread(s); {times}")
    for name, given in wanted:
        for style in [given] if given else options.styles.split(","):
            rows = table(name, style, options)
            if options.json is not None:
                kept(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
