"""Examples that stand behind functions in the reference of Python: what is typed, and what Python answers, `...` for what differs.

A test runs each in a folder with `model.onnx`, the small network of `network`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

__all__ = ["EXAMPLES", "network"]

EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "load": """
>>> graph = fusewise.load("model.onnx", symbols={"batch": 8})
>>> graph
Graph 'small', opset ...: 5 nodes, 1.2 KiB in 2 constants
  operators  1 Conv, 1 Flatten, 1 GlobalAveragePool, 1 MatMul, 1 Relu
  inputs     x: float32[8,3,16,16]
  outputs    y: float32[8,10]
>>> fusewise.load("model.onnx", symbols={"bach": 8})
Traceback (most recent call last):
...
fusewise.errors.UsageError: ...
""",
        "save": """
>>> fusewise.save(fusewise.optimize("model.onnx"), "better.onnx")
""",
        "open_compiled": """
>>> fusewise.compile("model.onnx").save("model.fw")
>>> fusewise.open_compiled("model.fw", threads=1)(np.zeros((2, 3, 16, 16), np.float32)).shape
(2, 10)
""",
        "compile": """
>>> model = fusewise.compile("model.onnx", threads=1)
>>> x = np.zeros((4, 3, 16, 16), np.float32)
>>> (y,) = model.run(None, {"x": x})
>>> y.shape
(4, 10)
>>> model(x).shape
(4, 10)
>>> model.summary["groups"], model.summary["host_steps"]
(3, 0)
""",
        "optimize": """
>>> better = fusewise.optimize("model.onnx", exact=True)
>>> [node.op for node in better.nodes]
['Conv', 'Relu', 'GlobalAveragePool', 'Flatten', 'MatMul']
""",
        "gradient": """
>>> with_gradients = fusewise.gradient("model.onnx", symbols={"batch": 1})
>>> [str(name) for name in with_gradients.outputs]
['y', 'gradient_of_y_by_x']
""",
        "inspect": """
>>> found = fusewise.inspect("model.onnx", groups=True)
>>> found["nodes"], found["host_nodes"], found["group_count"]
(5, 0, 3)
>>> found["verdicts"][0]["verdict"]
'fuse'
""",
        "explain": """
>>> found = fusewise.explain("model.onnx", node="relu")
>>> [(event["what"], event["applied"]) for event in found["decisions"] if event["kind"] == "fuse"]
[('fuse', True), ('break', False)]
>>> found["became"][0]["runs"]
'kernel'
""",
        "verify": """
>>> found = fusewise.verify("model.onnx", symbols={"batch": 2})
>>> found.summary["agrees"], found.summary["errors"]["y"] <= found.summary["tolerances"]["y"]
(True, True)
""",
        "bench": """
>>> from fusewise.benchmarking.timing import TimingBudget
>>> budget = TimingBudget(runs=3, seconds=0)
>>> found = fusewise.bench("model.onnx", symbols={"batch": 1}, against=["onnxruntime"], budget=budget, weigh=False)
>>> found["best_peer"], found["max_rel_error"] < 1e-5
('onnxruntime', True)
""",
        "report": """
>>> report = fusewise.report("model.onnx", times=False)
>>> [group["title"] for group in report.document["groups"]]
['Conv+Relu', 'GlobalAveragePool+Flatten', 'MatMul']
>>> report.save("report.html")
""",
        "plan": """
>>> found = fusewise.plan("model.onnx", symbols={"batch": 1}, buffer="64KiB")
>>> found.summary["groups"], found.summary["optimal"]
(1, True)
""",
        "register_domain": """
>>> twice = fusewise.DomainOperator("Twice", ("x",), write=lambda g, call: call["x"] * 2)
>>> fusewise.register_domain("org.example", twice)
""",
    }
)
"""By public name."""


def network(path: Path) -> None:
    """A network of a few nodes whose batch has a name, as a file that other runtimes read too."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"filters": (8, 3, 3, 3), "weights": (8, 10)}
    weights = [numpy_helper.from_array(rng.standard_normal(shape, np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "weights"], ["y"], name="dense"),
    ]
    kind = onnx.TensorProto.FLOAT
    given = helper.make_tensor_value_info("x", kind, ["batch", 3, 16, 16])
    taken = helper.make_tensor_value_info("y", kind, ["batch", 10])
    graph = helper.make_graph(nodes, "small", [given], [taken], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
