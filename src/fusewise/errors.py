"""Errors that reach a user: each is one clear sentence, and knows the exit status it ends the program with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

__all__ = [
    "AccessOutside",
    "AnswersDiffer",
    "BrokenGraph",
    "BrokenKernel",
    "BrokenPlan",
    "FusewiseError",
    "InvalidData",
    "InvalidModel",
    "NamesContradicted",
    "NoFeasiblePlan",
    "ResourceLimit",
    "ShapeContradicted",
    "UnknownOperators",
    "UnsupportedModel",
    "UsageError",
    "memory_full",
    "within_memory",
]


class FusewiseError(Exception):
    """Something the user can act on. The message says what, where, and what to do."""

    exit_status = 1


class AccessOutside(FusewiseError):
    """Generated code touched what is none of its operands: a fault of ours, found by a checked build."""


class BrokenGraph(FusewiseError):
    """A graph inside the program breaks its own rules: a fault of ours, found between two passes."""


class BrokenKernel(FusewiseError):
    """The program of a kernel breaks its own rules: a fault of ours, found by a checked build."""


class BrokenPlan(FusewiseError):
    """A plan breaks its own rules: a fault of ours, or a plan file that someone changed."""


class UsageError(FusewiseError):
    """A wrong argument: an unknown model name, a wrong input name, shape or dtype."""

    exit_status = 2


class InvalidData(FusewiseError):
    """Numbers that a model was given to work on break ONNX's rules: an index beyond the end of what it counts."""

    exit_status = 2


class NamesContradicted(UsageError):
    """Dimensions of inputs that the model gives one name are not equally long."""


class InvalidModel(FusewiseError):
    """The model file is broken or breaks ONNX's rules."""

    exit_status = 3


class UnsupportedModel(FusewiseError):
    """The model is valid, but asks for something this program does not do."""

    exit_status = 3


class UnknownOperators(UnsupportedModel):
    """A model uses operators that are not known; `found` is what could be read of it, as `fusewise inspect` says it."""

    found: Mapping[str, Any] = MappingProxyType({})


class ShapeContradicted(UnsupportedModel):
    """A value that a model states the shape of has another when it runs."""


class AnswersDiffer(FusewiseError):
    """The compiled model and the reference disagree by more than the tolerance."""

    exit_status = 4


class ResourceLimit(FusewiseError):
    """A limit on memory, size or time would be passed."""

    exit_status = 5


class NoFeasiblePlan(FusewiseError):
    """No plan satisfies the constraints."""

    exit_status = 6


def memory_full(what: str, error: MemoryError) -> ResourceLimit:
    """Memory was full while `what` was under way."""
    about = f" ({' '.join(str(error).split())})" if str(error) else ""
    return ResourceLimit(f"memory is full while {what}{about}: use smaller input shapes or a machine with more memory")


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Memory that is full while `what` is under way is a `ResourceLimit`. Decorates functions too."""
    try:
        yield
    except MemoryError as error:
        raise memory_full(what, error) from error
