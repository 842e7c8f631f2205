"""Plans and random groups, executed: does the buffer fill, and does the traffic flow, as the equations say, to the byte?

    python -m benchmarks.simulate_plans [NAME ...] [--buffer 128] [--random 200] [--of NAME,NAME] [--pixels 1500] [--work 5]
                                        [--json FILE]

Every group of the optimal plans of some networks, under LBDF and BRR, and random groups of all of them, as many of each (`--of`
takes only those of some networks, the same groups, so that the work can be done in parts). Some groups take minutes: each is told
when it is done, and the file is written then. LBDF: line buffers from the schedule of every pixel against the equation's. BRR:
one-row tiles for the peak and the chosen tiles for the traffic, run channel block by channel block. Values are compared with ONNX
Runtime's where a group is small enough: up to `--pixels` results under LBDF (each pixel is computed by itself), up to `--work`
million multiply-accumulates under BRR. Run it from the root of the repository, with the `bench` extra installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.accel.pinned import random_group

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR, BrrTiling, frame_of
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import weights_of
from fusewise.accel.schemes.tiles import leaving
from fusewise.accel.simulate.brr import run_brr
from fusewise.accel.simulate.lbdf import maps_of, run_lbdf
from fusewise.accel.simulate.schedule import schedule_of, spans
from fusewise.benchmarking.inputs import random_feeds
from fusewise.files import write_text
from fusewise.frontend.onnx_export import to_model
from fusewise.ir.graph import Graph
from fusewise.zoo.catalogue import build

PLANNED = ("mobilenet_v2", "squeezenet1_1", "resnet18")
RANDOM = (
    *("resnet18", "mobilenet_v2", "squeezenet1_1", "mobilenet_v3_large", "efficientnet_b0", "inception_v3"),
    *("densenet121", "nasnet_a_mobile", "mobilenet_v1_ssd", "unet", "deeplabv3_mobilenet_v3_large"),
)
TOLERANCE = 1e-4


@dataclass
class Subject:
    """A network with all its values, on random weights and a random image."""

    name: str
    graph: Graph
    network: Network
    maps: dict[int, np.ndarray]


def subject(name: str) -> Subject:
    import onnxruntime

    graph = prepare(build(name))
    network, model = network_of(graph), to_model(graph)
    known = {port.name for port in model.graph.output}
    for node in graph.nodes:
        for value in node.writes:
            if value not in known:
                model.graph.output.add(name=value)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = random_feeds(graph)
    names = [port.name for port in session.get_outputs()]
    values = dict(zip(names, session.run(names, feeds), strict=True)) | feeds
    return Subject(name, graph, network, maps_of(graph, network, values))


def worst(found: dict[int, np.ndarray], maps: dict[int, np.ndarray]) -> float:
    """The largest difference over the largest magnitude, of all results."""
    return max(float(np.abs(a - maps[t]).max() / max(1e-6, np.abs(maps[t]).max())) for t, a in found.items())


def outside(network: Network, group: int) -> set[int]:
    read = {read.tensor for v in bits_of(group) for read in network.operators[v].reads}
    return {t for t in read if network.tensors[t].producer < 0 or not group >> network.tensors[t].producer & 1}


def lines(one: Subject, group: int, pixels: int) -> dict[str, Any]:
    """One group under LBDF."""
    network, scheme = one.network, LBDF()
    sizes = {line.tensor: line.live for line in scheme.lines(network, group)}
    schedule = schedule_of(one.graph, network, group)
    needed = spans(network, group, schedule)
    row: dict[str, Any] = {"scheme": "lbdf", "network": one.name, "operators": group.bit_count()}
    row["buffer_equal"] = sizes == needed
    made = [t for v in bits_of(group) for t in network.operators[v].writes]
    # every pixel of a track crosses once: in when it is loaded, out when it is made for others
    moved = weights_of(network, group)
    for t in outside(network, group) | set(leaving(network, group)):
        moved += schedule.tracks[t].size * network.tensors[t].channels
    row["traffic_equal"] = 2 * moved == scheme.dram_bytes(network, group)
    if sum(network.tensors[t].pixels for t in made) <= pixels:
        run = run_lbdf(one.graph, network, group, {t: one.maps[t] for t in outside(network, group)}, sizes)
        row["buffer_equal"] &= 2 * run.buffer == scheme.buffer_bytes(network, group)
        row["traffic_equal"] &= 2 * (run.read + run.written) == scheme.dram_bytes(network, group)
        row["error"] = worst(run.outputs, one.maps)
    return row


def tiles(one: Subject, group: int, capacity: int, work: float) -> dict[str, Any] | None:
    """One group under BRR; None when it cannot run."""
    network, scheme = one.network, BRR(accounting="executed")
    frame = frame_of(network, group)
    if isinstance(frame, str):
        return None
    ways = scheme.tilings(network, group, capacity or int(1.5 * scheme.buffer_bytes(network, group)))
    if not ways:
        return None
    best = min(ways, key=lambda way: way.dram_bytes)
    given = {t: one.maps[t] for t in outside(network, group)}
    small = sum(network.operators[v].form.macs for v in bits_of(group)) <= work * 1e6
    run = run_brr(one.graph, network, group, given, scheme, best, values=small)
    one_row = BrrTiling(best.full_first, 1, frame.height, False, 0, 0)
    low = run_brr(one.graph, network, group, given, scheme, one_row, values=False)
    row = {"scheme": "brr", "network": one.name, "operators": group.bit_count(), "rows": best.rows, "tiles": best.tiles}
    row["buffer_equal"] = 2 * low.buffer == best.buffer_bytes
    row["traffic_equal"] = 2 * (run.read + run.written) == best.dram_bytes
    row["fits"] = not capacity or 2 * run.buffer <= capacity
    if small:
        row["error"] = worst(run.outputs, one.maps)
    return row


def planned(names: list[str], kib: int, pixels: int, work: float) -> Iterator[dict[str, Any]]:
    from fusewise.accel.search.exact import exact_search

    for name in names:
        one = subject(name)
        for scheme in (LBDF(), BRR(accounting="executed")):
            found = exact_search(GroupCosts(Problem(one.network, scheme, kib << 10)))
            for group in found.groups:
                single = not group & (group - 1) and scheme.buffer_bytes(one.network, group) >= kib << 10
                row = lines(one, group, pixels) if scheme.name == "lbdf" else tiles(one, group, kib << 10, work)
                if row is not None:
                    yield row | {"kind": "plan", "optimal": found.optimal, "too_large_alone": single}


def drawn(count: int, names: list[str], seed: int, pixels: int, work: float) -> Iterator[dict[str, Any]]:
    for i, name in enumerate(RANDOM):
        if name not in names:
            continue
        rng = random.Random(f"{name} {seed}")
        one, wanted = subject(name), count // len(RANDOM) + (i < count % len(RANDOM))
        while wanted:
            group = random_group(one.network, rng, 10)
            if any(one.network.operators[v].form.kind == "opaque" for v in bits_of(group)):
                continue
            wanted -= 1
            yield lines(one, group, pixels) | {"kind": "random"}
            row = tiles(one, group, 0, work)
            if row is not None:
                yield row | {"kind": "random"}


def table(rows: list[dict[str, Any]]) -> str:
    """Per kind, scheme and network: groups, how many agree, how many were compared in value, the largest error."""
    text = [
        f"{'':9}{'scheme':7}{'network':30}{'groups':>7}{'buffer =':>9}{'traffic =':>10}{'of':>5}{'values':>7}{'error':>9}"
    ]
    for kind, scheme, name in dict.fromkeys((r["kind"], r["scheme"], r["network"]) for r in rows):
        some = [r for r in rows if (r["kind"], r["scheme"], r["network"]) == (kind, scheme, name)]
        moved, errors = [r for r in some if "traffic_equal" in r], [r["error"] for r in some if "error" in r]
        text.append(
            f"{kind:9}{scheme:7}{name:30}{len(some):7}{sum(r['buffer_equal'] for r in some):9}"
            f"{sum(r['traffic_equal'] for r in moved):10}{len(moved):5}{len(errors):7}{max(errors, default=0):9.1e}"
        )
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(PLANNED), metavar="NAME")
    parser.add_argument("--buffer", type=int, default=128, help="KiB")
    parser.add_argument("--random", type=int, default=200, help="random groups of all networks together")
    parser.add_argument("--of", default=",".join(RANDOM), help="networks whose random groups to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pixels", type=int, default=1500)
    parser.add_argument("--work", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    plans = planned(chosen.names, chosen.buffer, chosen.pixels, chosen.work)
    others = drawn(chosen.random, chosen.of.split(","), chosen.seed, chosen.pixels, chosen.work)
    rows: list[dict[str, Any]] = []
    for row in itertools.chain(plans, others):
        rows.append(row)
        print(len(rows), *(f"{key}={value}" for key, value in row.items()), file=sys.stderr, flush=True)
        if chosen.json:
            write_text(chosen.json, json.dumps(rows, indent=1))
    print(table(rows))
    wrong = [r for r in rows if not r["buffer_equal"] or not r.get("traffic_equal", True) or not r.get("fits", True)]
    wrong += [r for r in rows if r.get("error", 0.0) > TOLERANCE]
    for row in wrong:
        print("differs:", row)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
