"""What to say when nothing, or not everything, can be planned: who needs how much, and which buffer would do."""

from __future__ import annotations

from typing import NamedTuple

from fusewise.accel.network import Network
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.scheme import UNBOUNDED, Scheme
from fusewise.errors import NoFeasiblePlan
from fusewise.words import size_text

__all__ = ["Need", "needs", "require_feasible", "smallest_buffer"]


class Need(NamedTuple):
    """The buffer that one operator needs alone, in bytes."""

    operator: int
    name: str
    buffer_bytes: int


def needs(network: Network, scheme: Scheme) -> tuple[Need, ...]:
    """What each operator needs alone, the most hungry first; those without a streaming form are left out."""
    found = [Need(v, op.name, scheme.buffer_bytes(network, 1 << v)) for v, op in enumerate(network.operators)]
    return tuple(sorted((n for n in found if n.buffer_bytes < UNBOUNDED), key=lambda n: (-n.buffer_bytes, n.operator)))


def smallest_buffer(network: Network, scheme: Scheme, *, whole: bool = False) -> int | None:
    """The smallest buffer with which some operator can be planned, or with `whole` every one that has a streaming form.

    Bytes; None when no operator has such a form. The capacity test is strict, hence one byte more than the need.
    """
    found = needs(network, scheme)
    if not found:
        return None
    return (found[0] if whole else found[-1]).buffer_bytes + 1


def require_feasible(problem: Problem) -> None:
    """`NoFeasiblePlan` when there is no operator to plan: it says who needs how much and which buffer would do."""
    if problem.fuseable:
        return
    network, scheme = problem.network, problem.scheme
    found = needs(network, scheme)
    if not found:
        reasons = sorted({op.form.reason for op in network.operators})[:3]
        raise NoFeasiblePlan(f"no operator of {network.name!r} can be fused: {'; '.join(reasons) or 'it has none'}.")
    least, most = found[-1], found[0]
    raise NoFeasiblePlan(
        f"no operator of {network.name!r} fits a buffer of {problem.capacity} bytes ({size_text(problem.capacity)}):"
        f" the most modest, {least.name!r}, needs {least.buffer_bytes} bytes. The smallest buffer that would do is"
        f" {least.buffer_bytes + 1} bytes; {most.name!r} needs the most, {most.buffer_bytes} bytes."
    )
