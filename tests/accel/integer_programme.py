"""The cheapest cover of a network by groups, as an integer programme: the truth that the exact search is held against."""

from __future__ import annotations

from ortools.sat.python import cp_model

from fusewise.accel.bits import bits_of, union_over
from fusewise.accel.problem import GroupCosts


def cheapest_cover(costs: GroupCosts) -> tuple[float, list[int]]:
    """The least cost of groups that fit and cover each operator once, and those groups. That they have an order is left out, so
    it is a bound, and the optimum where they have one."""
    model, columns = cp_model.CpModel(), sorted(every_group(costs))
    use = [model.new_bool_var(str(group)) for group in columns]
    for v in bits_of(costs.problem.fuseable):
        model.add_exactly_one(use[k] for k, group in enumerate(columns) if group >> v & 1)
    model.minimize(sum(int(costs.cost(group)) * one for group, one in zip(columns, use, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value, [group for group, one in zip(columns, use, strict=True) if solver.value(one)]


def every_group(costs: GroupCosts) -> set[int]:
    """All connected, convex groups that fit, found by adding operators at any side; growth goes a little beyond what fits."""
    problem = costs.problem
    network, seen = problem.network, set()
    waiting = list(problem.singletons())
    while waiting:
        group = waiting.pop()
        if group in seen or (costs.buffer_bytes(group) >= 1.05 * problem.capacity and group & (group - 1)):
            continue
        seen.add(group)
        for v in bits_of(union_over(network.neighbours, group) & problem.fuseable & ~group):
            larger = group | 1 << v
            larger |= union_over(network.descendants, larger) & union_over(network.ancestors, larger)
            if not larger & problem.excluded:
                waiting.append(larger)
    return {group for group in seen if problem.is_group(group) and costs.fits(group)}
