"""Graphs that a program runs while it runs: bodies of control flow, and what follows a size that data decide.

Their shapes are known when they are run: node by node at first, by NumPy. What has cost enough is compiled, once for all shapes of
the same ranks, as a model with free dimensions is; elements of inputs that decide shapes (`frontend.deciding`) are symbols like
dimensions. What cannot be had for all sizes is compiled for shapes and contents that come back.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError, ResourceLimit, UsageError
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ops.spec import NotDefined
from fusewise.runtime.nested_code import Build, Manner, Native, Runnable, compiled, compiled_free, is_free
from fusewise.runtime.rounds import RoundPorts, Rounds
from fusewise.runtime.slots import Calls, ReadyNode

__all__ = ["Build", "Manner", "Nested", "Runnable"]

_WORTH_SECONDS = 0.05
"""What runs must have cost before code is made for them."""

_MOST_RUNS = 6_000
"""Runs that may have cost so much together: of what takes less a call of native code takes as long."""

_KEPT = 4
"""Shapes whose code is kept, of what is not for all, and how many times a graph is compiled for all sizes of the same ranks: what
is 1 may be broadcast, and is code of its own."""

_TRIAL = 64
"""Runs that code for all sizes is timed in, 0: not at all. Where sizes never come back, plans may take longer than the nodes."""

_LEAST_ROUNDS = 16
"""Rounds of a loop that are worth looking for code."""

_CALL_SECONDS, _UNTIMED_ROUNDS = 0.2, 256
"""What rounds in one call may take: nobody can interrupt it. And so many go together before any were timed."""

_MOST_BUILT = 16
"""Times that one graph is compiled: one that is run for ever other shapes is left to NumPy."""

_MOST_CONTENTS = 64
"""Elements of an input whose contents are compiled for."""

_MOST_ELEMENTS = 16
"""Elements of an input of integers that are sizes by themselves."""

_DIFFERENT = 8
"""Contents met for the same shapes, beyond which they are data that nothing is compiled for."""

_REMEMBERED = 256
"""Shapes whose cost is counted at a time, and that are known to fit."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
Key = tuple[Shapes, tuple[bytes, ...]]
Ranks = tuple[tuple[tuple[str, int], ...], tuple[tuple[int, ...], ...], tuple[bytes, ...]]


class _Runs:
    """What is known of runs: how many there were, what they have cost by nodes, and whether code for them was made or tried."""

    __slots__ = ("first", "is_tried", "runs", "seconds")

    def __init__(self) -> None:
        self.is_tried = False
        self.forget()

    def forget(self) -> None:
        """Begin anew with counting."""
        self.seconds, self.first, self.runs = 0.0, 0.0, 0

    def add(self, seconds: float) -> None:
        """There was one more."""
        self.first = self.first if self.runs else seconds
        self.seconds += seconds
        self.runs += 1

    @property
    def each(self) -> float:
        """What a run has cost, but for the first, which makes more ready, where there were others."""
        return (self.seconds - self.first) / (self.runs - 1) if self.runs > 1 else self.seconds

    @property
    def is_worth_code(self) -> bool:
        """Have runs cost so much, and was no code made yet?"""
        return self.seconds >= _WORTH_SECONDS and self.runs <= _MOST_RUNS and not self.is_tried


class _Code:
    """Native code, and until it has been tried in `_TRIAL` runs, what these took; `by_nodes` is what a run took by nodes."""

    __slots__ = ("by_nodes", "native", "runs", "seconds")

    def __init__(self, native: Native, by_nodes: float) -> None:
        self.native, self.by_nodes = native, by_nodes
        self.seconds, self.runs = 0.0, 0

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        if self.runs >= _TRIAL:
            return self.native(values)
        begin = time.perf_counter()
        found = self.native(values)
        self.seconds += (time.perf_counter() - begin) * bool(self.runs)  # the first run makes more ready
        self.runs += 1
        return found

    def keep(self) -> None:
        """Try it no more: several rounds at a time it is faster, whatever one takes."""
        self.runs = _TRIAL + 1

    @property
    def is_slow(self) -> bool:
        """Has it turned out to be slower than nodes are?"""
        return 0 < _TRIAL == self.runs and self.seconds > (self.runs - 1) * self.by_nodes


class _Case(_Runs):
    """Of runs of certain sizes: shapes, and contents where `key` has these."""

    __slots__ = ("key", "native")

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.key = key
        self.native: _Code | None = None


class _Free(_Runs):
    """Of runs of certain ranks, whatever their sizes: each of `codes` is for as many of these as can be. `has_contents`: they
    have the same contents of what decides shapes and is no number of elements."""

    __slots__ = ("codes", "has_contents")

    def __init__(self, has_contents: bool) -> None:
        super().__init__()
        self.has_contents = has_contents
        self.codes: list[_Code] = []


class Nested:
    """A graph of unknown shapes. `run` takes its inputs in order and gives its outputs; types may differ from run to run.

    `make` gives the evaluator of a node. What is run is within the turn of the program
    that it is part of, so by one thread at a time. `builds` counts how often it was compiled.
    """

    def __init__(self, graph: Graph, make: Callable[[Node], ReadyNode], manner: Manner) -> None:
        self._graph = graph
        self._make = make
        self._manner = manner
        self._calls: Calls | None = None
        self._deciding: tuple[int, ...] | None = None
        self._without_choice = any(node.op == "If" and not node.domain for node in graph.nodes)
        self._free: dict[Ranks, _Free] = {}
        self._fitting: dict[Key, tuple[_Free, _Code]] = {}
        self._cases: dict[Key, _Case] = {}
        self._built: OrderedDict[Key, _Case] = OrderedDict()
        self._contents: Counter[Any] = Counter()
        self._together = _UNTIMED_ROUNDS
        self.builds = 0

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for the values of the inputs. Raises what the nodes raise."""
        key = self._key(values)
        if key is None:
            return self._by_nodes(values)
        known = self._fitting.get(key)
        if known is not None:
            free, code = known
            if not code.is_slow:
                return code(values)
            self._drop(free, code)
        exact = self._cases.get(key)
        if exact is not None and exact.native is not None:
            return self._exactly(exact, exact.native, values)
        free = self._of_ranks(values)
        found = self._fitted(free, key, values)
        if found is not None:
            return found
        case = free if self._may_be_free(free, values) else self._case(key)
        if case.is_worth_code and self.builds < _MOST_BUILT:
            self._compile(case, values)
            found = self._fitted(free, key, values)
            if found is not None:
                return found
        if isinstance(case, _Case) and case.native is not None:
            return self._exactly(case, case.native, values)
        begin = time.perf_counter()
        found = self._by_nodes(values)
        case.add(time.perf_counter() - begin)
        return found

    def run_rounds(
        self, values: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> Rounds | None:
        """Some rounds of a loop in one call of native code, `values` being those of the first (`runtime.round_table`); None where
        there is no such code, nor so many rounds that making it would be worth it, or where a round decides shapes."""
        key = self._key(values)
        pairs = ports.states if ports.condition is None else (*ports.states, ports.condition)
        changing = {ports.counter, *(place for place, _ in pairs), *ports.elements}
        if key is None or changing.intersection(self._deciding or ()):
            return None
        code = self._code_of(key)
        if code is None and count >= _LEAST_ROUNDS and self._makes_for(count, key, values):
            code = self._code_of(key)
        begin = time.perf_counter()
        found = None if code is None else code.native.run_rounds(values, ports, lines, min(count, self._together))
        if code is not None and found is not None:
            self._together = max(2, int(_CALL_SECONDS * found.count / (time.perf_counter() - begin)))
            code.keep()
        return found

    def _code_of(self, key: Key) -> _Code | None:
        """Code that is known to take these values."""
        known, exact = self._fitting.get(key), self._cases.get(key)
        if known is not None:
            return known[1]
        return None if exact is None else exact.native

    def _makes_for(self, count: int, key: Key, values: Sequence[Any]) -> bool:
        """Make code for so many runs, if all would have cost enough by nodes then, and find out that it fits."""
        free = self._of_ranks(values)
        case = free if self._may_be_free(free, values) else self._case(key)
        is_worth = case.runs > 0 and case.seconds * (1 + count / case.runs) >= _WORTH_SECONDS
        if is_worth and not case.is_tried and self.builds < _MOST_BUILT:
            self._compile(case, values)
        return self._fitted(free, key, values) is not None or (isinstance(case, _Case) and case.native is not None)

    @property
    def codes(self) -> list[Native]:
        """The code that there is now."""
        exact = [case.native.native for case in self._built.values() if case.native is not None]
        return [code.native for free in self._free.values() for code in free.codes] + exact

    def _by_nodes(self, values: Sequence[Any]) -> list[Any]:
        if self._calls is None:
            graph = self._graph
            known = {name: constant.array for name, constant in graph.constants.items()}
            self._calls = Calls(map(self._make, graph.nodes), graph.inputs, graph.outputs, known)
        return self._calls.run(values)

    def _key(self, values: Sequence[Any]) -> Key | None:
        """What tells runs apart; None where some value has no form in native memory."""
        shapes = []
        for value in values:
            if type(value) is not np.ndarray or value.dtype == object or value.dtype.kind == "c":
                return None
            shapes.append((value.dtype.char, value.shape))
        if self._deciding is None:
            from fusewise.frontend.deciding import deciding_inputs

            kinds = {name: Constant(value).type for name, value in zip(self._graph.inputs, values, strict=True)}
            known = self._graph.replace(types={**self._graph.types, **kinds})
            places = {name: k for k, name in enumerate(self._graph.inputs)}
            but_for = ("If",) if self._without_choice else ()
            self._deciding = tuple(places[name] for name in deciding_inputs(known, but_for=but_for))
        return tuple(shapes), tuple(values[k].tobytes() for k in self._deciding if values[k].size <= _MOST_CONTENTS)

    def _compile(self, case: _Free | _Case, values: Sequence[Any]) -> None:
        """Code for all sizes, or for these; none, and so from then on, where nothing of it would be native."""
        self.builds += 1
        case.is_tried = True
        given = dict(zip(self._graph.inputs, values, strict=True))
        deciding = [self._graph.inputs[k] for k in self._deciding or () if values[k].size <= _MOST_CONTENTS]
        if isinstance(case, _Free):
            read = [name for name in deciding if _is_read(given[name])]
            contents = {name: given[name] for name in deciding if case.has_contents and name not in read}
            native = self._native(lambda: compiled_free(self._graph, given, contents, read, self._manner))
            if self._chooses(native):
                return
            if native is not None:
                case.codes.insert(0, _Code(native, case.each))
                case.is_tried = len(case.codes) == _KEPT
                case.forget()
            return
        contents = {name: given[name] for name in deciding} if case.key[1] else {}
        native = self._native(lambda: compiled(self._graph, given, contents, self._manner))
        if self._chooses(native):
            return
        case.native = None if native is None else _Code(native, case.each)
        self._built[case.key] = case
        while len(self._built) > _KEPT:
            _, last = self._built.popitem(last=False)
            last.native, last.is_tried = None, False

    def _chooses(self, native: Native | None) -> bool:
        """Is code without the contents of conditions not whole, so that these decide from now on, as sizes do?"""
        if not self._without_choice or (native is not None and native.executable.is_whole):
            return False
        self._without_choice, self._deciding = False, None
        self._free.clear()
        self._fitting.clear()
        self._cases.clear()
        return True

    def _native(self, make: Callable[[], Runnable | None]) -> Native | None:
        try:
            executable = make()
        except (FusewiseError, NotDefined, TypeError, ArithmeticError):  # what is wrong with it, the nodes say
            return None
        return None if executable is None else Native(executable, self._graph.inputs)

    # --- all sizes ------------------------------------------------------------------------------------------------------

    def _of_ranks(self, values: Sequence[Any]) -> _Free:
        """What is known of runs of these ranks, and of these contents of what decides shapes and is no number of elements."""
        ranks = tuple([(value.dtype.char, value.ndim) for value in values])
        deciding = [values[k] for k in self._deciding or () if values[k].size <= _MOST_CONTENTS]
        counts = tuple([value.shape for value in deciding if _is_read(value)])
        contents = tuple([value.tobytes() for value in deciding if not _is_read(value)])
        if self._contents[ranks] > _DIFFERENT:
            contents = ()
        found = self._free.get((ranks, counts, contents))
        if found is None:
            self._contents[ranks] += bool(contents)
            found = self._free.setdefault((ranks, counts, contents), _Free(bool(contents)))
        return found

    def _fitted(self, free: _Free, key: Key, values: Sequence[Any]) -> list[Any] | None:
        """The outputs by code that takes these sizes; None where there is none."""
        for code in free.codes:
            if code.is_slow:
                self._drop(free, code)
                break
            try:
                found = code(values)
            except (UsageError, ResourceLimit):  # not these
                continue
            if len(self._fitting) >= _REMEMBERED:
                self._fitting.clear()
            self._fitting[key] = free, code
            free.codes.remove(code)
            free.codes.insert(0, code)
            return found
        return None

    def _drop(self, free: _Free, code: _Code) -> None:
        """Do without code that is slower than nodes: what comes back may still be compiled for."""
        self._fitting.clear()
        free.codes.remove(code)
        free.is_tried = True

    def _may_be_free(self, free: _Free, values: Sequence[Any]) -> bool:
        """May there be code for all sizes, and is there any size among the values?"""
        if free.is_tried:
            return False
        deciding = [k for k in self._deciding or () if values[k].size <= _MOST_CONTENTS]
        read = [k for k in deciding if _is_read(values[k])]
        if any(one > 1 for k in read for one in values[k].reshape(-1).tolist()):
            return True
        known = deciding if free.has_contents else read
        inputs = zip(self._graph.inputs, values, strict=True)
        rest = [(self._graph.types.get(name), value.shape) for k, (name, value) in enumerate(inputs) if k not in known]
        return any(is_free(kind, shape) for kind, shape in rest)

    # --- certain sizes --------------------------------------------------------------------------------------------------

    def _exactly(self, case: _Case, code: _Code, values: Sequence[Any]) -> list[Any]:
        """The outputs by the code of a case, and by nodes from when it has turned out to be slower."""
        if code.is_slow:
            case.native = None
            del self._built[case.key]
            return self._by_nodes(values)
        if len(self._built) > 1:
            self._built.move_to_end(case.key)
        return code(values)

    def _case(self, key: Key) -> _Case:
        if key[1] and self._contents[key[0]] > _DIFFERENT:
            key = key[0], ()
        found = self._cases.get(key)
        if found is None:
            if len(self._cases) >= _REMEMBERED:
                self._cases = dict(self._built)
            self._contents[key[0]] += bool(key[1])
            found = self._cases.setdefault(key, _Case(key))
        return found


def _is_read(value: np.ndarray) -> bool:
    """Are the elements of a value that decides shapes sizes, each by itself?"""
    return value.dtype.char in "lqi" and value.size <= _MOST_ELEMENTS
