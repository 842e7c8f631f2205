"""Native code that takes everything as data: called on NumPy arrays, on all workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from fusewise.records import record
from fusewise.runtime.arena import address_of
from fusewise.runtime.threads import shared_pool, step_table

__all__ = ["BoundRoutine", "Routine"]


@record(frozen=True, slots=True)
class Routine:
    """Code at an address, for so many workers at most; `is_checked` if it looks at what it touches (`codegen.llvm.checked`)."""

    address: int
    workers: int = 1
    is_checked: bool = False

    def run(
        self,
        order: Sequence[str],
        arrays: Mapping[str, np.ndarray],
        writes: Collection[str],
        offsets: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Call it with pointers to the `arrays` in this order, to so many bytes behind the first where there are `offsets`; it
        `writes` some of them."""
        pointers = [address_of(arrays[name]) + offsets.get(name, 0) for name in order]
        if not self.is_checked:
            words = np.array(pointers, np.int64)
            shared_pool().run(step_table([(self.address, address_of(words), False)]), self.workers)
            return
        from fusewise.runtime.access import table_of

        table = table_of([(name, arrays[name], name in writes) for name in order])
        words = np.array([table.address, *pointers], np.int64)
        shared_pool().run(step_table([(self.address, address_of(words) + 8, False)]), self.workers)
        table.require(f"native code of {', '.join(sorted(writes))}")


class BoundRoutine:
    """A routine and the arrays that it is called on again and again; those of other names come with each call."""

    def __init__(
        self, routine: Routine, order: Sequence[str], arrays: Mapping[str, np.ndarray], writes: Collection[str]
    ) -> None:
        self._routine, self._order, self._arrays, self._writes = routine, order, arrays, writes
        words = np.array([address_of(arrays[name]) if name in arrays else 0 for name in order], np.int64)
        self._words, self._table = words.data, step_table([(routine.address, address_of(words), False)])
        self._others = [place for place, name in enumerate(order) if name not in arrays]

    def run(self, *others: np.ndarray) -> None:
        """Call it on its arrays and the others, in their order, which lie in C order."""
        if self._routine.is_checked:  # whose table says how large each of them is
            named = dict(zip((self._order[place] for place in self._others), others, strict=True))
            self._routine.run(self._order, {**self._arrays, **named}, self._writes)
            return
        for place, array in zip(self._others, others, strict=True):
            # of one that is read only sooner so than by asking for its buffer, which is refused
            self._words[place] = address_of(array) if array.flags.writeable else array.ctypes.data
        shared_pool().run(self._table, self._routine.workers)
