"""A page from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["page"]

_SLOWEST = 5
_HOW = (
    "Replays are by the device's clock, on inputs that lie there; runs copy inputs and outputs; peers are measured in turn with "
    "replays, on inputs that lie on the device, too. Medians, with the tenth from below and above in brackets."
)


def page(found: Mapping[str, Any]) -> str:
    """Markdown: a row for each case, what was wrong, and the steps that took longest."""
    prepared = found["prepared"]
    lines = [
        f"# {found['device']}",
        "",
        f"Architecture {found['architecture']}, kernels compiled for {prepared['device']} by Triton {prepared['triton']}.",
        _HOW,
        "",
        "| case | launches | host steps | steps checked | largest error | runs that differ | replay us | run ms | against |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    cases: Mapping[str, Mapping[str, Any]] = found["cases"]
    lines += [_row(name, result) for name, result in cases.items()]
    means = {precision: ratio for precision, ratio in found.get("ratio", {}).items() if ratio is not None}
    for precision, ratio in means.items():
        lines += ["", f"At batch 1 in {precision}: {ratio:.2f} times the better peer, geometric mean."]
    for name, result in cases.items():
        lines += _below(name, result)
    return "\n".join(lines) + "\n"


def _row(name: str, result: Mapping[str, Any]) -> str:
    prepared = result["prepared"]
    for key in ("refused", "fault", "left_out"):
        why = prepared.get(key) or result.get(key)
        if why:
            return f"| {name} | {key.replace('_', ' ')}: {why} |" + " |" * 7
    check, replays = result["check"], result["replays"]
    cells = [
        name,
        str(prepared["launches"]),
        str(prepared["host_steps"]),
        f"{check['checked']} of {check['steps']}",
        f"{check['largest']:.1e}" + (f", {len(check['wrong'])} wrong" if check["wrong"] else ""),
        f"{replays['differ']} of {replays['compared']}",
        _figure(result["replay_us"]),
        _figure(result["run_ms"]),
        "; ".join(_peer(peer, one) for peer, one in result.get("peers", {}).items()) or "nobody",
    ]
    return "| " + " | ".join(cells) + " |"


def _figure(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.4g} [{spread['p10']:.4g}, {spread['p90']:.4g}]"


def _peer(name: str, one: Mapping[str, Any]) -> str:
    if "ratio" in one:
        return f"{name} {_figure(one['theirs_ms'])} ms, ours {_figure(one['ours_ms'])} ms: {one['ratio']:.2f}"
    key = next(iter(one))
    return f"{name} {key.replace('_', ' ')}: {one[key]}"


def _below(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    wrong: Sequence[Mapping[str, Any]] = result.get("check", {}).get("wrong", ())
    if wrong:
        told = "; ".join(f"step {one['step']} ({one['label']}) {one['error']:.1e}" for one in wrong)
        yield from ("", f"Wrong in {name}: {told}.")
    profile: Sequence[Mapping[str, Any]] = result.get("profile", ())
    if profile:
        total = sum(one["us"] for one in profile)
        slowest = sorted(profile, key=lambda one: -one["us"])[:_SLOWEST]
        told = "; ".join(f"{one['label']} ({one['way']}) {one['us']:.1f}" for one in slowest)
        yield from ("", f"{name}: {len(profile)} launches take {total:.1f} us one by one, the longest {told}.")
