"""What a fusion scheme is: how many bytes of buffer a group needs, and how many bytes it moves to and from DRAM.

A scheme is a frozen record of its options. Its functions are pure: they take the network and a group (operators as bits) and keep
nothing; `accel.problem.GroupCosts` remembers results.
"""

from __future__ import annotations

from typing import Protocol

from fusewise.accel.network import Network

__all__ = ["UNBOUNDED", "Scheme", "bytes_for", "operator_traffic", "traffic", "weights_of"]

UNBOUNDED = 1 << 62
"""The buffer need, or the cost, of a group that the scheme cannot run at any size (`Scheme.refusal` says why)."""


class Scheme(Protocol):
    """LBDF, BRR: options as fields, and these functions. Sizes are in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def bits(self) -> int:
        """Width of an element: activations, weights and biases."""
        ...

    @property
    def singles_always_fit(self) -> bool:
        """May an operator alone run whatever it needs (it is then tiled further), so that none is excluded for its size?"""
        ...

    def refusal(self, network: Network, group: int) -> str | None:
        """Why the group cannot run at any buffer size, or None."""
        ...

    def buffer_bytes(self, network: Network, group: int) -> int:
        """F_beta: the buffer that the group needs; `UNBOUNDED` when it is refused."""
        ...

    def dram_bytes(self, network: Network, group: int, capacity: int, excluded: int) -> int:
        """F_D: what the group moves through DRAM with a buffer of `capacity`; `excluded` operators run through DRAM."""
        ...

    def fuseable(self, network: Network, node: int, capacity: int) -> bool:
        """Can the operator take part in groups at all?"""
        ...


def bytes_for(elements: int, bits: int) -> int:
    """Bytes of so many elements, packed."""
    return (elements * bits + 7) // 8


def weights_of(network: Network, group: int) -> int:
    """Elements of all weights and biases of the group."""
    operators, found = network.operators, 0
    while group:
        low = group & -group
        found += operators[low.bit_length() - 1].form.weights
        group ^= low
    return found


def traffic(
    network: Network, group: int, excluded: int, *, network_io: bool = True, excluded_traffic: bool = True
) -> tuple[int, int]:
    """Elements of activations that the group reads from and writes to DRAM, each tensor once.

    `network_io`: count the network's own inputs and outputs. `excluded_traffic`: count tensors that only an excluded operator
    stands on the other side of.
    """
    tensors, operators = network.tensors, network.operators
    others = ~group if excluded_traffic else ~group & ~excluded
    read: set[int] = set()
    written, rest = 0, group
    while rest:
        low = rest & -rest
        rest ^= low
        operator = operators[low.bit_length() - 1]
        read.update([entry.tensor for entry in operator.reads])
        for number in operator.writes:
            tensor = tensors[number]
            if tensor.consumers & others or (tensor.is_output and network_io):
                written += tensor.elements
    loaded = 0
    for number in read:
        tensor = tensors[number]
        if tensor.producer < 0:
            loaded += tensor.elements if network_io else 0
        elif not group >> tensor.producer & 1 and (excluded_traffic or not excluded >> tensor.producer & 1):
            loaded += tensor.elements
    return loaded, written


def operator_traffic(network: Network, node: int, bits: int) -> int:
    """I + O + W of one operator in bytes: what it moves when it runs alone, everything once."""
    operator = network.operators[node]
    moved = sum(network.tensors[entry.tensor].elements for entry in operator.reads)
    moved += sum(network.tensors[number].elements for number in operator.writes)
    return bytes_for(moved + operator.form.weights, bits)
