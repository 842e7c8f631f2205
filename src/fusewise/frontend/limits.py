"""How much of a model is read before it is refused: the defaults that bound time and memory on a hostile file."""

from __future__ import annotations

from dataclasses import dataclass

from fusewise.errors import InvalidModel, ResourceLimit

__all__ = ["DEFAULT_LIMITS", "ModelLimits"]


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Bounds on a model. Sizes are bytes, depths and counts plain numbers."""

    proto_bytes: int = 2**31
    external_bytes: int = 64 * 2**30
    nodes: int = 200_000
    function_depth: int = 32
    subgraph_depth: int = 16
    rank: int = 32
    elements: int = 2**40
    tensor_bytes: int = 2**47
    dense_bytes: int = 2**30
    body_bytes: int = 2**31 - 2**20
    string_bytes: int = 2**20
    operations: int = 2**42
    gap: int = 2**16

    def check_shape(self, what: str, shape: tuple[int, ...], itemsize: int) -> None:
        """Refuse a tensor with too many dimensions, elements or bytes; counted in unbounded integers."""
        if len(shape) > self.rank:
            raise ResourceLimit(f"{what} has {len(shape)} dimensions; the limit is {self.rank}")
        elements = 1
        for dim in shape:
            elements *= dim
        if elements >= self.elements or elements * itemsize >= self.tensor_bytes:
            raise ResourceLimit(f"{what} has shape {list(shape)}, which is more than {self.elements:,} elements")

    def check_operations(self, what: str, elements: int, each: int) -> None:
        """Refuse a node that does so many operations for each of its elements that it would never end."""
        if elements * each > self.operations:
            raise ResourceLimit(f"{what} takes {elements * each:,} operations; the limit is {self.operations:,}")

    def check_gap(self, what: str, widest: int) -> None:
        """Refuse a stride or dilation that writes next to nothing over and over."""
        if widest > self.gap:
            raise ResourceLimit(f"{what} has a stride or dilation of {widest:,}; the limit is {self.gap:,}")

    def check_string(self, what: str, text: str | bytes) -> None:
        """Refuse a name that is absurdly long, or is not text (protobuf then hands out its bytes)."""
        if isinstance(text, bytes):
            raise InvalidModel(f"{what} is not valid UTF-8: {text[:40]!r}")
        if len(text) > self.string_bytes:
            raise ResourceLimit(f"{what} is {len(text):,} characters long; the limit is {self.string_bytes:,}")


DEFAULT_LIMITS = ModelLimits()
