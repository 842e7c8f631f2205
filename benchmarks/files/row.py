"""A row of the benchmark of files: a model as one of the tools that people use writes it, and the inputs it is run on."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

__all__ = ["File", "Port", "feeds_of", "quietly", "written"]

Make = Callable[[Path], None]
"""Writes `model.onnx`, and what belongs to it, into a folder that has nothing else."""

VOCABULARY = 1000
SIZES: Mapping[str, int] = MappingProxyType(
    {"batch": 1, "batch_size": 1, "sequence": 64, "sequence_length": 64, "kv_cache_dim": 64}
)
"""What dimensions by these names are; others are `default_size`."""


@dataclass(frozen=True)
class File:
    """A model `name` of a `family` (the tool that writes it); `make(folder)` has the tool write it.

    `sizes` are numbers for dimensions that the file leaves free, by name. `holds` says what an input holds, by a part of its
    name, where the defaults (`HOLDS`) do not fit. Answers may be `tolerance` apart, over the largest magnitude.
    """

    name: str
    family: str
    make: Make
    sizes: Mapping[str, int] = field(default_factory=dict)
    holds: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-5


@dataclass(frozen=True)
class Port:
    """An input as ONNX Runtime tells of it: dimensions are numbers, names or None."""

    name: str
    type: str
    shape: tuple[Any, ...]


HOLDS: Mapping[str, str] = MappingProxyType(
    {"mask": "ones", "position_ids": "positions", "use_cache_branch": "ones", "token_type_ids": "zeros"}
)

_NUMPY = MappingProxyType({"float": "float32", "double": "float64", "string": "object"})


def feeds_of(file: File, ports: tuple[Port, ...]) -> dict[str, np.ndarray]:
    """An array for each input, always the same ones."""
    return {port.name: _array(file, port) for port in ports}


def _array(file: File, port: Port) -> np.ndarray:
    element = port.type.removeprefix("tensor(").removesuffix(")")
    dtype = np.dtype(_NUMPY.get(element, element))
    dims = tuple(dim if isinstance(dim, int) else _size(file, dim) for dim in port.shape)
    rng = np.random.default_rng(zlib.crc32(f"{file.name} {port.name}".encode()))
    rules = {**HOLDS, **file.holds}
    rule = next((rule for part, rule in rules.items() if part in port.name), "")
    if rule == "ones":
        return np.ones(dims, dtype)
    if rule == "zeros":
        return np.zeros(dims, dtype)
    if rule == "positions":
        return np.broadcast_to(np.arange(dims[-1]) + file.sizes.get("past_sequence_length", 0), dims).astype(dtype)
    if rule == "words":
        return rng.choice(np.array(["red", "green", "blue"], object), dims)
    if dtype.kind in "iu":
        return rng.integers(0, int(rule or VOCABULARY), dims).astype(dtype)
    return rng.standard_normal(dims).astype(dtype)


def _size(file: File, dim: Any) -> int:
    """A dimension that the file leaves free; sums of names, as exporters write them, are sums of numbers."""
    sizes = {**SIZES, **file.sizes}
    return sum(int(part) if part.strip().isdigit() else sizes.get(part.strip(), 1) for part in str(dim).split("+"))


def written(file: File, folder: Path) -> Path:
    """The file under `folder`, made if it is not there yet."""
    target = folder / file.name / "model.onnx"
    if not target.exists():
        target.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{file.name}-making-") as making:
            with quietly():
                file.make(Path(making))
            Path(making).rename(target.parent)
            Path(making).mkdir()
    return target


@contextmanager
def quietly() -> Any:
    """Without what tools have to say: on Python's streams, through its loggers, and on the descriptors under them."""
    import logging
    import sys
    import warnings

    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    disabled = logging.root.manager.disable
    with Path(os.devnull).open("w") as nowhere, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            for descriptor in kept:
                os.close(descriptor)
            logging.disable(disabled)
