"""A way to run a task, interpreted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tests.codegen.nest.length import expected_operations

from fusewise.codegen.kernel import Implementation
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.interpret import TooLong, interpret
from fusewise.codegen.nest.memory import Address, Memory

__all__ = ["agrees", "interpreted"]

MOST = 12_000
"""Operations after which a kernel is too long to be interpreted."""


def interpreted(
    way: Implementation,
    module: Module,
    given: Mapping[str, np.ndarray],
    workers: int = 1,
    most: int = MOST,
) -> None:
    """Run the body of a kernel that is called `kernel` on arrays by the names of its arguments, each worker's share after the
    other; constants are packed already. Working memory begins with other numbers than zero."""
    pointers = []
    for argument in way.arguments:
        array = given.get(argument.name)
        if array is None:
            nbytes = 16 * way.task.sites if argument.name == "fault" else argument.nbytes
            array = np.full(max(64, nbytes * (workers if argument.per_worker else 1)), 85, np.uint8)
            if argument.name == "fault":
                array[:] = 0
        pointers.append(Address(Memory(argument.name, array.reshape(-1).view(np.uint8)), 0))
    calls = [[*pointers, worker, worker + 1, workers, worker, 0] for worker in range(workers)]
    if any(expected_operations(module, "kernel_body", call) > most for call in (calls[0], calls[-1])):
        raise TooLong("the nest takes more operations than were allowed")
    for call in calls:
        interpret(module, "kernel_body", call, most)


def agrees(
    way: Implementation,
    module: Module,
    before: Mapping[str, np.ndarray],
    after: Mapping[str, np.ndarray],
    workers: int,
    most: int | None = None,
) -> None:
    """The nest, interpreted on arrays as they were before, gives what code has made of them. Without `most` operations that it may
    take, one that is too long is given up, and of the generic kernel, which tests of operators run by thousands, every fourth task
    is looked at."""
    if most is None and way.kernel.name == "any-nest" and int(way.task.digest, 16) % 4:
        return
    try:
        interpreted(way, module, before, workers, MOST if most is None else most)
    except TooLong:
        if most is not None:
            raise
        return
    for name, array in before.items():
        other = after[name]
        if array.dtype.kind in "biu" or array.tobytes() == other.tobytes():
            np.testing.assert_array_equal(array, other, err_msg=name)
            continue
        precision = max(np.finfo(array.dtype).eps, 2.0**-23) if array.dtype.kind == "f" else 2.0**-7
        found, expected = array.astype(np.float64), other.astype(np.float64)
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        np.testing.assert_allclose(found, expected, rtol=64 * precision, atol=64 * precision * scale, err_msg=name)
