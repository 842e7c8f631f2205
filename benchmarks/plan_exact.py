"""Proven optima of the layer-fusion planner: networks x buffers x schemes, with what the proof took.

    python -m benchmarks.plan_exact [NAME ...] [--buffers 128,256] [--schemes lbdf,brr,brr-executed] [--seconds 60] [--json FILE]

MB are 1000 KiB, as the figures beside them count. `known` is the optimum (headline, MB) that another program proved on another
exporter's graphs (`tests/accel/data/optima.json`; BRR: 128 KiB only); small differences come from the graphs, for example from a
Resize that looks ahead. Without a proof, `within` says how far the plan may lie above the optimum. `s` is wall time of the search
alone, with cold caches, `cpu` what the process spent of it. `brr-executed` prices row tiles as running them takes.
Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from fusewise.accel.network import Network, network_of, prepare
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.search.exact import exact_search
from fusewise.accel.search.result import SearchBudget
from fusewise.files import write_text
from fusewise.zoo.catalogue import build

PAPER = (
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "squeezenet1_1",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "efficientnet_b0",
    "efficientnet_b3",
    "deeplabv3_mobilenet_v3_large",
)
WIDE = ("inception_v3", "densenet121", "nasnet_a_mobile")
SCHEMES: dict[str, tuple[str, dict[str, object]]] = {
    "lbdf": ("lbdf", {}),
    "brr": ("brr", {}),
    "brr-executed": ("brr", {"accounting": "executed"}),
}
"""Schemes and their options by the names of this table."""
BUFFERS = (128, 256, 512, 1024, 2048)
MEGABYTE = 1000 * 1024
KNOWN_BRR = {"resnet18": 29.674, "resnet50": 101.418, "mobilenet_v2": 7.817, "squeezenet1_1": 3.073}
"""Optima under BRR with 128 KiB, MB."""


def known_optimum(name: str, scheme: str, kib: int) -> float | None:
    """The optimum that another program proved, MB."""
    if scheme == "brr-executed":
        return None
    if scheme == "brr":
        return KNOWN_BRR.get(name) if kib == 128 else None
    table = json.loads(Path("tests/accel/data/optima.json").read_text())
    if name not in table["optimum_kib"] or kib not in table["buffers_kib"]:
        return None
    return float(table["optimum_kib"][name][table["buffers_kib"].index(kib)]) / 1000


def measure(network: Network, name: str, scheme: str, kib: int, seconds: float) -> dict[str, Any]:
    """One search, from nothing."""
    problem = Problem(network, scheme_named(*SCHEMES[scheme]), kib << 10)
    costs, begin = GroupCosts(problem), time.process_time()
    found = exact_search(costs, SearchBudget(seconds=seconds))
    return {
        "network": name,
        "scheme": scheme,
        "buffer_kib": kib,
        "operators": len(network),
        "excluded": problem.excluded.bit_count(),
        "groups": len(found.groups),
        "dram_bytes": int(found.cost),
        "dram_bytes_full": int(found.cost) + problem.excluded_bytes,
        "known_mb": known_optimum(name, scheme, kib),
        "optimal": found.optimal,
        "gap": found.gap,
        "seconds": found.seconds,
        "cpu_seconds": time.process_time() - begin,
        "notes": list(found.notes),
    }


def line(row: dict[str, Any]) -> str:
    known = "" if row["known_mb"] is None else f"{row['known_mb']:9.3f}"
    proof = "optimal" if row["optimal"] else f"within {row['gap']:.1%}"
    return (
        f"{row['network']:30}{row['scheme']:13}{row['buffer_kib']:5}{row['dram_bytes'] / MEGABYTE:10.3f}{known:>10}"
        f"{row['dram_bytes_full'] / MEGABYTE:10.3f}{row['groups']:7}{row['excluded']:9}{row['seconds']:8.2f}"
        f"{row['cpu_seconds']:8.2f}  {proof:14}"
        f"{'; '.join(row['notes'])}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*PAPER, *WIDE])
    parser.add_argument("--buffers", default=",".join(map(str, BUFFERS)), help="KiB, with commas")
    parser.add_argument("--schemes", default="lbdf,brr")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one search")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    sys.stdout.write(
        f"{'network':30}{'':13}{'KiB':>5}{'MB':>10}{'known':>10}{'full MB':>10}{'groups':>7}{'excluded':>9}{'s':>8}{'cpu':>8}\n"
    )
    rows = []
    for name in options.names:
        network = network_of(prepare(build(name)))
        for scheme in options.schemes.split(","):
            for kib in map(int, options.buffers.split(",")):
                rows.append(measure(network, name, scheme, kib, options.seconds))
                sys.stdout.write(line(rows[-1]))
                sys.stdout.flush()
    if options.json:
        write_text(Path(options.json), json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
