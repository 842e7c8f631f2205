"""Problems, plans, the independent check, and what is said when nothing fits."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pytest
from tests.accel.pinned import pinned, pinned_graph, random_group

from fusewise.accel.bits import bits_of, mask_of
from fusewise.accel.check import RULES, check, violations
from fusewise.accel.feasible import needs, require_feasible, smallest_buffer
from fusewise.accel.hardware import hardware_named
from fusewise.accel.network import network_of, prepare
from fusewise.accel.plan import LayerFusionPlan, partition_of, plan_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import Scheme
from fusewise.errors import BrokenPlan, NoFeasiblePlan
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.ir.partition import Group, Partition
from fusewise.ir.types import TensorType

CHIP = hardware_named("edge-256k")


def problem_of(name: str, scheme: Scheme | None = None, kib: int = 256) -> Problem:
    return Problem(pinned(name), scheme or LBDF(), kib << 10)


def random_plan(costs: GroupCosts, seed: int) -> list[int]:
    """Random connected, convex groups that fit, put in one after another where the quotient stays acyclic."""
    problem, rng = costs.problem, random.Random(seed)
    plan = list(problem.singletons())
    for _ in range(60):
        group = random_group(problem.network, rng, 8, problem.fuseable)
        changed = [part for part in plan if not part & group] + [group]
        changed += [1 << v for part in plan if part & group for v in bits_of(part & ~group)]
        if costs.fits(group) and problem.ordered(changed) is not None:
            plan = changed
    return plan


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "efficientnet_b0"])
@pytest.mark.parametrize("scheme", [LBDF(), BRR(), LBDF("row", 8)])
def test_random_plans_pass_the_check(name: str, scheme: Scheme) -> None:
    costs = GroupCosts(problem_of(name, scheme))
    for seed in range(3):
        groups = random_plan(costs, seed)
        plan = plan_of(costs, groups, CHIP)
        graph = pinned_graph(name)
        check(plan, graph)
        partition = partition_of(plan, graph)
        assert {group.nodes for group in partition.groups} >= {group.operators for group in plan.groups}
        assert plan.dram_bytes == costs.total(groups)
        assert plan.dram_bytes_full == plan.dram_bytes + costs.problem.excluded_bytes
        assert max(map(costs.buffer_bytes, groups)) == plan.max_buffer_bytes
        assert plan.latency_ms > 0 and plan.energy_mj > 0


def sample() -> tuple[LayerFusionPlan, Graph]:
    costs = GroupCosts(problem_of("resnet18"))
    return plan_of(costs, costs.problem.singletons(), CHIP), pinned_graph("resnet18")


def broken(plan: LayerFusionPlan, graph: Graph) -> set[str]:
    found = violations(plan, graph)
    with pytest.raises(BrokenPlan, match=found[0].rule):
        check(plan, graph)
    assert {v.rule for v in found} <= set(RULES)
    return {v.rule for v in found}


def test_check_finds_missing_and_doubled_nodes() -> None:
    plan, graph = sample()
    assert broken(replace(plan, groups=plan.groups[1:]), graph) == {"cover"}
    assert broken(replace(plan, groups=(*plan.groups, plan.groups[0])), graph) == {"cover"}
    beyond = replace(plan.groups[0], operators=(999,))
    assert broken(replace(plan, groups=(*plan.groups, beyond)), graph) == {"cover"}


def merged(plan: LayerFusionPlan, *nodes: int) -> LayerFusionPlan:
    """The plan with one more group that takes these nodes from the others, figures as the scheme has them."""
    mask = mask_of(nodes)
    group = replace(
        plan.groups[0],
        operators=nodes,
        buffer_bytes=plan.scheme.buffer_bytes(plan.network, mask),
        dram_bytes=plan.scheme.dram_bytes(
            plan.network, mask, plan.capacity, mask_of(e.operator for e in plan.excluded)
        ),
    )
    rest = tuple(g for g in plan.groups if not set(g.operators) & set(nodes))
    place = sum(min(g.operators) < min(nodes) for g in rest)
    return replace(plan, groups=(*rest[:place], group, *rest[place:]))


def test_check_finds_groups_that_fall_apart() -> None:
    plan, graph = sample()
    assert "connected" in broken(merged(plan, 0, 10), graph)


def test_check_finds_cycles() -> None:
    plan, graph = sample()
    # The pool feeds both the block's first Conv and its Add: taking the two without what lies between closes a circle.
    assert "acyclic" in broken(merged(plan, 2, 6), graph)


def test_check_finds_a_wrong_order() -> None:
    plan, graph = sample()
    assert broken(replace(plan, groups=plan.groups[::-1]), graph) == {"acyclic"}


def test_check_finds_groups_that_are_too_large() -> None:
    plan, graph = sample()
    whole = merged(plan, *range(3, 13))
    assert plan.network.is_convex(mask_of(range(3, 13)))
    assert broken(whole, graph) == {"capacity"}


def test_capacity_is_strict() -> None:
    plan, graph = sample()
    block = merged(plan, *range(3, 8))
    need = plan.scheme.buffer_bytes(plan.network, mask_of(range(3, 8)))
    for spare, rules in ((0, True), (1, False)):
        costs = GroupCosts(Problem(plan.network, plan.scheme, need + spare))
        assert costs.fits(mask_of(range(3, 8))) is not rules
        cut = replace(block, hardware=CHIP.with_buffer(need + spare))
        assert ("capacity" in {v.rule for v in violations(cut, graph)}) is rules


def test_check_finds_false_figures_and_needless_exclusion() -> None:
    plan, graph = sample()
    cheap = replace(plan.groups[0], dram_bytes=1)
    assert broken(replace(plan, groups=(cheap, *plan.groups[1:])), graph) == {"figures"}
    costs = GroupCosts(problem_of("resnet18", kib=128))
    small = plan_of(costs, costs.problem.singletons(), CHIP)
    assert "excluded" in broken(replace(small, hardware=CHIP), graph)


def test_cycles_of_convex_groups_have_no_order() -> None:
    """a -> c and b -> d fused crosswise: {a, d} and {b, c} are convex alone and wait for each other."""
    kind = TensorType(FLOAT32, (1, 4, 8, 8))
    nodes = (
        Node("Relu", ("x",), ("a",)),
        Node("Relu", ("x",), ("b",)),
        Node("Add", ("b", "a"), ("c",)),
        Node("Mul", ("a", "b"), ("d",)),
    )
    graph = Graph(("x",), ("c", "d"), nodes, dict.fromkeys("xabcd", kind))
    problem = Problem(network_of(graph), LBDF(), 1 << 16)
    crosswise = [0b1001, 0b0110]
    assert all(problem.is_group(group) for group in crosswise)
    assert problem.ordered(crosswise) is None
    with pytest.raises(ValueError, match="cycle"):
        plan_of(GroupCosts(problem), crosswise, CHIP)


@pytest.mark.parametrize("seed", range(40))
def test_an_order_is_found_exactly_when_there_is_one(seed: int) -> None:
    """Neighbours thrown together at random: with one edge in twenty hardly ever a cycle, with half of them nearly always."""
    problem, rng = problem_of("squeezenet1_1", BRR()), random.Random(seed)
    parts = {v: 1 << v for v in range(len(problem.network))}
    for a, b in problem.network.edges:
        if rng.random() < (0.05, 0.2, 0.5)[seed % 3]:
            joined = parts[a] | parts[b]
            parts.update(dict.fromkeys(bits_of(joined), joined))
    groups = sorted(set(parts.values()))
    order = problem.ordered(groups)
    listed = [Group(tuple(bits_of(part))) for part in groups]
    if order is None:
        with pytest.raises(ValueError, match="cycle"):
            Partition.ordered(pinned_graph("squeezenet1_1"), listed)
    else:
        Partition(pinned_graph("squeezenet1_1"), tuple(Group(tuple(bits_of(part))) for part in order))


def test_costs_are_computed_once() -> None:
    costs = GroupCosts(problem_of("resnet18"))
    group = 0b11000
    for _ in range(3):
        costs.fits(group)
        costs.cost(group)
    assert (costs.buffer_calls, len(costs.buffer_known), costs.dram_calls, len(costs.dram_known)) == (3, 1, 3, 1)
    assert costs.buffer_known == {group: 88_704}


def test_runs_are_cut_at_excluded_operators() -> None:
    problem = problem_of("mobilenet_v2", kib=128)
    runs = problem.runs()
    assert sum(runs) == problem.fuseable and len(runs) > 1
    assert problem.excluded.bit_count() == 9
    assert all("bytes of buffer" in problem.exclusion(v) for v in bits_of(problem.excluded))


def test_plans_travel() -> None:
    plan, _ = sample()
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_needs() -> None:
    network, scheme = pinned("resnet18"), LBDF()
    found = needs(network, scheme)
    assert [n.buffer_bytes for n in found] == sorted((n.buffer_bytes for n in found), reverse=True)
    least = smallest_buffer(network, scheme)
    assert least is not None
    assert Problem(network, scheme, least).fuseable and not Problem(network, scheme, least - 1).fuseable
    most = smallest_buffer(network, scheme, whole=True)
    assert most is not None
    assert not Problem(network, scheme, most).excluded and Problem(network, scheme, most - 1).excluded


def test_nothing_fits() -> None:
    network, scheme = pinned("resnet18"), LBDF()
    least = smallest_buffer(network, scheme)
    assert least is not None
    require_feasible(Problem(network, scheme, least))
    with pytest.raises(NoFeasiblePlan, match=rf"buffer of {least - 1} bytes.* needs {least - 1} bytes.* {least} bytes"):
        require_feasible(Problem(network, scheme, least - 1))


def test_nothing_can_be_fused() -> None:
    kind, turned = TensorType(FLOAT32, (1, 4, 8, 9)), TensorType(FLOAT32, (1, 8, 9, 4))
    turn = Node("Transpose", ("x",), ("y",), (("perm", (0, 2, 3, 1)),))
    network = network_of(prepare(Graph(("x",), ("y",), (turn,), {"x": kind, "y": turned}, name="turn")))
    with pytest.raises(NoFeasiblePlan, match="no operator of 'turn' can be fused: Transpose has no streaming form"):
        require_feasible(Problem(network, LBDF(), 1 << 20))
    assert smallest_buffer(network, LBDF()) is None
    plan = plan_of(GroupCosts(Problem(network, BRR(), 1 << 20)), [], CHIP)
    assert plan.dram_bytes == 0 and plan.dram_bytes_full == 2 * 2 * 4 * 72 and plan.excluded[0].buffer_bytes is None
