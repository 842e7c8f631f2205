"""On a machine with a GPU: nothing is compiled; kernels are checked step by step, replays compared, runs timed, and peers in turn.

Results are written after each part of each case, so a run that is cut leaves what it has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from benchmarks.gpu.carried import cubins_in, expected_in, fingerprint, kernel_key
from benchmarks.gpu.cases import Case, planned
from benchmarks.gpu.peers import PEERS, Contestant, PeerMissing
from benchmarks.gpu.prepare import ABOUT
from benchmarks.gpu.steps import differences

from fusewise.benchmarking.inputs import random_feeds
from fusewise.codegen.gpu.device import device_named
from fusewise.errors import FusewiseError, InvalidData, UsageError
from fusewise.files import write_text
from fusewise.ir.graph import Graph
from fusewise.runtime.gpu.driver import Driver
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.timing import launch_times, replay_times

__all__ = ["QUICK", "TOLERANCES", "Effort", "Measurement", "measured", "spread"]

TOLERANCES: Mapping[str, float] = {"exact": 1e-4, "float32": 1e-4, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 1e-1}
"""How far an element may be from the CPU's, over the largest magnitude of its array, at the end of a network of dozens of products.
TF32 and float16 round to 11 bits, bfloat16 to 8; each product adds to it."""

_COMPARING_S = 4.0
"""Seconds for a case, in which as many of its runs are compared as can be."""
_LAST_SHARE = 0.5
"""Of the time, when the part without peers has to be over."""


@dataclass(frozen=True)
class Effort:
    """How often: runs whose answers are compared, replays that are timed, runs in a round, rounds with a peer, launches of a step
    in a row, and rounds of these."""

    replays: int = 1000
    timed: int = 100
    runs: int = 20
    rounds: int = 7
    repeats: int = 20
    step_rounds: int = 5


QUICK = Effort(3, 2, 2, 2, 2, 1)
"""To see whether it works."""


@dataclass
class Measurement:
    """Everything that is found, where it is written to, how often things are done, and in how many `seconds`."""

    path: Path
    seconds: float
    effort: Effort = field(default_factory=Effort)
    clock: Callable[[], float] = time.monotonic
    found: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin = self.clock()

    @property
    def left(self) -> float:
        """Seconds until it has to be over."""
        return self._begin + self.seconds - self.clock()

    def keep(self) -> None:
        """Write what there is."""
        write_text(self.path, json.dumps(self.found, indent=1) + "\n")


@dataclass(frozen=True)
class _Open:
    """A case on the device."""

    case: Case
    graph: Graph
    feeds: Mapping[str, Any]
    model: GpuExecutable


@dataclass(frozen=True)
class _Place:
    """The device, what is open there, and the graphs that were made, as making one takes longer than planning it."""

    driver: Driver
    held: ExitStack
    graphs: dict[tuple[str, int], Graph]


def measured(
    folder: Path,
    driver: Driver,
    measurement: Measurement,
    peers: Sequence[str] = (),
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """All that is asked of the cases in `folder`, on a device. Cases come in the order in which they were prepared: first each by
    itself, in half of the time, then each in turn with the peers. Raises `UsageError` for a folder that is not `prepare`'s."""
    about = _about(folder)
    found = measurement.found
    found |= {"device": driver.name, "architecture": driver.architecture, "prepared": about, "cases": {}}
    with ExitStack() as held:
        opened: list[_Open] = []
        graphs: dict[tuple[str, int], Graph] = {}
        for row in about["cases"]:
            result: dict[str, Any] = {"prepared": row}
            found["cases"][row["case"]] = result
            if "refused" in row:
                continue
            if measurement.left < _LAST_SHARE * measurement.seconds:
                result["left_out"] = "there was no time left"
                continue
            try:
                one = _opened(folder, row, about, _Place(driver, held, graphs), result)
                opened.append(one)
                _alone(folder, one, result, measurement.effort)
            except FusewiseError as error:
                result["fault"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            measurement.keep()
            tell(f"{row['case']}: {_summary(result)}")
        _against(peers, opened, measurement, tell)
    measurement.keep()
    return found


def _about(folder: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} was not made by `python -m benchmarks.gpu prepare`: {error}") from None
    return about


def _opened(
    folder: Path,
    row: Mapping[str, Any],
    about: Mapping[str, Any],
    place: _Place,
    result: dict[str, Any],
) -> _Open:
    """Plan a case as it was planned before, and bring it to the device with the code that was carried."""
    model, batch, precision = row["case"].rsplit("-", 2)
    case = Case(model, int(batch), precision)
    begin = time.monotonic()
    known = (case.model, case.batch)
    if known not in place.graphs:
        place.graphs[known] = case.graph
    graph = place.graphs[known]
    program = planned(graph, device_named(about["device"]), precision).program
    if fingerprint(program) != row["weights"]:
        raise InvalidData(
            f"the weights are others here (NumPy {np.__version__}) than where it was prepared (NumPy {about['numpy']})"
        )
    cubins = cubins_in(folder, [kernel_key(kernel, precision == "exact") for kernel in program.kernels])
    executable = place.held.enter_context(GpuExecutable(program, place.driver, cubins))
    result["open_s"] = round(time.monotonic() - begin, 2)
    figures = executable.figures
    result |= {"constant_bytes": figures.constant_bytes, "arena_bytes": figures.arena_bytes, "graphs": figures.graphs}
    return _Open(case, graph, random_feeds(graph), executable)


# --- by itself ------------------------------------------------------------------------------------------------------------


def _alone(folder: Path, one: _Open, result: dict[str, Any], effort: Effort) -> None:
    """Every step against what is expected, replays against each other, times of runs and of steps."""
    model = one.model
    first = model.run(None, one.feeds)
    result["check"] = _checked(folder, one)
    result["replays"] = _replayed(model, one.feeds, first, effort.replays)
    result["replay_us"] = spread(replay_times(model, effort.timed))
    result["run_ms"] = spread(_calls(lambda: model.run(None, one.feeds), effort.runs))
    rows = launch_times(model, effort.repeats, effort.step_rounds)
    result["profile"] = [{"step": r.step, "label": r.label, "way": r.way, "us": round(r.us, 3)} for r in rows]


def _checked(folder: Path, one: _Open) -> dict[str, Any]:
    expected = expected_in(folder, one.case.name)
    found = differences(one.model, expected)
    tolerance = TOLERANCES[one.case.precision]
    wrong = [{"step": d.step, "label": d.label, "error": d.error} for d in found if not d.error <= tolerance]
    return {
        "steps": len(one.model.launches),
        "checked": len({d.step for d in found}),
        "tolerance": tolerance,
        "largest": max((d.error for d in found), default=0.0),
        "wrong": wrong,
    }


def _replayed(model: GpuExecutable, feeds: Mapping[str, Any], first: Sequence[Any], count: int) -> dict[str, Any]:
    """Run so often, and compare answers' bytes with those of the first run: of every run, or of as many as there is time for."""
    begin = time.perf_counter()
    compared, differ, every = 0, 0, 1
    for number in range(count):
        if number % every:
            model.replay()
            continue
        if model.figures.host_steps:  # whose results lie nowhere else
            found = model.run(None, feeds)
        else:
            found = [one.numpy() for one in model.run_on_device(None, feeds)]
        differ += not all(_same(a, b) for a, b in zip(found, first, strict=True))
        compared += 1
        every = max(every, round((time.perf_counter() - begin) / compared * count / _COMPARING_S))
    model.driver.synchronise()
    return {"count": count, "compared": compared, "differ": differ}


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(_bytes(a), _bytes(b))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _calls(call: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each call."""
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e3)
    return found


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, a tenth from below and from above, and the least, to four digits."""
    low, middle, high = np.percentile(samples, (10, 50, 90))
    figures = {"median": middle, "p10": low, "p90": high, "least": min(samples)}
    return {name: float(f"{figure:.4g}") for name, figure in figures.items()} | {"runs": len(samples)}


def _summary(result: Mapping[str, Any]) -> str:
    if "fault" in result:
        return str(result["fault"])
    check, replays = result["check"], result["replays"]
    return (
        f"{check['checked']} of {check['steps']} steps checked, largest error {check['largest']:.1e}, "
        f"{len(check['wrong'])} wrong; {replays['differ']} of {replays['compared']} compared runs differ; "
        f"{result['replay_us']['median']:.1f} us"
    )


# --- against others -------------------------------------------------------------------------------------------------------


def _against(
    names: Sequence[str], opened: Sequence[_Open], measurement: Measurement, tell: Callable[[str], None]
) -> None:
    """Each case in turn with those peers that open it; the cheap ones to open first for all cases, then the others."""
    results = measurement.found["cases"]
    for name in names:
        for one in opened:
            result = results[one.case.name].setdefault("peers", {})
            result[name] = _raced(name, one, measurement)
            measurement.keep()
            tell(f"{one.case.name} against {name}: {json.dumps(result[name])}")
    measurement.found["ratio"] = {
        precision: _mean_ratio(results, precision) for precision in sorted({one.case.precision for one in opened})
    }


def _raced(name: str, one: _Open, measurement: Measurement) -> dict[str, Any]:
    if measurement.left <= PEERS[name].seconds:
        return {"left_out": "there was no time left"}
    begin = time.monotonic()
    try:
        contestant: Contestant = PEERS[name].open(one.case, one.graph, one.feeds)
        opened_s = round(time.monotonic() - begin, 1)
        contestant.run()
        ours, theirs = list[float](), list[float]()
        for number in range(measurement.effort.rounds):
            turns = [(ours, lambda: _replay(one.model)), (theirs, contestant.run)]
            for samples, call in turns if number % 2 else turns[::-1]:
                call()
                samples += _calls(call, measurement.effort.runs)
        contestant.close()
    except PeerMissing as error:
        return {"missing": str(error)}
    except Exception as error:  # of another program, whose errors have no common type
        return {"fault": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    mine, other = spread(ours), spread(theirs)
    return {"open_s": opened_s, "ours_ms": mine, "theirs_ms": other, "ratio": other["median"] / mine["median"]}


def _replay(model: GpuExecutable) -> None:
    model.replay()
    model.driver.synchronise()


def _mean_ratio(results: Mapping[str, Any], precision: str) -> float | None:
    """The better peer's time over ours, the geometric mean over the cases of batch 1 that have one; None without."""
    ratios = []
    for name, result in results.items():
        _, batch, kind = name.rsplit("-", 2)
        against = [peer["ratio"] for peer in result.get("peers", {}).values() if "ratio" in peer]
        if (batch, kind) == ("1", precision) and against:
            ratios.append(min(against))
    return geometric_mean(ratios) if ratios else None
