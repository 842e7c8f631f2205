"""What a document is about: a compilation that was run."""

from __future__ import annotations

from fusewise.compiled import Model
from fusewise.ir.graph import Graph
from fusewise.making import GpuPlanned, Planned
from fusewise.options import Options
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["ReportSubject"]


@record(frozen=True)
class ReportSubject:
    """A model as it was `written`, what was `planned` of it stage by stage, the decisions, the compiled `model`, and how it was
    asked for: by which `name`, with which `options`."""

    name: str
    written: Graph
    planned: Planned | GpuPlanned
    trace: Trace
    model: Model
    options: Options
