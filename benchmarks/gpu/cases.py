"""What is measured: models of the zoo at a batch in a precision, each planned for a GPU as a model of a user's is."""

from __future__ import annotations

from dataclasses import dataclass

from fusewise.codegen.gpu.device import Device
from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.making import GpuMaking, GpuPlanned, gpu_planned
from fusewise.zoo.catalogue import build, model_named

__all__ = ["BATCHES", "MODELS", "PRECISIONS", "Case", "cases_of", "planned"]

MODELS = ("resnet50", "bert_base", "mobilenet_v2", "vgg16", "gpt2")
BATCHES = (1, 8)
PRECISIONS = ("float32", "tf32", "float16")


@dataclass(frozen=True)
class Case:
    """A model of the zoo for `batch` samples at a time, in `precision`."""

    model: str
    batch: int
    precision: str

    @property
    def name(self) -> str:
        """As files and rows of tables call it."""
        return f"{self.model}-{self.batch}-{self.precision}"

    @property
    def graph(self) -> Graph:
        """The model: the same weights wherever it is made, for one version of NumPy."""
        return build(self.model, batch=self.batch)


def cases_of(models: str, batches: str, precisions: str) -> list[Case]:
    """All of what is listed with commas, those that matter most first; `UsageError` for what there is not."""
    names = [model_named(name).name for name in models.split(",")]
    try:
        counts = [int(text) for text in batches.split(",")]
    except ValueError:
        raise UsageError(f"batches are numbers with commas between, not {batches!r}") from None
    for precision in precisions.split(","):
        if precision not in (*PRECISIONS, "bfloat16", "exact"):
            raise UsageError(f"there is no precision {precision!r}: choose of {', '.join(PRECISIONS)}, bfloat16, exact")
    return [Case(name, batch, kind) for batch in counts for kind in precisions.split(",") for name in names]


def planned(graph: Graph, device: Device, precision: str) -> GpuPlanned:
    """A graph as it is compiled for a device; `exact` is a precision here."""
    exact = precision == "exact"
    return gpu_planned(graph, GpuMaking(device, "float32" if exact else precision, exact=exact))
