"""The pinned graphs in `data/`: networks as one exporter wrote them, without weights, and the optima proven on them."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import numpy as np

from fusewise.accel.bits import bits_of, union_over
from fusewise.accel.network import Network, network_of
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType

DATA = Path(__file__).parent / "data"
OPTIMA = json.loads((DATA / "optima.json").read_text())
NAMES = tuple(OPTIMA["optimum_kib"])


@cache
def pinned_graph(name: str) -> Graph:
    """One network; weights are zeros that take no memory."""
    data = json.loads((DATA / f"{name}.json").read_text())
    types = {value: TensorType(FLOAT32, tuple(shape)) for value, shape in data["shapes"].items()}
    constants: dict[str, Constant] = {}
    nodes = []
    for row in data["nodes"]:
        operands = list(row["inputs"]) + [""] * (row["op"] == "Resize")
        for i, shape in enumerate(row["weights"]):
            match row["op"]:
                case "ReduceMean":
                    array = np.array([2, 3], np.int64)
                case "Reshape":
                    array = np.array(data["shapes"][row["outputs"][0]], np.int64)
                case _:
                    array = np.broadcast_to(np.float32(0), tuple(shape))
            value = f"{row['name']}.{i}"
            constants[value] = Constant(array)
            types[value] = constants[value].type
            operands.append(value)
        attributes = attributes_of(**row["attributes"])
        nodes.append(Node(row["op"], tuple(operands), tuple(row["outputs"]), attributes, name=row["name"]))
    return Graph(tuple(data["inputs"]), tuple(data["outputs"]), tuple(nodes), types, constants, name)


@cache
def pinned(name: str, bilinear_ahead: int | None = 0) -> Network:
    """The planner's view of one network, by default with the Resize of the pinned optima."""
    return network_of(pinned_graph(name), bilinear_ahead=bilinear_ahead)


def random_group(network: Network, rng: random.Random, most: int = 16, within: int | None = None) -> int:
    """A connected, convex group, grown from a random operator; `within` bars operators."""
    allowed = network.everything if within is None else within
    group, size = 1 << rng.choice(list(bits_of(allowed))), rng.randint(1, most)
    while group.bit_count() < size:
        around = list(bits_of(union_over(network.neighbours, group) & ~group & allowed))
        if not around:
            break
        larger = group | 1 << rng.choice(around)
        larger |= union_over(network.descendants, larger) & union_over(network.ancestors, larger)
        if larger & ~allowed:
            break
        group = larger
    return group
