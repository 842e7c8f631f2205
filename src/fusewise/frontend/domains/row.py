"""An operator of a domain beside ONNX's own, as a row: what a node of it looks like, and how it is written in ONNX's operators.

DomainRow(
    "QuickGelu",
    operands=("X",),
    attributes=(real("alpha", 1.702),),
    write=lambda g, call: call["X"] * g.Sigmoid(call["X"] * call.attribute("alpha")),
)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import onnx

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.domains.writer import DomainValue, DomainWriter, WriterSite
from fusewise.frontend.order import node_label
from fusewise.frontend.upgrade import PINNED_OPSET
from fusewise.ir.graph import Constant, Node
from fusewise.ops.validity.signature import misfit
from fusewise.ops.validity.use import Rule, Use
from fusewise.records import record

__all__ = [
    "EXPANDED_OPSET",
    "MICROSOFT",
    "DomainAttribute",
    "DomainCall",
    "DomainRow",
    "Written",
    "graph",
    "integer",
    "integers",
    "real",
    "reals",
    "tensor",
    "text",
    "texts",
]

MICROSOFT = "com.microsoft"
EXPANDED_OPSET = 11
"""The oldest opset of nodes that stand for one that holds graphs."""


@record(frozen=True)
class DomainAttribute:
    """An attribute: `kind` as ONNX's `AttributeProto` numbers them, `default` None where nothing stands for an absent one."""

    name: str
    kind: int
    default: Any = None
    required: bool = False


_REQUIRED: Any = object()


def _attribute(name: str, kind: int, default: Any) -> DomainAttribute:
    required = default is _REQUIRED
    return DomainAttribute(
        name, kind, None if required else tuple(default) if isinstance(default, list) else default, required
    )


def real(name: str, default: float | None = _REQUIRED) -> DomainAttribute:
    """A float; required where no default is given, as with all of these."""
    return _attribute(name, 1, default)


def integer(name: str, default: int | None = _REQUIRED) -> DomainAttribute:
    """An integer."""
    return _attribute(name, 2, default)


def text(name: str, default: str | None = _REQUIRED) -> DomainAttribute:
    """A string."""
    return _attribute(name, 3, default)


def tensor(name: str, default: Constant | None = _REQUIRED) -> DomainAttribute:
    """A tensor."""
    return _attribute(name, 4, default)


def reals(name: str, default: Sequence[float] | None = _REQUIRED) -> DomainAttribute:
    """A list of floats."""
    return _attribute(name, 6, default)


def integers(name: str, default: Sequence[int] | None = _REQUIRED) -> DomainAttribute:
    """A list of integers."""
    return _attribute(name, 7, default)


def graph(name: str, default: None = _REQUIRED) -> DomainAttribute:
    """A graph."""
    return _attribute(name, 5, default)


def texts(name: str, default: Sequence[str] | None = _REQUIRED) -> DomainAttribute:
    """A list of strings."""
    return _attribute(name, 8, default)


Written = DomainValue | None | tuple[DomainValue | None, ...]
"""The outputs of an operator as they were written; None for one that is absent or that nobody asked for."""


@record(frozen=True)
class DomainRow:
    """One operator of a domain.

    - `operands`, `outputs`: their names as its maker has them; `name?` may be absent, `name*` is any number, and the last.
    - `shapes`, `rules`: what must hold of operands and attributes, as in `ops.validity` (a name in small letters is an attribute).
    - `write`: its outputs, written with ONNX's operators of opset `opset`. Raises `InvalidModel` or `UnsupportedModel` by
      `call.invalid` and `call.unsupported`.
    - `expand`: for one that holds graphs, in place of `write`: the nodes that do what it does in an opset from `EXPANDED_OPSET` on,
      as those of a function stand for its call; the arguments are the node, the opset, and what gives fresh names.
    - `newer`: the name of an attribute, and a value of it with which another opset is written in.
    """

    op: str
    write: Callable[[DomainWriter, DomainCall], Written] | None
    operands: tuple[str, ...]
    attributes: tuple[DomainAttribute, ...] = ()
    outputs: tuple[str, ...] = ("output",)
    shapes: str | Callable[[Use], str] = ""
    rules: tuple[Rule, ...] = ()
    domain: str = MICROSOFT
    opset: int = PINNED_OPSET
    newer: tuple[str, int, int] | None = None
    expand: Callable[[onnx.NodeProto, int, Callable[[str], str]], list[onnx.NodeProto]] | None = None

    def opset_of(self, integers: Mapping[str, int]) -> int:
        """The opset that a node with these attributes is written in."""
        if self.newer is None or integers.get(self.newer[0]) != self.newer[1]:
            return self.opset
        return self.newer[2]

    def written(self, node: Node, site: WriterSite) -> list[Node]:
        """The nodes that do what `node` does, their types inferred. Raises `InvalidModel` where the row forbids its operands."""
        g = DomainWriter(site, node)
        defaults = {one.name: one.default for one in self.attributes if node.attribute(one.name) is None}
        full = node.with_attributes(**defaults)
        found = self._fault(full, site)
        if found:
            raise g.invalid(found)
        assert self.write is not None, self.op
        outputs = self.write(g, DomainCall(self, full, g))
        return g.written(outputs if isinstance(outputs, tuple) else (outputs,))

    def _fault(self, node: Node, site: WriterSite) -> str:
        """What the row forbids about a node; rules come first, as in `ops.validity`."""
        use = Use(
            node,
            tuple(site.type_of(name) if name else None for name in node.inputs),
            tuple(site.value_of(name) if name else None for name in node.inputs),
            1,
            self.operand_names,
        )
        for rule in self.rules:
            if wrong := rule(use):
                return wrong
        shapes = self.shapes if isinstance(self.shapes, str) else self.shapes(use)
        return misfit(shapes, use, {}) if shapes else ""

    def expanded(self, proto: onnx.NodeProto, opset: int, fresh: Callable[[str], str]) -> list[onnx.NodeProto]:
        """The nodes in place of one that holds graphs, in a model of an ONNX opset."""
        assert self.expand is not None, self.op
        if opset < EXPANDED_OPSET:
            raise UnsupportedModel(
                f"node {node_label(proto)!r} ({self.op}) is supported from opset {EXPANDED_OPSET} on; the model imports {opset}"
            )
        return self.expand(proto, opset, fresh)

    @property
    def inputs_taken(self) -> tuple[int, int]:
        """The least and the largest number of operands."""
        return _taken(self.operands)

    @property
    def outputs_given(self) -> tuple[int, int]:
        """The least and the largest number of outputs."""
        return _taken(self.outputs)

    @property
    def operand_names(self) -> tuple[str, ...]:
        """The operands without what says that they may be absent."""
        return tuple(name.rstrip("?*") for name in self.operands)


def _taken(names: tuple[str, ...]) -> tuple[int, int]:
    needed = max((i + 1 for i, name in enumerate(names) if name[-1] not in "?*"), default=0)
    return needed, 2**31 if names and names[-1][-1] == "*" else len(names)


class DomainCall:
    """A node of the domain while it is written: its operands and attributes by name, defaults filled in."""

    def __init__(self, row: DomainRow, node: Node, g: DomainWriter) -> None:
        self.row = row
        self.node = node
        self._g = g

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.row.operand_names)}

    def get(self, name: str) -> DomainValue | None:
        """An operand; None where it is absent."""
        place = self._places[name]
        given = place < len(self.node.inputs) and self.node.inputs[place]
        return self._g.value(self.node.inputs[place]) if given else None

    def __getitem__(self, name: str) -> DomainValue:
        """An operand that the row needs, here at least; `UnsupportedModel` where it is absent."""
        found = self.get(name)
        if found is None:
            raise self.unsupported(f"it is supported only with its input {name!r}")
        return found

    def __contains__(self, name: str) -> bool:
        """Is an operand given?"""
        return self.get(name) is not None

    def tail(self, name: str) -> tuple[DomainValue, ...]:
        """The operands of a name that stands for any number of them."""
        return tuple(self._g.value(one) for one in self.node.inputs[self._places[name] :])

    def attribute(self, name: str) -> Any:
        """An attribute or its default; None where there is neither."""
        found = self.node.attribute(name)
        return found if found is not None else next(a.default for a in self.row.attributes if a.name == name)

    def wants(self, name: str) -> bool:
        """Does the node have this output?"""
        place = next(i for i, one in enumerate(self.row.outputs) if one.rstrip("?*") == name)
        return place < len(self.node.outputs) and bool(self.node.outputs[place])

    def invalid(self, problem: str) -> InvalidModel:
        """The node breaks its operator's rules; `problem` is the end of a sentence that begins with the node."""
        return self._g.invalid(problem)

    def unsupported(self, problem: str) -> UnsupportedModel:
        """The node is valid, but asks for what is not done."""
        return self._g.unsupported(problem)
