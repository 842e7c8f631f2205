"""Operators that a user adds: written in ONNX's, or computed by a function of NumPy arrays.

fusewise.register_domain(
    "my.domain",
    DomainOperator("Twice", ("x",), write=lambda g, call: call["x"] * 2),
    DomainOperator("Median", ("x",), compute=lambda x: np.median(x, -1), types=lambda x: TensorType(x.dtype, x.shape[:-1])),
)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from fusewise.errors import InvalidData, UsageError
from fusewise.frontend.domains.row import DomainAttribute, DomainCall, DomainRow, Written
from fusewise.frontend.domains.table import is_built_in
from fusewise.frontend.domains.writer import DomainWriter
from fusewise.ir.graph import Node
from fusewise.ir.types import MapType, OptionalType, SequenceType, TensorType, ValueType
from fusewise.ops.plain.row import Given
from fusewise.ops.registered import REGISTERED, Registered
from fusewise.records import record

__all__ = ["DomainOperator", "register_domain"]


@record(frozen=True, eq=False)
class DomainOperator:
    """An operator of a user's domain.

    - `operands`, `outputs`: their names; `name?` may be absent, `name*` is any number of them, and the last.
    - `attributes`: by name the default, or a type (int, float, str) for one that must be given.
    - `write(g, call)`: the outputs in ONNX's operators, which is compiled like any other node: `call["x"]` is an operand,
      `call.attribute("k")` an attribute, `g.Name(...)` writes a node (see `frontend.domains.writer`).
    - `compute(*operands, **attributes)`: the outputs as NumPy arrays, of arrays, None for absent ones. It runs on the host. Then
      `types(*operands, **attributes)` gives the `TensorType` of each output, of those of the operands, whose dimensions are
      numbers, names, or None where they are not known; it may give such dimensions too.
    """

    op: str
    operands: tuple[str, ...]
    outputs: tuple[str, ...] = ("output",)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    write: Callable[[DomainWriter, DomainCall], Written] | None = None
    compute: Callable[..., Any] | None = None
    types: Callable[..., Any] | None = None


def register_domain(domain: str, *operators: DomainOperator) -> None:
    """Let models of this process have operators of `domain`; one that was registered before is replaced.

    A model that has any is not kept in the cache of compiled models. A compiled file (`.fw`) with one that NumPy computes runs only
    where it is registered too. Raises `UsageError` for an operator that contradicts itself or is there already.
    """
    if domain in ("", "ai.onnx"):
        raise UsageError("operators of ONNX's own domain cannot be registered; give them a domain of your own")
    REGISTERED.add(*(_registered(domain, one) for one in operators))


def _registered(domain: str, one: DomainOperator) -> Registered:
    where = f"the operator {domain}.{one.op}"
    if is_built_in(domain, one.op):
        raise UsageError(f"{where} is known already and cannot be registered")
    if (one.write is None) == (one.compute is None):
        raise UsageError(f"{where} needs either `write` or `compute`")
    if (one.compute is None) != (one.types is None):
        raise UsageError(f"{where} needs `types` beside `compute`, and only there")
    attributes = tuple(_attribute(where, name, value) for name, value in one.attributes.items())
    write = one.write or _as_it_is(domain, one)
    row = DomainRow(one.op, write, one.operands, attributes, one.outputs, domain=domain)
    if one.compute is None or one.types is None:
        return Registered(domain, one.op, row)
    return Registered(domain, one.op, row, _computing(where, one.compute), _typing(where, one.types))


_KINDS: Mapping[type, int] = MappingProxyType({float: 1, int: 2, str: 3})
_LISTS: Mapping[type, int] = MappingProxyType({float: 6, int: 7, str: 8})


def _attribute(where: str, name: str, value: Any) -> DomainAttribute:
    if isinstance(value, type) and value in _KINDS:
        return DomainAttribute(name, _KINDS[value], required=True)
    if type(value) in _KINDS:
        return DomainAttribute(name, _KINDS[type(value)], value)
    if isinstance(value, list | tuple) and value and type(value[0]) in _LISTS:
        return DomainAttribute(name, _LISTS[type(value[0])], tuple(value))
    raise UsageError(
        f"{where}: its attribute {name} must be a number, a text, a list of these, or one of {list(_KINDS)}"
    )


def _as_it_is(domain: str, one: DomainOperator) -> Callable[[DomainWriter, DomainCall], Written]:
    """The node itself, with defaults for what it lacks."""

    def write(g: DomainWriter, call: DomainCall) -> Written:
        operands = [g.value(name) if name else None for name in call.node.inputs]
        return g.several(f"{domain}.{one.op}", len(call.node.outputs), *operands, **dict(call.node.attributes))

    return write


def _computing(where: str, compute: Callable[..., Any]) -> Given:
    def make(node: Node) -> Callable[..., Any]:
        attributes = dict(node.attributes)

        def run(*operands: Any) -> Any:
            try:
                found = compute(*operands, **attributes)
            except Exception as error:  # whatever a user's function raises is the user's
                raise InvalidData(
                    f"node {node.label!r}: what computes {where} failed: {type(error).__name__}: {error}"
                ) from error
            count = len(found) if isinstance(found, tuple) else 1
            if count != len(node.outputs):
                raise InvalidData(f"node {node.label!r}: {where} has {len(node.outputs)} outputs, not {count}")
            return found

        return run

    return make


def _typing(
    where: str, types: Callable[..., Any]
) -> Callable[[Node, Sequence[ValueType | None]], tuple[ValueType | None, ...]]:
    def infer(node: Node, operands: Sequence[ValueType | None]) -> tuple[ValueType | None, ...]:
        try:
            found = types(*operands, **dict(node.attributes))
        except Exception as error:
            raise UsageError(
                f"node {node.label!r}: the types of {where} cannot be told: {type(error).__name__}: {error}"
            ) from error
        kinds = found if isinstance(found, tuple) else (found,)
        if len(kinds) != len(node.outputs) or not all(isinstance(kind, _TYPES) for kind in kinds):
            raise UsageError(f"node {node.label!r}: the types of {where} must be {len(node.outputs)}, not {found!r}")
        return kinds

    return infer


_TYPES = (TensorType, SequenceType, OptionalType, MapType)
