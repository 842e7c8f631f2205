"""Runs lowered work with NumPy on real strided buffers: slow, plain, and independent of code generation.

It checks what lowering decides (composition, index simplification, views, layouts, concatenation in place) without a
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusewise.lower.task import Operand, Task
from fusewise.lower.whole import FAMILIES
from fusewise.lower.work import HostWork, Lowered, TaskWork
from fusewise.ops.evaluate import evaluate
from fusewise.ops.interpret import evaluate_expression

__all__ = ["interpret_lowered", "interpret_task"]


def interpret_task(task: Task, buffers: Mapping[str, np.ndarray]) -> None:
    """Perform the stores of a task without an anchor, or of a node that is one by itself, which has no other form.

    `buffers` gives a flat array per operand, from its first element."""
    views = {operand.name: _view(operand, buffers[operand.name]) for operand in task.operands}
    if task.anchor is not None:
        assert task.anchor.family in FAMILIES, "an anchor has no definition here; compose the group without one"
        FAMILIES[task.anchor.family].interpret(task, views)
        return
    extents = {f"i{d}": extent for d, extent in enumerate(task.extents)}
    results = [evaluate_expression(store.value, extents, views)[0] for store in task.stores]
    for store, result in zip(task.stores, results, strict=True):
        where = tuple(evaluate_expression(i, extents, {})[0] for i in store.index)
        views[store.operand][where] = result


def interpret_lowered(lowered: Lowered, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The graph's outputs, computed work by work. Shapes must be static."""
    graph = lowered.graph
    memory: dict[str, np.ndarray] = {v: np.ascontiguousarray(feeds[v]).reshape(-1) for v in graph.inputs}
    memory.update({v: np.ascontiguousarray(c.array).reshape(-1) for v, c in graph.constants.items()})
    for work in lowered.work:
        if isinstance(work, HostWork):
            _host(lowered, work, memory)
        else:
            _task(lowered, work if work.plain is None else work.plain(), memory)
    produced = {v for node in graph.nodes for v in node.writes}
    roots = {v: v if v in produced else f"output:{v}" for v in graph.outputs}
    return {v: memory[root].reshape(graph.tensor(v).dims) for v, root in roots.items()}


def _task(lowered: Lowered, work: TaskWork, memory: dict[str, np.ndarray]) -> None:
    graph = lowered.graph
    for root, _ in work.places.values():
        if root not in memory:
            kind = graph.tensor(root if root in graph.types else work.bound.values["in0"])
            memory[root] = np.zeros(kind.size, kind.dtype.numpy)
    interpret_task(work.bound.task, {name: memory[root][offset:] for name, (root, offset) in work.places.items()})


def _host(lowered: Lowered, work: HostWork, memory: dict[str, np.ndarray]) -> None:
    graph = lowered.graph
    feeds = {}
    for value, place in work.reads.items():
        if value in graph.constants:
            feeds[value] = graph.constants[value].array
            continue
        root, offset, strides = (value, 0, None) if place is None else place
        kind = graph.tensor(value)
        if strides is None:
            feeds[value] = memory[root][offset : offset + kind.size].reshape(kind.dims)
        else:
            steps = [stride * memory[root].itemsize for stride in strides]
            feeds[value] = np.lib.stride_tricks.as_strided(memory[root][offset:], kind.dims, steps)
    for node in work.nodes:
        results = evaluate(node, feeds, graph.opset, graph.opsets)
        feeds.update((value, result) for value, result in zip(node.outputs, results, strict=True) if value)
    for value in work.writes:
        storage = lowered.layout.storage.get(value)
        memory[value if storage is None else storage.root] = np.asarray(feeds[value]).reshape(-1)


def _view(operand: Operand, flat: np.ndarray) -> np.ndarray:
    strides = tuple(s * flat.itemsize for s in operand.strides)
    return np.lib.stride_tricks.as_strided(flat, operand.shape, strides)
