"""Tries until the best known graph is reached, by ways to search for an order of passes.

    python -m benchmarks.pass_tries [NAME[@STYLE] ...] [--objective estimate] [--from-nothing] [--budget 40] [--seeds 3] [--json F]
    python -m benchmarks.pass_tries --table FILE    # what --json wrote, as the table of docs/passes.md

`orders` is how orders were searched for before: those of the best four are changed in one to three places by chance, and every
order is a try, whatever graph it leads to. `graphs` is the search over graphs, and `taught` the same with what it learned on other
models, as the profile database keeps it: those that are in the file of --json already, which are all others the second time. Every
way has the same starts, passes and prices; a graph is priced once for all of them, and the best known graph of a model is the
cheapest that any of them found. Searches begin as those of `fusewise passes` do, or with an empty order. Run it from the root of
the repository.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from fusewise import api
from fusewise.files import write_text
from fusewise.select.order import Earlier, Ending, OrderSpace, search_orders
from fusewise.select.pipeline import Pipeline
from fusewise.select.prior import Count, Move
from fusewise.select.sequence import Outcome
from fusewise.selecting import price_of, selection, space_of

MODELS = (
    *("mobilenet_v3_small", "squeezenet1_1", "mobilenet_v1_ssd", "resnet18@tensorflow"),
    *("mobilenet_v2@mxnet", "tinybert", "tinybert@tensorflow", "distilbert@mxnet"),
)
WAYS = ("orders", "graphs", "taught")
NOTHING = (Pipeline("nothing", (), fusion="dnnfusion"),)
_KEPT, _CHILDREN = 4, 6


@dataclass
class Prices:
    """The price of each graph of a model, asked once."""

    price: Callable[[Outcome], float]
    known: dict[str, float] = field(default_factory=dict)

    def __call__(self, outcome: Outcome) -> float:
        key = outcome.cost_key
        if key not in self.known:
            self.known[key] = self.price(outcome)
        return self.known[key]


@dataclass(frozen=True)
class Searched:
    """The price of every try in turn, and which of them were of a new graph."""

    costs: tuple[float, ...]
    is_new: tuple[bool, ...]

    def until(self, best: float) -> tuple[int, int] | None:
        """Tries and different graphs until one costs no more than `best`; None when none does."""
        for number, cost in enumerate(self.costs, 1):
            if cost <= best:
                return number, sum(self.is_new[:number])
        return None


def over_orders(space: OrderSpace, price: Callable[[Outcome], float], tries: int, seed: int) -> Searched:
    """Orders one by one: a pass more at either end and other planners first, then changes by chance."""
    rng, first = random.Random(seed), space.starts[0]
    waiting = [
        *space.starts,
        *(
            replace(first, passes=order)
            for name in space.names
            for order in ((*first.passes, name), (name, *first.passes))
        ),
        *(replace(first, fusion=fusion) for fusion in space.fusions),
    ]
    seen: set[tuple[tuple[str, ...], str]] = set()
    keys: dict[str, None] = {}
    best: list[tuple[float, Pipeline]] = []
    costs, is_new = [], []
    idle = 0
    while len(costs) < tries and idle < 50:
        batch, waiting = waiting[:_CHILDREN], waiting[_CHILDREN:]
        batch = batch or [_changed(rng.choice(best)[1], space, rng) for _ in range(_CHILDREN)]
        fresh = [one for one in dict.fromkeys(batch) if (one.passes, one.fusion) not in seen]
        idle = 0 if fresh else idle + 1
        for one in fresh:
            seen.add((one.passes, one.fusion))
            outcome = space.run(one, space.graph)
            cost = price(outcome)
            costs.append(cost)
            is_new.append(outcome.cost_key not in keys)
            keys[outcome.cost_key] = None
            if all(cost != other for other, _ in best):
                best = sorted([*best, (cost, one)], key=lambda pair: pair[0])[:_KEPT]
    return Searched(tuple(costs), tuple(is_new))


def _changed(parent: Pipeline, space: OrderSpace, rng: random.Random) -> Pipeline:
    passes, fusion = list(parent.passes), parent.fusion
    for _ in range(rng.randint(1, 3)):
        change = rng.choice(("swap", "drop", "insert", "repeat", "move", "fuse"))
        i, j = (rng.randrange(len(passes)) for _ in range(2)) if passes else (0, 0)
        if change == "fuse" and space.fusions:
            fusion = rng.choice(space.fusions)
        elif change == "insert" and space.names:
            passes.insert(rng.randint(0, len(passes)), rng.choice(space.names))
        elif len(passes) < 2:
            continue
        elif change == "swap":
            passes[i], passes[j] = passes[j], passes[i]
        elif change == "drop":
            del passes[i]
        elif change == "repeat":
            passes.insert(j, passes[i])
        elif change == "move":
            passes.insert(j, passes.pop(i))
    return replace(parent, passes=tuple(passes), fusion=fusion)


def over_graphs(
    space: OrderSpace, price: Callable[[Outcome], float], budget: int, seed: int, moves: Mapping[Move, Count]
) -> tuple[Searched, Mapping[Move, Count]]:
    """The search over graphs, and what it learned."""
    found = search_orders(space, price, Ending(1e9, budget), seed=seed, earlier=Earlier(moves=moves))
    costs = tuple(one.cost for one in found.tried)
    return Searched(costs, (True,) * len(costs)), found.learned


def joined(tables: Iterable[Mapping[Move, Count]]) -> dict[Move, Count]:
    whole: dict[Move, Count] = {}
    for table in tables:
        for move, count in table.items():
            whole[move] = whole.get(move, Count()) + count
    return whole


def compared(name: str, others: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """The tries of each way until the best known graph of a model, for each seed; `others` are rows of other models."""
    graph = api.load(f"zoo:{name}")
    space = space_of(graph, selection(graph))
    space = replace(space, starts=NOTHING) if options.from_nothing else space
    price = Prices(price_of(options.objective, threads=options.threads))
    moves = joined({Move(*row[:3]): Count(*row[3:]) for row in other["learned"]} for other in others)
    seeds = range(options.seeds)
    alone = [over_graphs(space, price, options.budget, seed, {}) for seed in seeds]
    found = {
        "orders": [over_orders(space, price, options.budget * options.longer, seed) for seed in seeds],
        "graphs": [run for run, _ in alone],
        "taught": [over_graphs(space, price, options.budget, seed, moves)[0] for seed in seeds],
    }
    best = min(price.known.values())
    return {
        "model": name,
        "objective": options.objective,
        "start": "nothing" if options.from_nothing else "default",
        "passes": len(space.names),
        "known": len(price.known),
        "first": found["graphs"][0].costs[0],
        "best": best,
        **{way: [run.until(best) for run in runs] for way, runs in found.items()},
        **{f"{way} tried": [len(run.costs) for run in runs] for way, runs in found.items()},
        "taught by": len(others),
        "learned": [[*astuple(move), *astuple(count)] for move, count in alone[0][1].items()],
    }


def kept(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows with a new one in the place of that of the same model."""
    places = [one["model"] for one in rows]
    if row["model"] not in places:
        return [*rows, row]
    return [row if one["model"] == row["model"] else one for one in rows]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = (
        "model",
        "start",
        "graphs known",
        "start to best",
        "orders",
        "of these different graphs",
        "graphs",
        "taught",
    )
    lines = [_cells(heads), "|---" * len(heads) + "|"]
    for row in rows:
        orders = _middle(row["orders"], row["orders tried"], 0), _middle(row["orders"], row["orders tried"], 1)
        graphs = (_middle(row[way], row[f"{way} tried"], 1) for way in WAYS[1:])
        gain = f"{row['first'] / row['best']:.3f}" if row["best"] else "-"
        lines.append(_cells((row["model"], row["start"], str(row["known"]), gain, *orders, *graphs)))
    return "\n".join(lines)


def _middle(found: Sequence[Sequence[int] | None], tried: Sequence[int], part: int) -> str:
    """The median of tries over seeds, and how many seeds never got there."""
    reached = [one[part] for one in found if one is not None]
    missed = f"{len(found) - len(reached)} of {len(found)} never in {max(tried)}" if len(reached) < len(found) else ""
    if not reached:
        return missed
    return f"{statistics.median(reached):g}" + (f" ({missed})" if missed else "")


def _cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Tries until the best known graph is reached.")
    parser.add_argument("names", nargs="*", metavar="NAME[@STYLE]", help=f"by default {', '.join(MODELS)}")
    parser.add_argument("--objective", default="estimate")
    parser.add_argument("--from-nothing", action="store_true", help="begin with an empty order")
    parser.add_argument("--budget", type=int, default=40, help="different graphs of a search over graphs")
    parser.add_argument("--longer", type=int, default=5, help="so many orders for each graph of the budget")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.table is not None:
        print(markdown(json.loads(options.table.read_text(encoding="utf-8"))))
        return 0
    rows: list[dict[str, Any]] = []
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text(encoding="utf-8"))
    for name in options.names or MODELS:
        row = compared(name, [one for one in rows if one["model"] != name], options)
        rows = kept(rows, row)
        print(markdown([row]).splitlines()[-1], flush=True)
        if options.json is not None:
            write_text(options.json, json.dumps(rows, indent=1) + "\n")
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
