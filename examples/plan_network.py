# ruff: noqa: T201
"""Plan a network for an accelerator with a small buffer, and publish the figure.

    python examples/plan_network.py [MODEL] [--buffer 256KiB] [-o plan.html]

MODEL is an ONNX file or `zoo:NAME`. The page is one file that fetches nothing: figures, the network with its groups, what each
needs of the buffer, why it ends where it does, and what would make room. Beside it, `plan.json` is what
`fusewise explain plan.json --group N` reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fusewise
from fusewise.reporting.document.verbs import plan_document
from fusewise.reporting.report import Report


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="zoo:squeezenet1_1")
    parser.add_argument("--buffer", default="256KiB")
    parser.add_argument("--seconds", type=float, help="time to search at most")
    parser.add_argument("-o", "--output", type=Path, default=Path("plan.html"))
    asked = parser.parse_args()
    plans = {
        scheme: fusewise.plan(asked.model, buffer=asked.buffer, scheme=scheme, seconds=asked.seconds)
        for scheme in ("lbdf", "brr")
    }
    for scheme, plan in plans.items():
        figures = plan.summary
        proof = "proven optimal" if figures["optimal"] else "not proven"
        print(f"{scheme}: {figures['dram_bytes'] / 1e6:.3f} MB of traffic in {figures['groups']} groups, {proof}")
    best = min(plans.values(), key=lambda plan: plan.summary["dram_bytes"])
    Report(plan_document(asked.model, fusewise.load(asked.model), best)).save(asked.output)
    best.save(asked.output.with_suffix(".json"))
    print(f"wrote {asked.output} and {asked.output.with_suffix('.json')}")


if __name__ == "__main__":
    main()
