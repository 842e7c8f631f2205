"""Models in: what ONNX allows is read, what it forbids is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from fusewise.errors import FusewiseError, InvalidModel, ResourceLimit, UnsupportedModel, UsageError
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.onnx_export import to_model
from fusewise.frontend.onnx_import import PINNED_OPSET, bind, load

LIGHT = sorted((Path(onnx.backend.test.__file__).parent / "data" / "light").glob("*.onnx"))


def parse(text: str, opset: int = 17, imports: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}{imports}]> {text}')


def run(model: onnx.ModelProto, **feeds: object) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, arrays)


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_the_networks_in_the_onnx_package_are_read_and_typed(path: Path) -> None:
    graph = load(path)
    assert graph.opset == PINNED_OPSET
    assert all(kind.is_static for kind in graph.types.values())
    proto = onnx.load(path)
    (output,) = proto.graph.output
    assert list(graph.tensor(output.name).dims) == [dim.dim_value for dim in output.type.tensor_type.shape.dim]
    again = load(to_model(graph))
    assert (again.nodes, again.types, again.constants) == (graph.nodes, graph.types, graph.constants)


def test_there_are_nine_of_them() -> None:
    assert len(LIGHT) == 9


def test_file_bytes_and_message_give_the_same_graph(tmp_path: Path) -> None:
    model = onnx.load(LIGHT[0])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    graphs = [load(path), load(str(path)), load(path.read_bytes()), load(model)]
    assert all(graph.nodes == graphs[0].nodes and graph.constants == graphs[0].constants for graph in graphs)


def test_the_message_given_is_not_changed() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = Softmax<axis = 0>(x) }", 11)
    before = model.SerializeToString()
    load(model)
    assert model.SerializeToString() == before


# Functions


def test_functions_are_inlined_with_their_attributes() -> None:
    model = parse(
        "g (float[3] x) => (float[3] y) { y = loc.outer<k = 2.0>(x) }"
        ' <domain: "loc", opset_import: ["": 17, "loc": 1]> outer <k, m: float = 3.0> (a) => (c) '
        "{ b = loc.scale<s: float = @k>(a)  c = loc.scale<s: float = @m>(b) }"
        ' <domain: "loc", opset_import: ["": 17]> scale <s> (a) => (b) '
        "{ f = Constant<value_float: float = @s>()  b = Mul(a, f) }",
        imports=', "loc": 1',
    )
    graph = load(model)
    assert [node.op for node in graph.nodes] == ["Mul", "Mul"]
    assert [node.name.startswith("y/") for node in graph.nodes] == [True, True]
    np.testing.assert_array_equal(run(to_model(graph), x=np.ones(3, np.float32))[0], np.full(3, 6))


def test_a_function_written_for_another_opset_is_upgraded_from_there() -> None:
    model = parse(
        "g (float[2,3,4] x) => (float[2,3,4] y) { y = loc.f(x) }"
        ' <domain: "loc", opset_import: ["": 11]> f (a) => (b) { b = Softmax<axis = 1>(a) }',
        imports=', "loc": 1',
    )
    found = run(to_model(load(model)), x=np.zeros((2, 3, 4), np.float32))[0]
    np.testing.assert_allclose(found, np.full((2, 3, 4), 1 / 12), rtol=1e-6)


def test_absent_operands_and_repeated_outputs_of_a_function() -> None:
    model = parse(
        "g (float[3] x) => (float[3] y, float[3] z) { y, z = loc.f(x, , x) }"
        ' <domain: "loc", opset_import: ["": 17]> f (a, low, c) => (b, a) { b = Clip(a, low) }',
        imports=', "loc": 1',
    )
    x = np.array([-1, 0, 2], np.float32)
    for found in run(to_model(load(model)), x=x):
        np.testing.assert_array_equal(found, x)


def test_bodies_inside_functions_are_renamed_with_them() -> None:
    model = parse(
        "g (float[3] x, bool c) => (float[3] y, float[3] z) { y = loc.f(x, c)  z = loc.f(y, c) }"
        ' <domain: "loc", opset_import: ["": 17]> f (a, c) => (b) { t = Neg(a) '
        "b = If(c) <then_branch = p () => (float[3] u) { u = Exp(t) }, else_branch = q () => (float[3] v) { v = Add(a, t) }> }",
        imports=', "loc": 1',
    )
    graph = load(model)
    x = np.array([-1, 0, 2], np.float32)
    y, z = run(to_model(graph), x=x, c=True)
    np.testing.assert_allclose(y, np.exp(-x), rtol=1e-6)
    np.testing.assert_allclose(z, np.exp(-y), rtol=1e-6)


def test_a_function_that_calls_itself_is_refused() -> None:
    model = parse(
        "g (float[3] x) => (float[3] y) { y = loc.f(x) }"
        ' <domain: "loc", opset_import: ["loc": 1]> f (a) => (b) { b = loc.f(a) }',
        imports=', "loc": 1',
    )
    with pytest.raises(ResourceLimit, match="nests deeper than 32 calls, or calls itself"):
        load(model)


def test_a_function_that_calls_itself_from_a_body_is_refused() -> None:
    model = parse(
        "g (float[3] x, bool c) => (float[3] y) { y = loc.f(x, c) }"
        ' <domain: "loc", opset_import: ["": 17, "loc": 1]> f (a, c) => (b) { b = If(c) '
        "<then_branch = p () => (float[3] u) { u = loc.f(a, c) }, else_branch = q () => (float[3] v) { v = Neg(a) }> }",
        imports=', "loc": 1',
    )
    with pytest.raises(ResourceLimit, match="calls itself"):
        load(model)


def test_exponential_functions_are_stopped_early() -> None:
    functions = "".join(
        f' <domain: "loc", opset_import: ["": 17, "loc": 1]> f{i} (a) => (c) {{ b = {g}(a)  c = {g}(b) }}'
        for i, g in enumerate(["Neg", *(f"loc.f{i}" for i in range(30))])
    )
    model = parse("g (float[3] x) => (float[3] y) { y = loc.f30(x) }" + functions, imports=', "loc": 1')
    with pytest.raises(ResourceLimit, match="nodes after its functions are inlined; the limit is 500"):
        load(model, ModelLimits(nodes=500))


# Control flow

NESTED = """g (float[3] x, bool c, float[3] far) => (float[3] y) {
  near = Exp(x)
  y = If(c) <
    then_branch = outer_then () => (float[3] a) {
      a = If(c) <
        then_branch = inner_then () => (float[3] p) { p = Add(near, far) },
        else_branch = inner_else () => (float[3] q) { q = Neg(x) }> },
    else_branch = outer_else () => (float[3] b) { m = Mul(x, x)  b = Sub(m, far) }>
}"""


def test_captures_are_found_through_nested_bodies() -> None:
    node = load(parse(NESTED)).nodes[-1]
    then, other = node.attribute("then_branch"), node.attribute("else_branch")
    assert set(then.captures) == {"c", "near", "far", "x"}
    assert set(other.captures) == {"x", "far"}
    assert node.captured == other.captures + then.captures  # in the order of the attributes
    assert set(node.reads) == {"c", "near", "far", "x"}


def test_values_that_bodies_read_may_be_renamed() -> None:
    graph = load(parse(NESTED))
    names = {"near": "p", "far": "m", "x": "a"}  # names that the bodies use for values of their own

    def renamed(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in values)

    nodes = tuple(
        node.__class__(
            node.op,
            renamed(node.inputs),
            renamed(node.outputs),
            node.attributes,
            node.domain,
            node.name,
            node.origin,
            renamed(node.captured),
        )
        for node in graph.nodes
    )
    types = {names.get(name, name): kind for name, kind in graph.types.items()}
    other = graph.replace(inputs=renamed(graph.inputs), nodes=nodes, types=types)
    model = to_model(other)
    onnx.checker.check_model(model, full_check=True)
    x, far = np.array([1, -2, 3], np.float32), np.array([5, 6, 7], np.float32)
    for flag in (True, False):
        expected = run(parse(NESTED), x=x, far=far, c=flag)[0]
        np.testing.assert_array_equal(run(model, a=x, m=far, c=flag)[0], expected)


def test_loop_state_that_grows_has_an_unknown_dimension() -> None:
    model = parse(
        "g (float[1] x, int64 n, bool go) => (float[k] y, float[m, 1] z) { y, z = Loop(n, go, x) <"
        "body = b (int64 i, bool c, float[s] state) => (bool d, float[t] next, float[1] out) "
        "{ d = Identity(c)  next = Concat<axis = 0>(state, x)  out = Neg(x) }> }"
    )
    graph = load(model)
    assert str(graph.types["y"]) == "float32[k]"  # what the model calls it; no number
    assert str(graph.types["z"]) == "float32[m,1]"
    y, z = run(to_model(graph), x=np.ones(1, np.float32), n=np.int64(3), go=True)
    assert y.shape == (4,) and z.shape == (3, 1)


def test_a_node_that_does_not_fit_in_a_branch_never_taken_is_no_error() -> None:
    model = parse(
        "g (float[n,3] x, bool c) => (float[] y) { y = If(c) <"
        "then_branch = t () => (float[] p) { axes = Constant<value_ints = [0]>()  p = Squeeze(x, axes) },"
        "else_branch = e () => (float[] q) { q = Relu(x) }> }"
    )
    graph = bind(load(model), {"x": (2, 3)})
    assert graph.tensor("y").shape is None
    ones = np.ones((2, 3), np.float32)
    (found,) = ReferenceEvaluator(to_model(graph)).run(None, {"x": ones, "c": np.array(False)})
    np.testing.assert_array_equal(found, ones)


def test_sequences_and_optionals_keep_their_types() -> None:
    model = parse(
        "g (seq(float[2]) s, float[2] x) => (int64 n, seq(float[2]) t, optional(float[2]) o) "
        "{ t = SequenceInsert(s, x)  n = SequenceLength(t)  o = Optional(x) }",
        18,
    )
    graph = load(model)
    assert str(graph.types["t"]) == "seq(float32[2])"
    assert str(graph.types["o"]) == "optional(float32[2])"
    assert str(load(to_model(graph)).types["t"]) == "seq(float32[2])"


# Constants


def test_initializers_that_are_inputs_too_are_constants() -> None:
    model = parse("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add(x, w) }", 9)
    model.ir_version = 3
    graph = load(model)
    assert graph.inputs == ("x",)
    np.testing.assert_array_equal(graph.constants["w"].array, [1, 2])


def test_constant_nodes_of_every_kind_become_constants() -> None:
    model = parse(
        "g () => (float a, float[2] b, int64 c, int64[2] d, string e, string[2] f, float[2] h) {"
        "a = Constant<value_float = 1.5>() b = Constant<value_floats = [1.0, 2.0]>() c = Constant<value_int = 3>()"
        'd = Constant<value_ints = [3, 4]>() e = Constant<value_string = "s">() f = Constant<value_strings = ["s", "t"]>()'
        "h = Constant<value = float[2] {5, 6}>() }"
    )
    graph = load(model)
    assert not graph.nodes
    found = {name: constant.array.tolist() for name, constant in graph.constants.items()}
    assert found == {"a": 1.5, "b": [1, 2], "c": 3, "d": [3, 4], "e": "s", "f": ["s", "t"], "h": [5, 6]}
    assert graph.constants["a"].array.dtype == np.float32


@pytest.mark.parametrize("indices", [np.array([1, 5]), np.array([[0, 1], [1, 2]])])
def test_sparse_initializers_are_made_dense(indices: np.ndarray) -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }")
    values = onnx.numpy_helper.from_array(np.array([7, 8], np.float32), "w")
    places = onnx.numpy_helper.from_array(indices.astype(np.int64))
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [2, 3]))
    np.testing.assert_array_equal(load(model).constants["w"].array, [[0, 7, 0], [0, 0, 8]])


def test_a_sparse_index_outside_is_refused() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }")
    values = onnx.numpy_helper.from_array(np.array([7], np.float32), "w")
    for bad in (-1, 6):
        del model.graph.sparse_initializer[:]
        places = onnx.numpy_helper.from_array(np.array([bad]))
        model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [2, 3]))
        with pytest.raises(InvalidModel, match="outside its shape"):
            load(model)


def test_a_huge_sparse_tensor_is_a_resource_limit() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    values = onnx.numpy_helper.from_array(np.array([7], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.array([1]))
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [2**36]))
    with pytest.raises(ResourceLimit, match="made dense"):
        load(model)


# Order


def test_nodes_in_any_order_are_sorted() -> None:
    model = parse("g (float[3] x) => (float[3] y) { y = Neg(b)  b = Exp(a)  a = Relu(x) }")
    assert [node.op for node in load(model).nodes] == ["Relu", "Exp", "Neg"]


def test_a_sorted_model_keeps_its_order() -> None:
    model = parse("g (float[3] x) => (float[3] y) { b = Exp(x)  a = Relu(x)  y = Add(a, b) }")
    assert [node.op for node in load(model).nodes] == ["Exp", "Relu", "Add"]


BROKEN = {
    "cycle": (
        "g (float[3] x) => (float[3] y) { a = Add(x, b)  b = Neg(a)  y = Relu(b) }",
        "cycle, among them 'a', 'b'",
    ),
    "self": ("g (float[3] x) => (float[3] y) { y = Add(x, y) }", "cycle, among them 'y'"),
    "undefined": (
        "g (float[3] x) => (float[3] y) { y = Add(x, ghost) }",
        r"'y' \(Add\) reads 'ghost', which is not defined",
    ),
    "output": ("g (float[3] x) => (float[3] nowhere) { y = Relu(x) }", "output 'nowhere' is not defined"),
    "twice": ("g (float[3] x) => (float[3] y) { y = Relu(x)  y = Neg(x) }", "'y', written by node 'y', already exists"),
    "input": ("g (float[3] x) => (float[3] y) { x = Relu(x)  y = Neg(x) }", "'x'.*already exists"),
    "constant": ("g (float[3] x) => (float[3] y) <float[3] y = {1,2,3}> { y = Relu(x) }", "'y'.*already exists"),
    "shapes": ("g (float[3] x, float[4] z) => (float[3] y) { y = Add(x, z) }", r"'y' \(Add\)"),
    "types": ("g (float[3] x, int64[3] z) => (float[3] y) { y = Add(x, z) }", r"'y' \(Add\)"),
    "few": ("g (float[3] x) => (float[3] y) { y = Add(x) }", "has 1 inputs; the operator takes 2 to 2"),
    "many": ("g (float[3] x) => (float[3] y) { y = Relu(x, x) }", "has 2 inputs; the operator takes 1 to 1"),
    "unknown attribute": (
        "g (float[3] x) => (float[3] y) { y = Relu<size = 3>(x) }",
        "'size' that the operator does not take",
    ),
    "wrong attribute": ("g (float[3] x) => (float[3] y) { y = Elu<alpha = 3>(x) }", "'alpha' of the wrong type"),
    "missing attribute": ("g (float[3] x) => (float[3] y) { y = Concat(x, x) }", "lacks the attribute 'axis'"),
    "body": (
        (
            "g (float[3] x, bool c) => (float[3] y) { y = If(c) <then_branch = t () => (float[3] a) { a = Neg(ghost) },"
            "else_branch = e () => (float[3] b) { b = Neg(x) }> }"
        ),
        r"node 'y' \(If\) reads 'ghost', which is not defined",
    ),
    "late": (
        (
            "g (float[3] x, bool c) => (float[3] y) { y = If(c) <then_branch = t () => (float[3] a) { a = Neg(y) },"
            "else_branch = e () => (float[3] b) { b = Neg(x) }> }"
        ),
        "cycle",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_graph_is_refused_by_name(name: str) -> None:
    text, reason = BROKEN[name]
    with pytest.raises(InvalidModel, match=reason) as caught:
        load(parse(text))
    assert "\n" not in str(caught.value)


# Operators and opsets


def test_all_unsupported_operators_are_listed_at_once() -> None:
    model = parse(
        "g (float[3] x, bool c) => (float[3] y) { a = com.microsoft.Tokenizer(x, x)  b = GRUUnit(a)  d = org.example.Own(b)"
        "  y = If(c) <then_branch = t () => (float[3] p) { p = com.microsoft.AttnLSTM(x) },"
        " else_branch = e () => (float[3] q) { q = com.microsoft.AttnLSTM(x) }> }",
        imports=', "com.microsoft": 1, "org.example": 2',
    )
    with pytest.raises(UnsupportedModel) as caught:
        load(model)
    text = str(caught.value)
    assert "4 unsupported operators" in text and "\n" not in text
    for part in (
        "GRUUnit (opset 17, node 'b', the nearest known name is GRU)",
        "com.microsoft.Tokenizer (opset 1",
        "com.microsoft.AttnLSTM",
        "org.example.Own",
    ):
        assert part in text


def test_a_domain_without_an_opset_is_refused() -> None:
    with pytest.raises(InvalidModel, match=r"'y' \(Gelu\) is of the domain 'com.microsoft'.*does not import"):
        load(parse("g (float[3] x) => (float[3] y) { y = com.microsoft.Gelu(x) }"))


def test_the_classical_machine_learning_domain_is_kept() -> None:
    model = parse(
        'g (float[1,3] x) => (float[1,3] y) { y = ai.onnx.ml.Normalizer<norm = "L2">(x) }', imports=', "ai.onnx.ml": 3'
    )
    graph = load(model)
    assert graph.nodes[0].domain == "ai.onnx.ml" and dict(graph.opsets) == {"ai.onnx.ml": 3}
    x = np.array([[3, 0, 4]], np.float32)
    np.testing.assert_allclose(run(to_model(graph), x=x)[0], x / 5)


@pytest.mark.parametrize("opset", [5, 29, 1000, 0, -1])
def test_an_opset_out_of_range_is_refused(opset: int) -> None:
    model = parse("g (float[3] x, float[3] z) => (float[3] y) { y = Add(x, z) }")
    model.opset_import[0].version = opset
    with pytest.raises(UnsupportedModel):
        load(model)


def test_a_newer_model_is_relabelled_when_it_uses_nothing_new() -> None:
    model = parse(
        "g (float[2,3] x, int64[1] s) => (float y) { a = Relu(x)  b = Cast<to = 1>(a)  y = Reshape(b, s) }", 25
    )
    assert load(model).opset == PINNED_OPSET


@pytest.mark.parametrize(
    "text",
    [
        "g (float[3] x) => (float[3] y) { y = Swish(x) }",
        'g (float[3] x) => (float8e8m0[3] y) { y = Cast<to = 24, round_mode = "up">(x) }',
        "g (uint2[3] x) => (uint2[3] y) { y = Identity(x) }",
    ],
)
def test_a_newer_model_that_needs_its_opset_keeps_it(text: str) -> None:
    graph = load(parse(text, 25))
    assert graph.opset == 25
    onnx.checker.check_model(to_model(graph), full_check=True)


# Limits


def test_limits_hold() -> None:
    model = parse("g (float[3] x) => (float[3] y) { a = Relu(x)  b = Neg(a)  y = Exp(b) }")
    with pytest.raises(ResourceLimit, match="more than 2 nodes"):
        load(model, ModelLimits(nodes=2))
    with pytest.raises(ResourceLimit, match="dimensions"):
        load(parse(f"g (float[{','.join('1' * 40)}] x) => (float y) {{ y = ReduceSum(x) }}"))
    with pytest.raises(ResourceLimit, match="elements"):
        load(parse("g (float[1] x) => (float[t] y) <int64[2] s = {2000000, 2000000}> { y = Expand(x, s) }"))
    with pytest.raises(ResourceLimit, match="elements"):
        load(parse("g (float[1] x) => (float[t] y) <int64[2] s = {4611686018427387904, 4}> { y = Expand(x, s) }"))
    long = parse("g (float[3] x) => (float[3] y) { y = Relu(x) }")
    long.graph.node[0].name = "n" * (2**20 + 1)
    with pytest.raises(ResourceLimit, match="characters long"):
        load(long)


def test_deep_nesting_is_refused() -> None:
    body = "y = Neg(x)"
    for i in range(20):
        other = f"else_branch = e{i} () => (float[3] z) {{ z = Neg(x) }}"
        body = f"y = If(c) <then_branch = t{i} () => (float[3] y) {{ {body} }}, {other}>"
    with pytest.raises(FusewiseError, match="nest"):
        load(parse(f"g (float[3] x, bool c) => (float[3] y) {{ {body} }}"))


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load(tmp_path / "gone.onnx")
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path)
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(InvalidModel, match="it is empty"):
        load(tmp_path / "empty.onnx")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(LIGHT[0].read_bytes()[:-1000])
    with pytest.raises(InvalidModel, match=r"cut\.onnx is truncated or not an ONNX model"):
        load(path)


@pytest.mark.parametrize("shape, length", [([3], 8), ([2**20, 2**25], 8), ([-1], 4), ([2**62, 4], 8), ([0], 4)])
def test_weights_that_do_not_fit_their_shape_are_refused(shape: list[int], length: int) -> None:
    model = parse("g (float[3] x) => (float[3] y) { y = Relu(x) }")
    model.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=shape, raw_data=bytes(length)))
    with pytest.raises((InvalidModel, ResourceLimit), match="'w'"):
        load(model)
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].float_data.extend([1.0] * (length // 4))
    with pytest.raises((InvalidModel, ResourceLimit), match="'w'"):
        load(model)


def test_an_unknown_element_type_is_refused() -> None:
    model = parse("g (float[3] x) => (float[3] y) { y = Relu(x) }")
    model.graph.initializer.append(onnx.TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1234"))
    with pytest.raises(InvalidModel, match="unknown element type 99"):
        load(model)


@pytest.mark.parametrize("version", [-1, 2**31, 2**63 - 1])
@pytest.mark.parametrize("domain", ["ai.onnx.ml", "somebody.else"])
def test_versions_that_no_domain_has_are_refused(domain: str, version: int) -> None:
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], domain=domain)], "g", [], [])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(domain, version)], ir_version=10)
    with pytest.raises(InvalidModel, match=f"imports version {version} of the domain"):
        load(model)


def test_an_attribute_that_is_given_twice_is_refused() -> None:
    node = onnx.helper.make_node("Elu", ["x"], ["y"], alpha=1.0)
    node.attribute.append(onnx.helper.make_attribute("alpha", 2.0))
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [3]) for name in "xy")
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), ir_version=10)
    with pytest.raises(InvalidModel, match="has its attribute 'alpha' more than once"):
        load(model)
