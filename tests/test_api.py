"""The verbs in Python: compile and run, options, verification that finds an injected fault, the light import."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.benchmarking.inputs import random_feeds
from fusewise.errors import InvalidModel, UnsupportedModel, UsageError
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


def network() -> Graph:
    """Three layers of product, bias and activation."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("network")
    x = b.input("x", (4, 16))
    for k in range(3):
        w = b.constant(rng.standard_normal((16, 16)).astype(np.float32) / 4)
        x = b.op("Relu", b.op("Add", b.op("MatMul", x, w), b.constant(np.full(16, 0.1, np.float32))), name=f"relu{k}")
    return b.finish(x)


def expected(graph: Graph, feeds):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(fusewise.to_onnx(graph)).run(None, feeds)


def test_importing_the_package_loads_nothing_else():
    code = (
        "import sys; import fusewise\n"
        "assert fusewise.__version__ and 'compile' in dir(fusewise)\n"
        "heavy = {'numpy', 'onnx', 'llvmlite', 'typer', 'rich', 'fusewise.api'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert fusewise.Trace().gates == 0\n"
        "try:\n    fusewise.nonsense\nexcept AttributeError:\n    pass\nelse:\n    raise SystemExit('no error')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", ["graph", "proto", "bytes", "path", "str"])
def test_a_model_may_be_given_in_any_form(form, tmp_path):
    graph = network()
    path = tmp_path / "network.onnx"
    fusewise.save(graph, path)
    proto = fusewise.to_onnx(graph)
    source = {"graph": graph, "proto": proto, "bytes": proto.SerializeToString(), "path": path, "str": str(path)}[form]
    feeds = random_feeds(graph)
    (found,) = fusewise.compile(source, cache=tmp_path / "cache").run(None, feeds)
    np.testing.assert_allclose(found, expected(graph, feeds)[0], rtol=1e-5, atol=1e-6)


def test_a_session_looks_like_onnx_runtimes():
    model = fusewise.compile(network(), cache=False)
    (given,), (made,) = model.get_inputs(), model.get_outputs()
    assert (given.name, list(given.shape), given.type) == ("x", [4, 16], "tensor(float)")
    feeds = {"x": np.zeros((4, 16), np.float32)}
    assert len(model.run([made.name], feeds)) == 1
    assert len(model.run([], feeds)) == 0
    with pytest.raises(UsageError, match="nothing"):
        model.run(["nothing"], feeds)


def test_the_summary_has_its_figures():
    summary = fusewise.compile(network(), cache=False).summary
    assert {"compile_ms", "groups", "kernels", "arena_bytes", "host_steps", "host"} <= set(summary)
    assert summary["host_steps"] == 0
    assert summary["groups"] >= 3


def test_runs_from_several_threads_do_not_disturb_each_other():
    graph = network()
    model = fusewise.compile(graph, cache=False)
    feeds = [random_feeds(graph, seed) for seed in range(4)]
    alone = [model.run(None, feed)[0] for feed in feeds]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not np.array_equal(model.run(None, feeds[k])[0], alone[k]):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_options_are_checked_by_name():
    with pytest.raises(UsageError, match="no_such_option.*shapes"):
        fusewise.compile(network(), no_such_option=1)
    with pytest.raises(UsageError, match="threads"):
        fusewise.compile(network(), threads=0, cache=False)


def test_shapes_and_symbols_are_bound():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "width"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "width"])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    assert fusewise.load(model, symbols={"width": 5}).tensor("y").dims == (1, 5)
    compiled = fusewise.compile(model, shapes={"x": (2, 3)}, cache=False)
    assert compiled.run(None, {"x": np.full((2, 3), -1, np.float32)})[0].shape == (2, 3)
    with pytest.raises(UsageError, match="width"):
        fusewise.compile(model, free=False)


def string_model() -> onnx.ModelProto:
    """Something no kernel does: text."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("StringConcat", ["x", "suffix"], ["y"], name="append")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.STRING, [2])],
            [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
            [numpy_helper.from_array(np.array(["!"], object), "suffix")],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )


def test_what_has_no_kernel_runs_on_the_host_and_is_named():
    compiled = fusewise.compile(string_model(), cache=False)
    assert compiled.run(None, {"x": np.array(["a", "b"], object)})[0].tolist() == ["a!", "b!"]
    assert compiled.summary["host_steps"] == 1
    (row,) = compiled.summary["host"]
    assert (row["node"], row["op"]) == ("append", "StringConcat")
    assert row["reason"]
    found = fusewise.inspect(string_model())
    assert (found["host_nodes"], found["native_nodes"]) == (1, 0)


def test_strict_refuses_it():
    with pytest.raises(UnsupportedModel, match="StringConcat"):
        fusewise.compile(string_model(), strict=True, cache=False)


def test_optimize_keeps_the_answers():
    graph = network()
    feeds = random_feeds(graph)
    better = fusewise.optimize(graph)
    assert len(better.nodes) <= len(graph.nodes)
    np.testing.assert_allclose(expected(better, feeds)[0], expected(graph, feeds)[0], rtol=1e-5, atol=1e-6)


def test_without_passes_the_graph_stays_as_it_is():
    graph = network()
    assert [node.op for node in fusewise.optimize(graph, passes=False).nodes] == [node.op for node in graph.nodes]
    compiled = fusewise.compile(graph, passes=False, cache=False)
    feeds = random_feeds(graph)
    np.testing.assert_allclose(compiled.run(None, feeds)[0], expected(graph, feeds)[0], rtol=1e-5, atol=1e-6)


def test_decisions_are_recorded():
    trace = Trace()
    assert fusewise.compile(network(), trace=trace, cache=False).trace is trace
    assert trace.gates > 0
    assert len(trace.events) >= trace.gates


def test_a_cache_that_cannot_be_used_is_warned_of(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="cache"):
        fusewise.compile(network(), cache=tmp_path / "file" / "cache")
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fusewise.compile(network(), cache=tmp_path / "file" / "cache", warn=said.append)
    assert len(said) == 1


def faulty(graph: Graph, trace: Trace) -> Graph:
    """A rewrite with a fault in one place: every Relu gets another name, and the second becomes a Neg."""
    from dataclasses import replace

    nodes = list(graph.nodes)
    for k, node in enumerate(nodes):
        if (
            node.op == "Relu"
            and node.label.startswith("relu")
            and trace.allows("rewrite", "rename-relu", (node.label,))
        ):
            nodes[k] = replace(node, name=f"new_{node.label}", op="Neg" if node.label == "relu1" else "Relu")
    return graph if tuple(nodes) == graph.nodes else graph.replace(nodes=tuple(nodes))


def test_verify_agrees_on_a_sound_compiler():
    found = fusewise.verify(network(), cache=False)
    assert found.agrees
    assert found.blame is None
    assert max(found.errors.values()) <= 1e-5
    assert found.decisions > 0


@pytest.mark.parametrize("first", [False, True], ids=["after-clean-up", "before-clean-up"])
def test_verify_blames_an_injected_faulty_rewrite(first, tmp_path):
    from fusewise.passes.pipeline import CLEAN

    passes = (faulty, *CLEAN) if first else (*CLEAN, faulty)
    found = fusewise.verify(network(), passes=passes, cache=tmp_path)
    assert not found.agrees
    assert found.blamed is not None, found
    assert (found.blamed.kind, found.blamed.what, found.blamed.where) == ("rewrite", "rename-relu", ("relu1",))
    assert "rename-relu" in found.blame
    assert "relu1" in found.blame
    assert found.confirmed
    assert found.builds <= 4 + max(1, found.decisions).bit_length()


def test_verify_names_a_wrong_rule_among_sound_ones(tmp_path):
    """a c + a b is not (a + b) c, though it has been printed so; the rules around it are the program's own."""
    from fusewise.ops.build import GraphBuilder
    from fusewise.passes.pipeline import CLEAN
    from fusewise.rewrite.engine import rewrite
    from fusewise.rewrite.rule import rule
    from fusewise.rewrite.rules.table import ALGEBRA

    wrong = rule(
        "wrong-factor",
        lambda g, a, b, c: g.Add(g.Mul(a, c), g.Mul(a, b)),
        lambda g, a, b, c: g.Mul(g.Add(a, b), c),
        "distributive",
        "reassociating",
    )
    sound = tuple(row for row in ALGEBRA if row.law != "distributive")

    def rewritten(graph: Graph, trace: Trace) -> Graph:
        return rewrite(graph, (*sound, wrong), trace, worst="reassociating")

    b = GraphBuilder()
    x, y, z = (b.input(name, (8, 64)) for name in "xyz")
    first = b.op("Mul", b.op("Sqrt", b.op("Abs", x)), b.op("Sqrt", b.op("Abs", y)))  # a sound rule applies
    graph = b.finish(b.op("Add", b.op("Mul", first, z), b.op("Mul", first, y)), b.op("Relu", b.op("Relu", z)))
    found = fusewise.verify(
        graph, passes=(*(p for p in CLEAN if "algebra" not in p.__name__), rewritten), cache=tmp_path
    )
    assert not found.agrees
    assert found.blamed is not None, found
    assert (found.blamed.kind, found.blamed.what) == ("rewrite", "wrong-factor")
    assert "wrong-factor" in found.blame
    assert found.confirmed
    assert fusewise.verify(graph, cache=tmp_path).agrees


def test_disabling_what_nothing_is_called_is_an_error():
    with pytest.raises(
        UsageError, match="there is no pass, rule or kernel 'fold_constant'; did you mean 'fold_constants'"
    ):
        fusewise.compile(network(), cache=False, disable=("fold_constant",))
    for name in ("fold_constants", "any-nest", "intra-block"):
        fusewise.compile(network(), cache=False, disable=(name,), warn=pytest.fail)


def test_disabling_what_no_node_has_is_said():
    for name, passes in (("product@nobody", True), ("rule-of-mine", (faulty,))):
        said = []
        fusewise.compile(network(), cache=False, disable=(name,), passes=passes, warn=said.append)
        assert said == [f"nothing in this model is decided by {name}, so disabling it changes nothing"]


def test_a_disabled_rewrite_is_not_blamed(tmp_path):
    found = fusewise.verify(network(), passes=(faulty,), disable=("rename-relu@relu1",), cache=tmp_path)
    assert found.agrees


def test_verify_uses_the_users_own_file(tmp_path):
    fusewise.save(network(), tmp_path / "network.onnx")
    found = fusewise.verify(tmp_path / "network.onnx", cache=False)
    assert found.agrees
    assert found.reference in ("onnxruntime", "onnx.reference")


def test_broken_models_raise_typed_errors(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    with pytest.raises(InvalidModel):
        fusewise.compile(tmp_path / "broken.onnx")
    with pytest.raises(UsageError, match="resnet50"):
        fusewise.compile("zoo:resnet5")
    with pytest.raises(UsageError, match="no file"):
        fusewise.compile(tmp_path / "absent.onnx")


@pytest.mark.slow
def test_a_pytorch_module_becomes_a_graph(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh()).eval()
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    graph = fusewise.from_torch(module, (x,))
    (found,) = fusewise.compile(graph, cache=tmp_path).run(None, {graph.inputs[0]: x.numpy()})
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
