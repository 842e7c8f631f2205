"""How compile time grows with a model: one shape of graph a row, one size a column, each twice the one before.

    python -m benchmarks.growth [CASE ...] [--nodes 1250] [--doublings 3] [--fusion dnnfusion] [--json FILE]

Models are files, compiled without a cache; the first compilation of the process, of three nodes, is not counted. A figure is
seconds by the clock; the last column says by how much the time grew with each doubling, on average.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from benchmarks.zoo import machine
from onnx import TensorProto, helper, numpy_helper

import fusewise

__all__ = ["CASES", "model_of"]

ELEMENTWISE = ("Sigmoid", "Neg", "Tanh", "Abs", "Exp")
Parts = tuple[list[onnx.NodeProto], dict[str, Sequence[int]], list[str], dict[str, np.ndarray]]
"""Nodes, the shapes of inputs, the outputs, and constants."""


def chain(n: int) -> Parts:
    """One elementwise operator after another."""
    nodes = [helper.make_node(ELEMENTWISE[k % 5], [f"v{k}"], [f"v{k + 1}"]) for k in range(n)]
    return nodes, {"v0": (4, 64)}, [f"v{n}"], {}


def residual(n: int) -> Parts:
    """Every other operator adds what the one before it was given."""
    nodes = []
    for k in range(n // 2):
        nodes.append(helper.make_node("Sigmoid", [f"v{k}"], [f"s{k}"]))
        nodes.append(helper.make_node("Add", [f"v{k}", f"s{k}"], [f"v{k + 1}"]))
    return nodes, {"v0": (4, 64)}, [f"v{n // 2}"], {}


def skips(n: int) -> Parts:
    """Every other operator adds what the first one made."""
    nodes = [helper.make_node("Tanh", ["x"], ["v0"])]
    for k in range(n // 2):
        nodes.append(helper.make_node("Sigmoid", [f"v{k}"], [f"s{k}"]))
        nodes.append(helper.make_node("Add", ["v0", f"s{k}"], [f"v{k + 1}"]))
    return nodes, {"x": (4, 64)}, [f"v{n // 2}"], {}


def outputs(n: int) -> Parts:
    """Five chains of which the user reads every value."""
    sources = ["x"] * 5 + [f"v{k}" for k in range(n)]
    nodes = [helper.make_node(ELEMENTWISE[k % 4 + k // 5 % 2], [sources[k]], [f"v{k}"]) for k in range(n)]
    return nodes, {"x": (4, 64)}, [f"v{k}" for k in range(n)], {}


def branches(n: int) -> Parts:
    """As many readers of one value, which is computed."""
    nodes = [helper.make_node("Tanh", ["x"], ["t"])]
    nodes += [helper.make_node("Add", ["t", f"c{k}"], [f"v{k}"]) for k in range(n)]
    return nodes, {"x": (4, 64)}, [f"v{k}" for k in range(n)], _numbered(n, (64,))


def slices(n: int) -> Parts:
    """As many rows of one tensor, each a result."""
    constants = {"axis": np.array([0])}
    constants |= {f"c{k}": np.array([k]) for k in range(n + 1)}
    nodes = [helper.make_node("Slice", ["x", f"c{k}", f"c{k + 1}", "axis"], [f"v{k}"]) for k in range(n)]
    return nodes, {"x": (n, 16)}, [f"v{k}" for k in range(n)], constants


def parts(n: int) -> Parts:
    """A tensor taken apart, and put together again after something was done to its rows."""
    split = helper.make_node("Split", ["x"], [f"s{k}" for k in range(n)], axis=0, num_outputs=n)
    nodes = [split, *(helper.make_node(ELEMENTWISE[k % 2 * 2], [f"s{k}"], [f"v{k}"]) for k in range(n))]
    nodes.append(helper.make_node("Concat", [f"v{k}" for k in range(n)], ["y"], axis=0))
    return nodes, {"x": (n, 16)}, ["y"], {}


def concat(n: int) -> Parts:
    """As many sums put together."""
    nodes = [helper.make_node("Add", ["x", f"c{k}"], [f"v{k}"]) for k in range(n)]
    nodes.append(helper.make_node("Concat", [f"v{k}" for k in range(n)], ["y"], axis=0))
    return nodes, {"x": (4, 16)}, ["y"], _numbered(n, (16,))


def total(n: int) -> Parts:
    """One sum of as many inputs."""
    nodes = [helper.make_node("Sum", [f"x{k}" for k in range(n)], ["y"])]
    return nodes, {f"x{k}": (4, 16) for k in range(n)}, ["y"], {}


def largest(n: int) -> Parts:
    """The largest of as many products."""
    nodes = [helper.make_node("Mul", ["x", f"c{k}"], [f"v{k}"]) for k in range(n)]
    nodes.append(helper.make_node("Max", [f"v{k}" for k in range(n)], ["y"]))
    return nodes, {"x": (4, 16)}, ["y"], _numbered(n, (16,))


def movement(n: int) -> Parts:
    """Transpositions and reshapes in turn, which no rule joins."""
    nodes = []
    for k in range(n):
        kind = {"perm": [1, 0, 2]} if k % 2 == 0 else {}
        operands = [f"v{k}"] if k % 2 == 0 else [f"v{k}", f"shape{k // 2 % 2}"]
        nodes.append(helper.make_node("Reshape" if k % 2 else "Transpose", operands, [f"v{k + 1}"], **kind))
    shapes = {"shape0": np.array([8, 4, 6]), "shape1": np.array([4, 6, 8])}
    return nodes, {"v0": (4, 6, 8)}, [f"v{n}"], shapes


def products(n: int) -> Parts:
    """Products of one small shape in a row, of seven matrices in turn."""
    nodes = [helper.make_node("MatMul", [f"v{k}", f"c{k % 7}"], [f"v{k + 1}"]) for k in range(n)]
    return nodes, {"v0": (8, 32)}, [f"v{n}"], {f"c{k}": np.eye(32, dtype=np.float32) * (1 + k / 8) for k in range(7)}


def softmaxes(n: int) -> Parts:
    """Normalisations in a row."""
    nodes = [helper.make_node("Softmax", [f"v{k}"], [f"v{k + 1}"], axis=-1) for k in range(n)]
    return nodes, {"v0": (4, 64)}, [f"v{n}"], {}


def shapes(n: int) -> Parts:
    """Shapes read, taken apart and put together, as exporters write them."""
    nodes = []
    for k in range(n // 4):
        nodes.append(helper.make_node("Shape", [f"v{k}"], [f"s{k}"]))
        nodes.append(helper.make_node("Gather", [f"s{k}", "zero"], [f"g{k}"]))
        nodes.append(helper.make_node("Concat", [f"g{k}", "rest"], [f"c{k}"], axis=0))
        nodes.append(helper.make_node("Reshape", [f"v{k}", f"c{k}"], [f"v{k + 1}"]))
    return nodes, {"v0": (4, 64)}, [f"v{n // 4}"], {"zero": np.array([0]), "rest": np.array([-1])}


def _numbered(n: int, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {f"c{k}": np.full(shape, 1 + k / n, np.float32) for k in range(n)}


CASES: Mapping[str, Callable[[int], Parts]] = MappingProxyType(
    {
        case.__name__: case
        for case in (
            *(chain, residual, skips, outputs, branches, slices, parts, concat, total, largest, movement, products),
            *(softmaxes, shapes),
        )
    }
)


def model_of(case: str, n: int) -> onnx.ModelProto:
    """The model of a case with about `n` nodes, or operands."""
    nodes, inputs, results, constants = CASES[case](n)
    graph = helper.make_graph(
        nodes,
        case,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def seconds(case: str, n: int, fusion: str, folder: Path) -> float:
    """What compiling a case takes."""
    path = folder / f"{case}.onnx"
    onnx.save(model_of(case, n), path)
    begin = time.perf_counter()
    fusewise.compile(path, cache=False, fusion=fusion)
    return time.perf_counter() - begin


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--fusion", default="dnnfusion")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(None if arguments is None else list(arguments))
    sizes = [given.nodes << k for k in range(given.doublings + 1)]
    print(machine(None)["processor"])
    print(f"{'case':12}" + "".join(f"{n:>10}" for n in sizes) + f"{'a doubling':>12}")
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fusewise-growth-") as folder:
        seconds("chain", 3, given.fusion, Path(folder))
        for case in given.cases or CASES:
            found[case] = []
            print(f"{case:12}", end="", flush=True)
            for n in sizes:
                found[case].append(seconds(case, n, given.fusion, Path(folder)))
                print(f"{found[case][-1]:10.2f}", end="", flush=True)
            print(f"{(found[case][-1] / found[case][0]) ** (1 / max(1, given.doublings)):12.2f}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"nodes": sizes, "seconds": found}, indent=1))


if __name__ == "__main__":
    main()
