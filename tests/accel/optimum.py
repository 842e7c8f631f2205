"""The least cost over all plans, by brute shortest path over sets closed under predecessors: small, slow, for tests only."""

from __future__ import annotations

from collections import defaultdict

from fusewise.accel.bits import bits_of, is_connected
from fusewise.accel.problem import GroupCosts


def optimum(costs: GroupCosts) -> int:
    """Sum of F_D of the best plan; any group-additive objective works alike."""
    network, excluded = costs.problem.network, costs.problem.excluded
    before, after = network.predecessors, network.successors

    def closed(done: int) -> int:
        """Excluded operators run as soon as they can."""
        while found := [v for v in bits_of(excluded & ~done) if not before[v] & ~done]:
            done |= sum(1 << v for v in found)
        return done

    best = {closed(0): 0}
    levels: dict[int, set[int]] = defaultdict(set)
    levels[closed(0).bit_count()].add(closed(0))
    for size in range(len(network) + 1):
        for done in sorted(levels[size]):
            first = [v for v in bits_of(~done & network.everything & ~excluded) if not before[v] & ~done]
            seen, waiting = set(), [(0, frozenset(first))]
            while waiting:
                group, ready = waiting.pop()
                for node in ready:
                    larger = group | 1 << node
                    if larger in seen:
                        continue
                    seen.add(larger)
                    if not costs.fits(larger):
                        continue
                    state = done | larger
                    opened = {v for v in bits_of(after[node] & ~excluded) if not before[v] & ~state}
                    waiting.append((larger, (ready - {node}) | opened))
                    if is_connected(network.neighbours, larger):
                        target, total = closed(state), best[done] + int(costs.cost(larger))
                        if total < best.get(target, total + 1):
                            best[target] = total
                            levels[target.bit_count()].add(target)
    return best[network.everything]
