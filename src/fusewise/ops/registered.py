"""Operators that the user of this process added: the one table here that grows while a program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fusewise.records import record

if TYPE_CHECKING:  # asked about before NumPy is there
    from fusewise.ir.graph import Node
    from fusewise.ir.types import ValueType
    from fusewise.ops.plain.row import Given

    Types = Callable[[Node, Sequence[ValueType | None]], tuple[ValueType | None, ...]]

__all__ = ["REGISTERED", "Registered", "Registry"]


@record(frozen=True, eq=False)
class Registered:
    """An operator of a domain: `row` is what the importer knows of it (`frontend.domains.row.DomainRow`).

    `compute` and `types` are those of one that NumPy computes; None for one that is written in others.
    """

    domain: str
    op: str
    row: Any
    compute: Given | None = None
    types: Types | None = None


class Registry:
    """Operators by domain and name. A change puts a new table in place of the old one, so that no reader sees half of it."""

    def __init__(self) -> None:
        self.rows: Mapping[tuple[str, str], Registered] = MappingProxyType({})

    def add(self, *operators: Registered) -> None:
        """Add operators; one of the same name is replaced."""
        self.rows = MappingProxyType({**self.rows, **{(one.domain, one.op): one for one in operators}})

    def remove(self, domain: str) -> None:
        """Forget the operators of a domain."""
        self.rows = MappingProxyType({key: one for key, one in self.rows.items() if key[0] != domain})

    def get(self, domain: str, op: str) -> Registered | None:
        """An operator; None where nobody added it."""
        return self.rows.get((domain, op))

    @property
    def domains(self) -> frozenset[str]:
        """The domains that have operators."""
        return frozenset(domain for domain, _ in self.rows)


REGISTERED = Registry()
