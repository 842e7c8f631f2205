"""The graph: one frozen, topologically ordered list of nodes over named, typed values.

Nothing here points at anything else: nodes name their values, and who produces or reads a value is derived and cached.
A pass builds a new graph that shares the nodes it did not touch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.cards import Card, carded, counted, listed, one_line
from fusewise.ir.deciding import Condition
from fusewise.ir.dtypes import INT64, DType, dtype_of
from fusewise.ir.size import Size, Symbol, symbols_of
from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType
from fusewise.words import size_text

__all__ = [
    "Attribute",
    "Check",
    "Constant",
    "Graph",
    "Growing",
    "LazyConstant",
    "Node",
    "SizesConstant",
    "Subgraph",
    "attributes_of",
    "constant_of",
    "integer_array",
]


class Constant:
    """A tensor known before the model runs. The array may be a lazy memory map; it is never written to."""

    __slots__ = ("_digest", "array")

    def __init__(self, array: np.ndarray) -> None:
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self.array = array
        self._digest: str | None = None

    @property
    def dtype(self) -> DType:
        return dtype_of(self.array)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(self.array.shape))

    @property
    def short(self) -> Constant | None:
        """The same numbers as a float of 16 bits, which these were made of; None where they were not."""
        return None

    @property
    def digest(self) -> str:
        """A hash of dtype, shape and contents, computed once."""
        if self._digest is None:
            import hashlib  # takes OpenSSL along, 8 ms that opening a compiled model can do without

            state = hashlib.blake2b(f"{self.dtype.name}{self.array.shape}".encode(), digest_size=16)
            if self.array.dtype == object:
                state.update(repr(self.array.tolist()).encode())
            else:
                state.update(np.ascontiguousarray(self.array).view(np.uint8).data)
            self._digest = state.hexdigest()
        return self._digest

    def forget(self) -> None:
        """Let go of contents that can be made again: those of a constant that is there are its own."""

    def read_once(self) -> np.ndarray:
        """The contents, for who is done with them before anybody else wants them: they are not kept if they can be made again."""
        found = self.array
        self.forget()
        return found

    def rows(self, first: int, last: int) -> np.ndarray:
        """The contents from `first` to before `last` along the first axis, which there is."""
        return self.array[first:last]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Constant) and self.type == other.type and self.digest == other.digest
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Constant({self.type})"


class LazyConstant(Constant):
    """A constant of known type whose contents are computed when they are first read: what nobody reads costs nothing.

    `recipe` is equal only for constants of equal contents, while neither was read; None for one that only its contents tell.
    `again`: what was made can be made again, and may be forgotten. `make_rows(first, last)` makes some of it, for who needs no
    more at a time. `short`: the same numbers in 16 bits, if they are made of such.
    """

    __slots__ = ("_again", "_found", "_kind", "_make", "_make_rows", "_recipe", "_short")

    def __init__(
        self,
        kind: TensorType,
        make: Callable[[], np.ndarray],
        recipe: Hashable | None,
        *,
        again: bool = False,
        make_rows: Callable[[int, int], np.ndarray] | None = None,
        short: Constant | None = None,
    ) -> None:
        self._kind, self._recipe, self._again, self._make_rows, self._short = kind, recipe, again, make_rows, short
        self._digest = None
        self._found: np.ndarray | None = None
        self._make: Callable[[], np.ndarray] | None = make

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        """The contents."""
        make, found = self._make, self._found  # in this order: another thread may be making it
        if found is None:
            assert make is not None
            found = make()
            assert Constant(found).type == self._kind, (found.dtype, found.shape, self._kind)
            found.flags.writeable = False
            self._found = found
            if not self._again:
                self._make = None  # lets go of what it was made from
        return found

    def rows(self, first: int, last: int) -> np.ndarray:
        """Some of the contents: of those that are there, or made by themselves where they can be."""
        found, make = self._found, self._make_rows
        if found is not None or make is None:
            return (self.array if found is None else found)[first:last]
        made = make(first, last)
        assert Constant(made).type == TensorType(self._kind.dtype, (last - first, *self._kind.dims[1:])), made.shape
        return made

    def forget(self) -> None:
        """Let go of contents that can be made again."""
        if self._again:
            self._found = None

    @property
    def dtype(self) -> DType:
        return self._kind.dtype

    @property
    def type(self) -> TensorType:
        return self._kind

    @property
    def short(self) -> Constant | None:
        return self._short

    @property
    def recipe(self) -> Hashable | None:
        """What tells it from others without its contents; None once they were read."""
        return None if self._make is None else self._recipe

    def __eq__(self, other: object) -> bool:
        alike = isinstance(other, LazyConstant) and self.recipe is not None and self.recipe == other.recipe
        return alike or super().__eq__(other)

    __hash__ = Constant.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Constant, (self.array,)


class SizesConstant(Constant):
    """A tensor of integers that is known in terms of sizes: its array has objects, numbers and `Size`s."""

    __slots__ = ("_kind",)

    def __init__(self, array: np.ndarray, dtype: DType = INT64) -> None:
        super().__init__(array.astype(object))
        self._kind = TensorType(dtype, tuple(array.shape))

    @property
    def dtype(self) -> DType:
        return self._kind.dtype

    @property
    def type(self) -> TensorType:
        return self._kind

    __hash__ = Constant.__hash__


def integer_array(items: Sequence[int]) -> np.ndarray:
    """Numbers, as int64, or numbers and sizes, as objects, in a row."""
    if all(not isinstance(item, Size) for item in items):
        return np.array(items, np.int64)
    found = np.empty(len(items), object)
    found[:] = items
    return found


def constant_of(array: np.ndarray) -> Constant:
    """The constant of an array of numbers, or of int64 numbers and sizes, which are objects."""
    has_sizes = array.dtype == object and any(isinstance(item, Size) for item in array.reshape(-1).tolist())
    return SizesConstant(array) if has_sizes else Constant(array)


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold of sizes for a graph to be right, and a sentence to a user for whom it does not."""

    condition: Condition
    sentence: str


@dataclass(frozen=True, slots=True)
class Growing:
    """Outputs that lie in the memory of an input, by its strides: what was there stays, and something is written behind it.

    `pairs` has of each the input, the output, and the axis along which it grows. The input `counts` has two elements: how many
    there are along the axis, and how many more there is room for. `after`: how many there are then, in terms of symbols.
    """

    pairs: tuple[tuple[str, str, int], ...]
    counts: str
    after: int


@dataclass(frozen=True, slots=True)
class Subgraph:
    """The body of an If, Loop or Scan, kept whole as ONNX bytes.

    `captures` are the names, inside the body, of values that come from outside; `Node.captured` holds the outer value
    for each, in the same order.
    """

    body: bytes
    captures: tuple[str, ...]


Attribute = int | float | str | bytes | tuple[Any, ...] | Constant | Subgraph


def attributes_of(**values: Attribute | list[Any]) -> tuple[tuple[str, Attribute], ...]:
    """Keyword arguments as the sorted pairs that `Node.attributes` holds; lists become tuples."""
    return tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in values.items()))


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an ONNX operator.

    An absent optional input or output is the empty string. `origin` names the nodes of the user's model this one comes
    from. `captured` are outer values that `Subgraph` attributes read.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    domain: str = ""
    name: str = ""
    origin: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or `default` when the node does not carry it."""
        for key, value in self.attributes:
            if key == name:
                return value
        return default

    @property
    def reads(self) -> tuple[str, ...]:
        """Every value the node reads, absent ones left out."""
        read = self.inputs + self.captured
        return tuple(filter(None, read)) if "" in read else read

    @property
    def writes(self) -> tuple[str, ...]:
        """Every value the node produces, absent ones left out."""
        return tuple(filter(None, self.outputs)) if "" in self.outputs else self.outputs

    @property
    def label(self) -> str:
        """How messages name the node: its own name, or its first output."""
        return self.name or next(filter(None, self.outputs), self.op)

    def with_inputs(self, inputs: Iterable[str]) -> Node:
        return replace(self, inputs=tuple(inputs))

    def with_attributes(self, **changes: Attribute | list[Any] | None) -> Node:
        """The node with attributes set, or removed where the new value is None."""
        merged: dict[str, Any] = dict(self.attributes) | changes
        return replace(self, attributes=attributes_of(**{k: v for k, v in merged.items() if v is not None}))


def _card(graph: Graph) -> Card:
    def typed(name: str) -> str:
        return f"{one_line(name)}: {graph.types.get(name)}"

    size = sum(one.type.nbytes for one in graph.constants.values())
    title = f"Graph {one_line(graph.name)!r}, opset {graph.opset}: {len(graph.nodes):,} nodes"
    operators = Counter(f"{node.domain}.{node.op}" if node.domain else node.op for node in graph.nodes)
    rows = (
        ("operators", counted(operators)),
        ("inputs", listed(map(typed, graph.inputs))),
        ("outputs", listed(map(typed, graph.outputs))),
    )
    return Card(f"{title}, {size_text(size)} in {len(graph.constants):,} constants", rows)


@dataclass(frozen=True)
@carded(_card)
class Graph:
    """A whole model. `types` has every value; `constants` those known before it runs; `opset` is the ai.onnx version.

    `inputs` never include constants. `opsets` lists the versions of the other operator domains in use. `checks` must hold of the
    sizes that symbols stand for, beside their ranges. `contents` has by name inputs of integers whose elements, in order, are
    sizes: the symbols among them are read there. Nodes read constants in their place. `growth` has outputs that inputs grow into.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, ValueType]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    name: str = "graph"
    opset: int = 23
    opsets: tuple[tuple[str, int], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    checks: tuple[Check, ...] = ()
    contents: tuple[tuple[str, tuple[int, ...]], ...] = ()
    growth: Growing | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    def __getstate__(self) -> dict[str, Any]:
        """Plain data only, so that a graph can travel to a worker process; derived indexes are rebuilt there."""
        state = {name: self.__dict__[name] for name in self.__dataclass_fields__}
        return state | {"types": dict(self.types), "constants": dict(self.constants)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, MappingProxyType(value) if name in ("types", "constants") else value)

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Value name to the index of the node that writes it; inputs and constants have no entry."""
        return {value: i for i, node in enumerate(self.nodes) for value in node.writes}

    @cached_property
    def users(self) -> Mapping[str, tuple[int, ...]]:
        """Value name to the indexes of the nodes that read it, ascending, each once; every value has an entry."""
        found: dict[str, list[int]] = {value: [] for value in self.types}
        for i, node in enumerate(self.nodes):
            for value in dict.fromkeys(node.reads):
                found.setdefault(value, []).append(i)
        return {value: tuple(readers) for value, readers in found.items()}

    @cached_property
    def read_counts(self) -> Mapping[str, int]:
        """How many operands of nodes each value is that any node reads."""
        return Counter(chain.from_iterable(node.reads for node in self.nodes))

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The free dimensions of the inputs, each once, in the order of these, and the elements of inputs that are sizes."""
        dims = (dim for name in self.inputs for dim in _dims(self.types[name]))
        found = (
            sorted(symbols_of(dim), key=str) for dim in (*dims, *(one for _, sizes in self.contents for one in sizes))
        )
        return tuple(dict.fromkeys(chain.from_iterable(found)))

    @cached_property
    def grown(self) -> Mapping[str, str]:
        """The input in whose memory an output lies, by output."""
        return {} if self.growth is None else {output: given for given, output, _ in self.growth.pairs}

    @cached_property
    def output_set(self) -> frozenset[str]:
        return frozenset(self.outputs)

    def producer_of(self, value: str) -> Node | None:
        """The node that writes `value`, or None for an input or a constant."""
        index = self.producer.get(value)
        return None if index is None else self.nodes[index]

    def is_inner(self, value: str, reads: int = 1) -> bool:
        """Is the value just so many operands of nodes, and no output?"""
        return self.read_counts.get(value, 0) == reads and value not in self.output_set

    def tensor(self, value: str) -> TensorType:
        """The type of a tensor value; `TypeError` when it is a sequence or an optional."""
        found = self.types[value]
        if not isinstance(found, TensorType):
            raise TypeError(f"value {value!r} is {found}, not a tensor")
        return found

    def array(self, value: str) -> np.ndarray | None:
        """The contents of a constant, or None when `value` is not one."""
        constant = self.constants.get(value)
        return None if constant is None else constant.array

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def forget(self) -> None:
        """Let go of contents of constants that can be made again when somebody asks for them: those that lie in a file."""
        for constant in self.constants.values():
            constant.forget()

    def pruned(self) -> Graph:
        """The same graph without types and constants that no node, input or output mentions."""
        live = set(self.inputs) | set(self.outputs)
        for node in self.nodes:
            live.update(node.reads, node.writes)
        return replace(
            self,
            types={name: kind for name, kind in self.types.items() if name in live},
            constants={name: data for name, data in self.constants.items() if name in live},
        )


def _dims(kind: ValueType) -> tuple[int, ...]:
    """The sizes in a type, those of elements included."""
    if isinstance(kind, SequenceType | OptionalType):
        return _dims(kind.element)
    found = kind.shape or () if isinstance(kind, TensorType) else ()
    return tuple(dim for dim in found if isinstance(dim, Size))
