"""The exact search against brute force, an integer programme over all groups, and optima proven elsewhere."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import cheapest_cover
from tests.accel.pinned import NAMES, OPTIMA, pinned, pinned_graph, random_group

from fusewise.accel.bits import bits_of, is_connected, mask_of
from fusewise.accel.check import check
from fusewise.accel.estimate import objective_named
from fusewise.accel.hardware import hardware_named
from fusewise.accel.network import Network, network_of
from fusewise.accel.plan import plan_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import Scheme, bytes_for
from fusewise.accel.search.exact import compulsory_bound, exact_search
from fusewise.accel.search.exact_atoms import atoms_of, wake_of
from fusewise.accel.search.exact_orders import cut_order, drawn_order
from fusewise.accel.search.exact_path import Limit, LimitReached, Path, growth_of, shortest_path
from fusewise.accel.search.result import SearchBudget
from fusewise.errors import NoFeasiblePlan
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType

PUBLISHED = BRR(accounting="published")
SCHEMES: tuple[Scheme, ...] = (LBDF(), BRR(), PUBLISHED, LBDF("row"), LBDF(excluded_traffic=False, network_io=False))


def windows_of(graph: Graph, nodes: set[int]) -> Graph:
    """A part of a graph as a graph of its own: what it reads from outside are inputs, what others need are outputs."""
    kept = tuple(graph.nodes[v] for v in sorted(nodes))
    made = {value for node in kept for value in node.writes}
    read = dict.fromkeys(v for node in kept for v in node.reads if v not in made and v not in graph.constants)
    outputs = [v for v in made if v in graph.output_set or any(user not in nodes for user in graph.users[v])]
    return Graph(tuple(read), tuple(sorted(outputs)), kept, graph.types, graph.constants, graph.name).pruned()


def brute_force(costs: GroupCosts) -> float:
    """The least cost over all partitions of the fuseable operators into connected groups that fit and have an order."""
    problem = costs.problem
    network, best = problem.network, float("inf")
    neighbours = network.neighbours

    def split(rest: int, groups: list[int], cost: float) -> None:
        nonlocal best
        if not rest:
            if cost < best and problem.ordered(groups) is not None:
                best = cost
            return
        first, others = rest & -rest, rest & (rest - 1)
        subset = others
        while True:
            group = first | subset
            if is_connected(neighbours, group) and costs.fits(group):
                split(rest ^ group, [*groups, group], cost + costs.cost(group))
            if not subset:
                return
            subset = (subset - 1) & others

    split(problem.fuseable, [], 0.0)
    return best


def check_against_brute_force(network: Network, scheme: Scheme, share: float) -> None:
    whole = scheme.buffer_bytes(network, network.everything)
    needs = [scheme.buffer_bytes(network, 1 << v) for v in range(len(network))]
    top = max([need for need in (*needs, whole) if need < 1 << 60], default=1)
    problem = Problem(network, scheme, max(1, int(share * top)))
    if not problem.fuseable:
        return
    costs = GroupCosts(problem)
    found = exact_search(costs)
    assert found.optimal and found.lower_bound == found.cost == costs.total(found.groups)
    assert found.cost == brute_force(GroupCosts(problem))
    assert all(problem.is_group(group) and costs.fits(group) for group in found.groups)
    assert mask_of(v for group in found.groups for v in bits_of(group)) == problem.fuseable
    assert problem.ordered(found.groups) is not None


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Convolutions, activations, pools, joins and gates in any wiring, on two resolutions."""
    types = {"x": TensorType(FLOAT32, (1, 4, 12, 12))}
    constants: dict[str, Constant] = {}
    nodes: list[Node] = []
    by_shape: dict[tuple[int, ...], list[str]] = {(1, 4, 12, 12): ["x"]}
    for number in range(draw(st.integers(3, 9))):
        shape = draw(st.sampled_from(sorted(by_shape)))
        source = draw(st.sampled_from(by_shape[shape]))
        other = draw(st.sampled_from(by_shape[shape]))
        kind = draw(st.sampled_from(["conv", "wide", "down", "relu", "add", "add", "pool"]))
        out = f"t{number}"
        _, channels, height, width = shape
        if kind in ("conv", "wide", "down"):
            size = draw(st.sampled_from([1, 3, 5])) if kind != "down" else draw(st.sampled_from([1, 3]))
            stride = 2 if kind == "down" and height > 6 else 1
            filters = channels * (2 if kind == "wide" and channels < 16 else 1)
            weight = f"w{number}"
            constants[weight] = Constant(np.broadcast_to(np.float32(0), (filters, channels, size, size)))
            types[weight] = constants[weight].type
            pads = (size // 2,) * 4
            attributes = attributes_of(kernel_shape=(size, size), pads=pads, strides=(stride, stride))
            nodes.append(Node("Conv", (source, weight), (out,), attributes, name=f"n{number}"))
            shape = (1, filters, height // stride, width // stride)
        elif kind == "add" and other != source:
            nodes.append(Node("Add", (source, other), (out,), name=f"n{number}"))
        elif kind == "pool":
            attributes = attributes_of(kernel_shape=(3, 3), pads=(1,) * 4, strides=(1, 1))
            nodes.append(Node("MaxPool", (source,), (out,), attributes, name=f"n{number}"))
        else:
            nodes.append(Node("Relu", (source,), (out,), name=f"n{number}"))
        types[out] = TensorType(FLOAT32, shape)
        by_shape.setdefault(shape, []).append(out)
    made = [node.outputs[0] for node in nodes]
    used = {value for node in nodes for value in node.inputs}
    outputs = [value for value in made if value not in used] + draw(st.lists(st.sampled_from(made), max_size=1))
    return Graph(("x",), tuple(dict.fromkeys(outputs)), tuple(nodes), types, constants, "random")


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.1, 1.2))
def test_equals_brute_force_on_random_graphs(graph: Graph, scheme: Scheme, share: float) -> None:
    check_against_brute_force(network_of(graph), scheme, share)


@pytest.mark.parametrize(
    "name",
    ["squeezenet1_1", "resnet50", "efficientnet_b0", "inception_v3", "mobilenet_v2", "deeplabv3_mobilenet_v3_large"],
)
@pytest.mark.parametrize("scheme", SCHEMES[:2])
def test_equals_brute_force_on_windows(name: str, scheme: Scheme) -> None:
    graph, network, rng = pinned_graph(name), pinned(name), random.Random(name)
    seen = 0
    while seen < 3:
        group = random_group(network, rng, 9)
        if not 7 <= group.bit_count() <= 10:
            continue
        seen += 1
        check_against_brute_force(network_of(windows_of(graph, set(bits_of(group)))), scheme, rng.uniform(0.2, 1.1))


@pytest.mark.parametrize("name", NAMES)
def test_proves_the_known_optima(name: str) -> None:
    for i, kib in enumerate(OPTIMA["buffers_kib"]):
        problem = Problem(pinned(name), LBDF(waiting="ceiling"), kib << 10)
        found = exact_search(GroupCosts(problem))
        assert found.optimal and problem.excluded.bit_count() == OPTIMA["excluded_nodes"][name][i]
        assert abs(found.cost / 1024 - OPTIMA["optimum_kib"][name][i]) <= 0.051  # the table has one decimal


def test_proves_a_network_of_wide_blocks() -> None:
    costs = GroupCosts(Problem(pinned("inception_v3"), LBDF(), 256 << 10))
    found = exact_search(costs)
    assert found.optimal
    check(plan_of(costs, found.groups, hardware_named("edge-256k")), pinned_graph("inception_v3"))


@pytest.mark.parametrize("name, kib", [("mobilenet_v2", 256), ("squeezenet1_1", 128), ("resnet18", 512)])
@pytest.mark.parametrize("objective", ["dram", "energy", "latency"])
def test_plans_of_every_objective_pass_the_check(name: str, kib: int, objective: str) -> None:
    chip = hardware_named("edge-256k")
    for scheme in SCHEMES[:2]:
        costs = GroupCosts(Problem(pinned(name), scheme, kib << 10), objective_named(objective, chip))
        found = exact_search(costs)
        plan = plan_of(costs, found.groups, chip.with_buffer(kib << 10))
        check(plan, pinned_graph(name))
        assert found.optimal and found.cost == costs.total(found.groups)
        assert compulsory_bound(costs) <= found.cost * (1 + 1e-12)  # sums of floats


@pytest.mark.parametrize(
    "name, scheme, kib", [("mobilenet_v2", LBDF(), 256), ("squeezenet1_1", LBDF(), 128), ("resnet18", PUBLISHED, 128)]
)
def test_equals_an_integer_programme(name: str, scheme: Scheme, kib: int) -> None:
    """A binary variable for every group that fits; each operator is covered once. That the groups have an order is left out,
    which gives a bound; the groups chosen have one, so it is the optimum."""
    problem = Problem(pinned(name), scheme, kib << 10)
    costs = GroupCosts(problem)
    least, chosen = cheapest_cover(costs)
    assert problem.ordered(chosen) is not None
    assert exact_search(GroupCosts(problem)).cost == costs.total(chosen) == round(least)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from((*NAMES, "inception_v3")), st.sampled_from(SCHEMES), st.integers(0, 1 << 30))
def test_growth_is_exact_or_a_bound(name: str, scheme: Scheme, seed: int) -> None:
    rng = random.Random(seed)
    problem = Problem(pinned(name), scheme, 256 << 10)
    network, growth, needs = problem.network, growth_of(problem), [0]
    group = random_group(network, rng, 24, problem.fuseable)
    for v in bits_of(group):
        growth.push(v)
        needs.append(growth.need)
        if is_connected(network.neighbours, growth.group):
            moved = scheme.dram_bytes(network, growth.group, problem.capacity, problem.excluded)
            least = bytes_for(growth.traffic, scheme.bits)
            assert least == moved if growth.exact_traffic else least <= moved
            assert bytes_for(growth.need, scheme.bits) <= scheme.buffer_bytes(network, growth.group)
    assert needs == sorted(needs)
    for v in reversed(list(bits_of(group))):
        assert growth.need == needs.pop()
        growth.pop(v)
    assert growth.need == growth.traffic == growth.group == 0


WAKES = [(name, LBDF()) for name in ("inception_v3", "efficientnet_b0", "deeplabv3_mobilenet_v3_large")]
WAKES += [(name, BRR()) for name in ("resnet18", "squeezenet1_1", "mobilenet_v2", "efficientnet_b0")]


@pytest.mark.parametrize("name, scheme", WAKES, ids=[f"{name}-{scheme.name}" for name, scheme in WAKES])
def test_operators_in_the_wake_of_others_change_nothing_but_the_work(name: str, scheme: LBDF | BRR) -> None:
    problem = Problem(pinned(name), scheme, 512 << 10)
    wake, paths = wake_of(GroupCosts(problem)), []
    assert wake
    for atoms in (atoms_of(problem, wake), atoms_of(problem)):
        path = Path(atoms)
        shortest_path(GroupCosts(problem), Limit(), path)
        paths.append(path)
    assert paths[0].settled[paths[0].goal][0] == paths[1].settled[paths[1].goal][0]
    assert paths[0].transitions < paths[1].transitions


@pytest.mark.parametrize("name, scheme", WAKES, ids=[f"{name}-{scheme.name}" for name, scheme in WAKES])
def test_a_plan_known_before_saves_groups_and_changes_nothing(name: str, scheme: LBDF | BRR) -> None:
    problem = Problem(pinned(name), scheme, 256 << 10)
    atoms, paths = (
        atoms_of(problem, wake_of(GroupCosts(problem))),
        [Path(atoms_of(problem, wake_of(GroupCosts(problem))))],
    )
    shortest_path(GroupCosts(problem), Limit(), paths[0])
    least = paths[0].settled[paths[0].goal][0]
    for at_most in (least, 1.1 * least):
        path = Path(atoms)
        shortest_path(GroupCosts(problem), Limit(), path, at_most)
        assert path.settled[path.goal][0] == least
        paths.append(path)
    assert len(paths[1].settled) <= len(paths[2].settled) <= len(paths[0].settled)
    assert paths[1].transitions < paths[0].transitions


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["resnet18", "inception_v3", "squeezenet1_1", "efficientnet_b0"]), st.integers(0, 1 << 30))
def test_an_operator_costs_as_much_behind_the_group_that_it_runs_in_the_wake_of(name: str, seed: int) -> None:
    """Row tiles: moved from the group of its reader to that of what it reads."""
    costs, rng = GroupCosts(Problem(pinned(name), BRR(), 256 << 10)), random.Random(seed)
    group = random_group(pinned(name), rng, 12)
    for v, before in wake_of(costs).items():
        if group >> before & 1 and not group >> v & 1:
            assert costs.dram_bytes(group | 1 << v) <= costs.dram_bytes(group)
        if group >> v & 1 and not group >> before & 1 and group != 1 << v:
            assert costs.dram_bytes(group ^ 1 << v) <= costs.dram_bytes(group)


def test_a_path_that_does_not_get_on_is_given_up() -> None:
    limit = Limit()
    limit.begin()
    for _ in range(15_000):
        limit.step()
    limit.far = 0.1
    for _ in range(1000):
        limit.step()
    limit.begin()
    for _ in range(15_000):
        limit.step()
    with pytest.raises(LimitReached):
        limit.step(ask=True)


def test_bounds_of_groups_bound_the_plan_when_the_proof_is_given_up() -> None:
    network = network_of(windows_of(pinned_graph("mobilenet_v2"), set(range(30))))
    problem = Problem(network, BRR(), 128 << 10)
    costs = GroupCosts(problem)
    path = Path(atoms_of(problem, wake_of(costs)))
    shortest_path(costs, limit := Limit(), path)
    assert path.transitions < limit.taken, "no group was priced on the way back"
    found = exact_search(GroupCosts(problem), SearchBudget(plans=1), steps=path.transitions + 1)
    assert "bounds of its groups" in found.notes[0]
    assert found.lower_bound is not None
    assert compulsory_bound(costs) < found.lower_bound <= path.settled[path.goal][0] <= found.cost
    assert path.least == path.settled[path.goal][0]


def test_gives_up_with_a_plan_and_a_bound() -> None:
    problem = Problem(pinned("squeezenet1_1"), BRR(), 256 << 10)
    proven = exact_search(GroupCosts(problem))
    costs = GroupCosts(problem)
    found = exact_search(costs, SearchBudget(plans=40), steps=20)
    assert not found.optimal and found.lower_bound is not None and found.gap is not None
    assert found.lower_bound <= proven.cost <= found.cost <= costs.total(problem.singletons())
    assert found.history[-1][1] == found.cost and "bound" in found.notes[0]
    plan = plan_of(costs, found.groups, hardware_named("edge-256k"))
    check(plan, pinned_graph("squeezenet1_1"))


def test_what_follows_a_proof_that_was_given_up_is_the_same_every_time() -> None:
    problem = Problem(pinned("inception_v3"), LBDF(), 256 << 10)
    found, again = (exact_search(GroupCosts(problem), SearchBudget(plans=40), steps=100) for _ in range(2))
    assert (again.groups, again.history, again.lower_bound) == (found.groups, found.history, found.lower_bound)


@pytest.mark.parametrize("scheme", [LBDF(), BRR()], ids=["lbdf", "brr"])
def test_interrupted_search_gives_the_best_so_far(scheme: Scheme) -> None:
    costs = GroupCosts(Problem(pinned("inception_v3"), scheme, 256 << 10))
    told: list[float] = []

    def interrupt(evaluated: int, best: float) -> None:
        told.append(best)
        raise KeyboardInterrupt

    found = exact_search(costs, progress=interrupt)
    assert found.interrupted and not found.optimal and told == [found.cost]
    assert found.lower_bound is not None and found.lower_bound < found.cost
    assert found.cost < 0.7 * costs.total(costs.problem.singletons()), "what is shown is a plan worth having"
    check(plan_of(costs, found.groups, hardware_named("edge-256k")), pinned_graph("inception_v3"))


@pytest.mark.parametrize("rounds", [2, 5, 9])
def test_interrupted_while_it_looks_for_a_bound_it_keeps_what_it_has(rounds: int) -> None:
    costs = GroupCosts(Problem(pinned("inception_v3"), LBDF(), 256 << 10))
    calls: list[float] = []

    def interrupt(evaluated: int, best: float) -> None:
        calls.append(best)
        if len(calls) == rounds:
            raise KeyboardInterrupt

    found = exact_search(costs, progress=interrupt, steps=100)
    assert found.interrupted and found.cost <= min(calls) and found.cost == costs.total(found.groups)
    assert found.lower_bound is not None and compulsory_bound(costs) <= found.lower_bound <= found.cost
    check(plan_of(costs, found.groups, hardware_named("edge-256k")), pinned_graph("inception_v3"))


@pytest.mark.parametrize("name, kib", [("squeezenet1_1", 128), ("inception_v3", 512), ("resnet50", 256)])
def test_orders_cut_where_it_is_best_are_plans(name: str, kib: int) -> None:
    costs, rng = GroupCosts(Problem(pinned(name), LBDF(), kib << 10)), np.random.default_rng(0)
    best = exact_search(costs).cost
    for _ in range(3):
        order = drawn_order(costs.problem, rng)
        assert sorted(order) == list(range(len(costs.problem.network)))
        groups = cut_order(costs, order)
        assert groups is not None and best <= costs.total(groups) < costs.total(costs.problem.singletons())
        check(plan_of(costs, groups, hardware_named("edge-256k").with_buffer(kib << 10)), pinned_graph(name))


def test_says_when_nothing_fits() -> None:
    with pytest.raises(NoFeasiblePlan, match="smallest buffer"):
        exact_search(GroupCosts(Problem(pinned("vgg16"), LBDF(), 16)))
