"""Results in JSON files: runs that go on where they were stopped, and several runs joined into one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.layer_fusion.cells import Cell, optimum, searched
from benchmarks.layer_fusion.printed import Column
from benchmarks.layer_fusion.sampling import Sampling, sampled

from fusewise.files import write_text

__all__ = ["Results"]


class Results:
    """What is known of cells, columns and samplings. `path` keeps it, once a cell is done; `joined` are read and not changed."""

    def __init__(self, path: Path | None = None, joined: Sequence[Path] = ()) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Any]] = {}
        self.optima: dict[str, dict[str, Any]] = {}
        self.samplings: dict[str, dict[str, Any]] = {}
        for file in (*joined, *([path] if path is not None and path.exists() else [])):
            found = json.loads(file.read_text())
            self.cells |= found["cells"]
            self.optima |= found["optima"]
            self.samplings |= found["samplings"]

    def of(self, cells: Sequence[Cell], workers: int = 1) -> list[dict[str, Any]]:
        """The rows of cells; those not known are searched, on so many processes."""
        missing = [cell for cell in cells if cell.key not in self.cells]
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for cell, row in zip(missing, (pool.map if workers > 1 else map)(searched, missing), strict=True):
                column = cell.column
                sys.stderr.write(
                    f"{column.network} {column.scheme} {cell.search} {cell.explainer} {cell.seed}:"
                    f" {row['dram_mb']:.3f} MB, {row['processor_s']:.1f} s\n"
                )
                self.cells[cell.key] = row
                self._keep()
        return [{**self.cells[cell.key], "cell": cell} for cell in cells]

    def optimum(self, column: Column) -> dict[str, Any]:
        """The proven optimum of a column, which is the same for any budget."""
        column = column._replace(plans=0)
        key = json.dumps(column)
        if key not in self.optima:
            self.optima[key] = optimum(column)
            self._keep()
        return self.optima[key]

    def sampling(self, sampling: Sampling) -> dict[str, Any]:
        """The groups of a network that random search meets."""
        key = json.dumps(sampling)
        if key not in self.samplings:
            self.samplings[key] = sampled(sampling)
            self._keep()
        return self.samplings[key]

    def _keep(self) -> None:
        if self.path is not None:
            kept = {"cells": self.cells, "optima": self.optima, "samplings": self.samplings}
            write_text(self.path, json.dumps(kept) + "\n")
