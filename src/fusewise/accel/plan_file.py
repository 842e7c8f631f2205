"""A plan as JSON: everything a reader needs to run it, and to see why it is as it is.

The schema is versioned. Groups name operators as the user's model did; `nodes` are those of the prepared graph (batch
normalisation folded), `origin` those of the file they come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.hardware import Hardware
from fusewise.accel.network import Network
from fusewise.accel.plan import LayerFusionPlan
from fusewise.accel.reasons import Boundary, sentence
from fusewise.accel.search.result import Result
from fusewise.accel.split.splitter import Splitting
from fusewise.accel.split.tree import parts_of
from fusewise.errors import InvalidModel, UsageError

__all__ = ["SCHEMA", "SavedPlan", "Setting", "plan_json", "read_plan", "summary_of"]

SCHEMA = "fusewise-plan/1"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a plan was asked for: which model at which sizes, the scheme with its options, search, objective, explainer, when that
    is asked, edits of a local search."""

    model: str
    shapes: Mapping[str, Sequence[int]]
    symbols: Mapping[str, int]
    scheme: str
    scheme_options: Mapping[str, object]
    search: str
    objective: str
    explainer: str | None
    seed: int
    asking: str = "anew"
    edits: int | None = None


def summary_of(plan: LayerFusionPlan, result: Result, *, explained: bool) -> dict[str, Any]:
    """The figures of a plan, by the names users know; `explained`: an explainer took part, so there are rectify rates."""
    return {
        "dram_bytes": plan.dram_bytes,
        "dram_bytes_full": plan.dram_bytes_full,
        "max_buffer_bytes": plan.max_buffer_bytes,
        "buffer_bytes": plan.capacity,
        "groups": len(plan.groups),
        "excluded": len(plan.excluded),
        "optimal": result.optimal,
        "lower_bound_bytes": result.lower_bound,
        "gap": result.gap,
        "plans_evaluated": result.plans_evaluated,
        "rectify_rate": result.rectify_rate if explained else None,
        "rectify_rate_once": result.rectify_rate_once if explained else None,
        "rectified": result.rectified,
        "rectified_once": result.rectified_once,
        "invalid": result.invalid,
        "search_s": round(result.seconds, 4),
        "interrupted": result.interrupted,
        "latency_ms": plan.latency_ms,
        "energy_mj": plan.energy_mj,
    }


def plan_json(
    plan: LayerFusionPlan,
    result: Result,
    setting: Setting,
    boundaries: Sequence[Boundary],
    splittings: Sequence[Splitting] = (),
) -> dict[str, Any]:
    """The whole file; `boundaries` are the plan's (`accel.reasons`), `splittings` what became of groups that did not fit."""
    operators = plan.network.operators
    reasons: dict[int, list[str]] = {}
    for boundary in boundaries:
        for end in {boundary.before, boundary.after} - {None}:
            reasons.setdefault(int(end or 0), []).append(sentence(plan.network, boundary))
    return {
        "schema": SCHEMA,
        **asdict(setting),
        "hardware": hardware_json(plan.hardware),
        "summary": summary_of(plan, result, explained=setting.explainer is not None),
        "groups": [
            {
                "group": number,
                "nodes": [operators[v].name for v in group.operators],
                "origin": [name for v in group.operators for name in operators[v].origin],
                "buffer_bytes": group.buffer_bytes,
                "dram_bytes": group.dram_bytes,
                "latency_ms": group.latency_ms,
                "energy_mj": group.energy_mj,
                "reasons": reasons.get(number, []),
            }
            for number, group in enumerate(plan.groups)
        ],
        "excluded": [
            {
                "node": operators[one.operator].name,
                "origin": list(operators[one.operator].origin),
                "reason": one.reason,
                "buffer_bytes": one.buffer_bytes,
                "dram_bytes": one.dram_bytes,
                "latency_ms": one.latency_ms,
                "energy_mj": one.energy_mj,
            }
            for one in plan.excluded
        ],
        "boundaries": [
            {**asdict(edge), "producer": operators[edge.producer].name, "consumer": operators[edge.consumer].name}
            for edge in boundaries
        ],
        "splittings": [_splitting_json(plan.network, splitting) for splitting in splittings],
        "history": [list(point) for point in result.history],
        "notes": list(result.notes),
    }


def _splitting_json(network: Network, splitting: Splitting) -> dict[str, Any]:
    """A tree of splits: the edges that the explanation blamed, and every part, split parts before their halves."""

    def names(group: int) -> list[str]:
        return [network.operators[v].name for v in bits_of(group)]

    def edge(ends: tuple[int, int] | None) -> list[str] | None:
        return None if ends is None else [network.operators[v].name for v in ends]

    return {
        "rectified": splitting.rectified,
        "rectified_once": splitting.rectified_once,
        "candidates": [edge(ends) for ends in splitting.candidates],
        "parts": [
            {
                "depth": part.depth,
                "nodes": names(part.group),
                "split": part.step is not None,
                "edge": part.step and edge(part.step.edge),
            }
            for part in parts_of(network, splitting)
        ],
    }


def hardware_json(hardware: Hardware) -> dict[str, Any]:
    """An accelerator with the options of its schemes."""
    found = asdict(hardware)
    found["schemes"] = {name: dict(options) for name, options in hardware.schemes}
    return found


def hardware_from_json(found: Mapping[str, Any]) -> Hardware:
    """What `hardware_json` gave; `KeyError` or `TypeError` when it is something else."""
    schemes = tuple((name, tuple(sorted(options.items()))) for name, options in found["schemes"].items())
    return Hardware(**{**found, "schemes": schemes})


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan read from a file: how it was asked for, on which accelerator, and its groups by the names of their nodes."""

    setting: Setting
    hardware: Hardware
    groups: tuple[tuple[str, ...], ...]

    def masks(self, network: Network, where: str) -> tuple[int, ...]:
        """The groups as operators of `network`; `InvalidModel` when the plan is of another model."""
        number = {operator.name: v for v, operator in enumerate(network.operators)}
        for group in self.groups:
            for name in group:
                if name not in number:
                    raise InvalidModel(f"{where} names a node {name!r} that {self.setting.model} does not have")
        return tuple(mask_of(number[name] for name in group) for group in self.groups)


def read_plan(path: Path) -> SavedPlan:
    """A plan from its file. `UsageError` when it cannot be read, `InvalidModel` when it is no plan of this program."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidModel(f"{path} is not a plan: {error}") from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise InvalidModel(f"{path} is not a plan of this program: its schema is {schema!r}, not {SCHEMA!r}")
    try:
        names = {
            field.name: found[field.name]
            for field in fields(Setting)
            if field.default is MISSING or field.name in found
        }
        groups = tuple(tuple(map(str, group["nodes"])) for group in found["groups"])
        return SavedPlan(Setting(**names), hardware_from_json(found["hardware"]), groups)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidModel(f"{path} is not a whole plan: {error!r}") from None
