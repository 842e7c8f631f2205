"""NasRNN: the recurrent cell found by architecture search, unrolled, as TASO's benchmark writes it.

B. Zoph and Q. Le, "Neural Architecture Search with Reinforcement Learning", ICLR 2017; Z. Jia et al., "TASO", SOSP 2019.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.layers import add, mul
from fusewise.zoo.net import Net, finish, weight

__all__ = ["nasrnn"]

_HIDDEN, _STEPS = 512, 10


def nasrnn(net: Net, batch: int, *, steps: int = _STEPS) -> Graph:
    """Inputs `x_0`, `x_1`, ... [batch, 512], one a step, and the first `state`; gives the last state."""
    inputs = [net.builder.input(f"x_{step}", (batch, _HIDDEN)) for step in range(steps)]
    state = net.builder.input("state", (batch, _HIDDEN))
    for x in inputs:
        state = _cell(net, x, state)
    return finish(net, last_state=state)


def _product(net: Net, x: str, name: str) -> str:
    return net.op("MatMul", x, weight(net, f"{name}.weight", (_HIDDEN, _HIDDEN), (1 / _HIDDEN) ** 0.5), name=name)


def _cell(net: Net, x: str, state: str) -> str:
    """Eight gates, each of input and state, joined in a fixed tree of sums and products. Every step shares weights."""
    gates = [add(net, _product(net, x, f"input.{k}"), _product(net, state, f"state.{k}")) for k in range(8)]

    def of(kind: str, value: str) -> str:
        return activate(net, value, kind)

    first = add(net, of("relu", gates[0]), of("sigmoid", gates[3]))
    second = add(net, of("sigmoid", gates[1]), of("tanh", gates[2]))
    third = mul(net, of("sigmoid", gates[4]), of("tanh", gates[5]))
    fourth = mul(net, of("sigmoid", gates[6]), of("relu", gates[7]))
    left = mul(net, of("tanh", first), of("tanh", fourth))
    right = add(net, of("sigmoid", second), of("tanh", third))
    return of("tanh", mul(net, of("tanh", right), of("tanh", left)))
