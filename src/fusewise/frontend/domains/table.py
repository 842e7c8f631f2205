"""Every operator of other domains that is known, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.frontend.domains.microsoft.activations import ACTIVATIONS
from fusewise.frontend.domains.microsoft.attention import ATTENTION
from fusewise.frontend.domains.microsoft.beam_search import BEAM_SEARCH
from fusewise.frontend.domains.microsoft.biases import BIASES
from fusewise.frontend.domains.microsoft.experts import EXPERTS
from fusewise.frontend.domains.microsoft.four_bits import FOUR_BITS
from fusewise.frontend.domains.microsoft.generation import GENERATION
from fusewise.frontend.domains.microsoft.group_query import GROUP_QUERY
from fusewise.frontend.domains.microsoft.integer_products import INTEGER_PRODUCTS
from fusewise.frontend.domains.microsoft.movement import MOVEMENT
from fusewise.frontend.domains.microsoft.nbits import NBITS
from fusewise.frontend.domains.microsoft.norms import NORMS
from fusewise.frontend.domains.microsoft.numbers import NUMBERS
from fusewise.frontend.domains.microsoft.old import OLD
from fusewise.frontend.domains.microsoft.products import PRODUCTS
from fusewise.frontend.domains.microsoft.quantisers import QUANTISERS
from fusewise.frontend.domains.microsoft.quantized import QUANTIZED
from fusewise.frontend.domains.microsoft.quantized_experts import QUANTIZED_EXPERTS
from fusewise.frontend.domains.microsoft.quantized_layers import QUANTIZED_LAYERS
from fusewise.frontend.domains.microsoft.rotary import ROTARY
from fusewise.frontend.domains.microsoft.sampling import SAMPLING
from fusewise.frontend.domains.microsoft.sparse import SPARSE
from fusewise.frontend.domains.microsoft.states import STATES
from fusewise.frontend.domains.microsoft.whisper import WHISPER
from fusewise.frontend.domains.microsoft.windows import WINDOWS
from fusewise.frontend.domains.row import DomainRow
from fusewise.ops.registered import REGISTERED
from fusewise.words import alike

__all__ = ["ROWS", "is_built_in", "nearest", "row_of"]

ROWS: tuple[DomainRow, ...] = (
    *ACTIVATIONS,
    *ATTENTION,
    *BEAM_SEARCH,
    *BIASES,
    *EXPERTS,
    *FOUR_BITS,
    *GENERATION,
    *GROUP_QUERY,
    *INTEGER_PRODUCTS,
    *MOVEMENT,
    *NBITS,
    *NORMS,
    *NUMBERS,
    *OLD,
    *PRODUCTS,
    *QUANTISERS,
    *QUANTIZED,
    *QUANTIZED_EXPERTS,
    *QUANTIZED_LAYERS,
    *ROTARY,
    *SAMPLING,
    *SPARSE,
    *STATES,
    *WHISPER,
    *WINDOWS,
)

_BY_NAME: Mapping[tuple[str, str], DomainRow] = MappingProxyType({(row.domain, row.op): row for row in ROWS})


def row_of(domain: str, op: str) -> DomainRow | None:
    """The row of an operator; None for one that is not known."""
    found = _BY_NAME.get((domain, op))
    if found is None and (added := REGISTERED.get(domain, op)) is not None:
        found = added.row
    return found


def is_built_in(domain: str, op: str) -> bool:
    """Has the operator a row here, whatever was registered?"""
    return (domain, op) in _BY_NAME


def nearest(domain: str, op: str) -> str:
    """The name of the known operator of a domain that is most like `op`; empty where none is like it."""
    known = (name for owner, name in (*_BY_NAME, *REGISTERED.rows) if owner == domain)
    return next(iter(alike(op, known)), "")
