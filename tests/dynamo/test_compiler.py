"""`torch.compile` with this program behind it gives eager PyTorch's answers, and says what it leaves to PyTorch."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import compile_nothing, share

from fusewise import api
from fusewise.benchmarking.accuracy import TOLERANCES
from fusewise.dynamo import compiler
from fusewise.dynamo.compiler import LEFT, TUNING_SECONDS, backend
from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[api.Options]:
    """How each program that is compiled in a test was asked for."""
    found: list[api.Options] = []
    compile_one = api.compile

    def noted(graph: Any, options: api.Options) -> api.Model:
        found.append(options)
        return compile_one(graph, options)

    monkeypatch.setattr("fusewise.dynamo.running.api.compile", noted)
    return found


def compiled(module: Any, **settings: Any) -> Callable[..., Any]:
    """A module or function behind this backend, where nothing is left to PyTorch."""
    found = torch.compile(module, backend=backend, **settings)

    def call(*values: Any) -> Any:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("error", RuntimeWarning)
            return found(*values)

    return call


def agree(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Are two answers of one structure, with tensors of one type that lie alike, and numbers that are close by the largest?"""
    assert type(found) is type(expected)
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            agree(one, other, tolerance)
    elif isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
        if expected.numel():
            assert (found.double() - expected.double()).abs().max() <= tolerance * expected.double().abs().max()
    else:
        assert found == expected


class Layer(torch.nn.Module):
    """A product and a buffer to add."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.product = torch.nn.Linear(width, width)
        self.register_buffer("shift", torch.randn(width))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.product(x)) + self.shift


def test_outputs_are_of_eagers_types_and_lie_as_eagers() -> None:
    def several(x: Any, y: Any) -> Any:
        product = x @ y
        row = product.sum(0, keepdim=True) * 2
        whole = product.argmax(1)
        return (
            product,
            product.t() + 1,
            product.t(),
            row.expand(3, 5),
            product > 0,
            whole,
            whole.int(),
            None,
            3,
            x,
            x.t(),
            product,
        )

    x, y = torch.randn(4, 6), torch.randn(6, 5)
    found = compiled(several)(x, y)
    agree(found, several(x, y))
    assert found[9] is x and found[10].data_ptr() == x.data_ptr() and found[0] is found[11]


def test_a_batch_that_changes_becomes_a_symbol(made: list[api.Options]) -> None:
    def folded(x: Any) -> Any:
        count = x.shape[0]
        return (x.reshape(count // 2, 2, -1) * count).sum(1), count

    call = compiled(folded)
    for count in (4, 6, 10, 14, 8):
        x = torch.randn(count, 3)
        agree(call(x), folded(x))
    assert [list(one.symbols) != [] for one in made] == [False, True]


def test_what_a_graph_writes_to_is_written_to() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))
            self.register_buffer("past", torch.zeros(3, 4))

        def forward(self, x: Any, at: Any) -> Any:
            self.seen += x.abs()
            self.past[at] = x
            x.mul_(2)
            return self.past * self.seen

    ours, eager = Counter(), Counter()
    call = compiled(ours)
    for place in (0, 2, 1):
        x, at = torch.randn(4), torch.tensor([place])
        y = x.clone()
        agree(call(x, at), eager(y, at))
        agree([x, ours.seen, ours.past], [y, eager.seen, eager.past])


def test_a_batch_in_training_is_normed_by_its_own_statistics() -> None:
    ours, eager = (torch.nn.BatchNorm1d(4).train() for _ in range(2))
    call = compiled(ours)
    for _ in range(2):
        x = torch.randn(5, 4) * 3 + 1
        with torch.no_grad():
            agree(call(x), eager(x))
        agree(list(ours.buffers()), list(eager.buffers()))


@pytest.mark.parametrize("made_in", [False, True])
def test_parameters_written_to_under_inference_mode_are_followed(made_in: bool) -> None:
    with torch.inference_mode(made_in):
        module = Layer()
    call, x = compiled(module), torch.randn(2, 8)
    with torch.inference_mode():
        for _ in range(2):
            agree(call(x), module(x))
            module.product.weight.mul_(2)


def test_nothing_gives_nothing() -> None:
    def doubled(x: Any) -> Any:
        return x * 2, x.sum(), torch.cat([x, x])

    x = torch.ones(0, 4)
    agree(compiled(doubled)(x), doubled(x))


def test_parameters_that_change_are_followed_and_soon_are_inputs(made: list[api.Options]) -> None:
    module = Layer()
    call, x = compiled(module), torch.randn(2, 8)
    for turn in range(6):
        agree(call(x), module(x).detach())
        with torch.no_grad():
            module.product.weight.mul_(1.5)
        if turn == 4:
            module.product.bias = torch.nn.Parameter(torch.randn(8))
    agree(call(x), module(x).detach())
    assert 4 <= len(made) <= 6


def test_a_parameter_that_is_given_other_memory_is_followed() -> None:
    module = Layer()
    call, x = compiled(module), torch.randn(2, 8)
    for _ in range(2):
        agree(call(x), module(x).detach())
        module.product.weight.data = torch.randn(8, 8)
    agree(call(x), module(x).detach())


def test_a_parameter_that_is_written_to_while_it_is_compiled_for_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    module, compile_one = Layer(), api.compile
    call, x = compiled(module), torch.randn(2, 8)

    def disturbed(graph: Any, options: api.Options) -> api.Model:
        found = compile_one(graph, options)
        with torch.no_grad():
            module.product.weight.mul_(1.5)
        return found

    with monkeypatch.context() as patched:
        patched.setattr("fusewise.dynamo.running.api.compile", disturbed)
        call(x)
    agree(call(x), module(x).detach())


def test_layers_that_share_a_graph_keep_their_parameters(made: list[api.Options]) -> None:
    layers = [Layer() for _ in range(3)]
    x = torch.randn(2, 8)
    for _ in range(2):
        torch._dynamo.reset_code_caches()
    calls = [compiled(layer) for layer in layers]
    for _ in range(2):
        for call, layer in zip(calls, layers, strict=True):
            agree(call(x), layer(x).detach())
    assert len(made) == 3


def test_each_side_of_a_break_is_compiled(made: list[api.Options]) -> None:
    def broken(x: Any) -> Any:
        x = torch.sin(x) * 2
        torch._dynamo.graph_break()
        return torch.cos(x) + 1

    x = torch.randn(5)
    agree(compiled(broken)(x), broken(x))
    assert len(made) == 2


@torch.library.custom_op("fusewise_tests::odd", mutates_args=())
def odd(x: torch.Tensor) -> torch.Tensor:
    """An operator that nobody else knows."""
    return x * 3


odd.register_fake(torch.empty_like)


def left(call: Callable[..., Any], *values: Any) -> tuple[Any, str]:
    """An answer, and the one warning that tells what was left to PyTorch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = call(*values)
        call(*values)
    told = [str(one.message) for one in caught if str(one.message).startswith(LEFT)]
    assert len(told) == 1
    assert "\n" not in told[0] and "\x1b" not in told[0]
    return answer, told[0]


def test_an_unknown_operator_is_left_to_pytorch_by_name() -> None:
    def strange(x: Any) -> Any:
        return torch.ops.fusewise_tests.odd(x) + 1

    x = torch.randn(3)
    answer, told = left(torch.compile(strange, backend=backend), x)
    agree(answer, x * 3 + 1)
    assert "fusewise_tests.odd.default" in told and "test_compiler.py:" in told and "odd(x) + 1" in told


def test_what_needs_gradients_is_left_to_pytorch() -> None:
    module = Layer()
    x = torch.randn(2, 8)
    answer, told = left(torch.compile(module, backend=backend), x)
    assert "torch.no_grad()" in told
    answer.sum().backward()
    assert module.product.weight.grad is not None


def test_a_graph_that_switches_gradients_off_is_compiled(made: list[api.Options]) -> None:
    module = Layer()

    @torch.no_grad()
    def quiet(x: Any) -> Any:
        return module(x) * 2

    x = torch.randn(2, 8)
    found = torch.compile(quiet, backend=backend)(x)
    agree(found, quiet(x))
    assert len(made) == 1 and not found.requires_grad


def test_random_numbers_are_pytorchs() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).train()
    call, x = torch.compile(module, backend=backend), torch.randn(2, 8)
    with torch.no_grad():
        torch.manual_seed(1)
        answer, told = left(call, x)
        torch.manual_seed(1)
        agree(answer, module(x))
        assert "dropout" in told
        agree(compiled(module.eval())(x), module(x))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_half_types(name: str) -> None:
    kind = getattr(torch, name)
    module = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).to(kind)
    x = torch.randn(3, 16, dtype=kind)
    agree(compiled(module)(x), module(x).detach(), TOLERANCES[name])


def test_types_that_numpy_has_not() -> None:
    x, there, back = torch.randn(3, 4), (lambda t: (t * 2).to(torch.float8_e4m3fn)), (lambda t: t.to(torch.float32) * 2)
    found = compiled(there)(x)
    assert found.dtype is torch.float8_e4m3fn and torch.equal(found.float(), there(x).float())
    assert torch.equal(compiled(back)(found), back(found))


def test_tied_weights_under_inference_mode() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(12, 8)
            self.back = torch.nn.Linear(8, 12, bias=False)
            self.back.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.back(self.table(ids)), self.table.weight

    module, ids = Tied(), torch.tensor([[1, 5, 11]])
    with torch.inference_mode():
        found = torch.compile(module, backend=backend)(ids)
        agree(found[0], module(ids)[0])
    assert found[1] is module.table.weight


def test_modes_options_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[api.Options] = []
    compile_one = api.compile

    def untuned(graph: Any, options: api.Options) -> api.Model:
        found.append(options)
        return compile_one(graph)

    monkeypatch.setattr("fusewise.dynamo.running.api.compile", untuned)
    x = torch.randn(3)
    compiled(torch.sin, mode="max-autotune")(x)
    compiled(torch.cos, options={"exact": True, "threads": 1})(x)
    first, second = found
    assert (first.tune, first.threads) == (TUNING_SECONDS, torch.get_num_threads())
    assert (second.tune, second.exact, second.threads) == (0.0, True, 1)
    for options, said in (
        ({"exakt": True}, "exakt"),
        ({"values": {}}, "'values'"),
        ({"precision": "float7"}, "no precision 'float7'"),
        ({"precision": "bfloat16", "exact": True}, "exact does not allow"),
        ({"fusion": "dnnfuse"}, "no fusion planner 'dnnfuse'"),
        ({"disable": ["winnograd"]}, "'winnograd'"),
    ):
        with pytest.raises(Exception, match=f"UsageError.*{said}"):
            compiled(torch.tan, options=options)(x)


def test_the_mode_for_speed_measures_and_keeps_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In earnest, for a second: ways to run tasks are timed on this machine, and are known to whoever compiles the graph next."""
    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(compiler._MODES, "max-autotune", 1.0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 64, 32)
    )
    x = torch.randn(1, 8, 8, 8)
    agree(compiled(module)(x), module(x))
    assert ProfileDatabase(tmp_path, machine_name()).entries() == []
    torch._dynamo.reset()
    agree(compiled(module, mode="max-autotune")(x), module(x))
    assert len(ProfileDatabase(tmp_path, machine_name()).entries()) > 1


def test_what_cannot_be_compiled_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Any, options: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr("fusewise.dynamo.running.api.compile", refuse)
    x = torch.randn(3)
    with torch.no_grad():
        answer, told = left(torch.compile(torch.sinh, backend=backend), x)
    agree(answer, torch.sinh(x))
    assert "MemoryError: no room" in told


def test_the_entry_point_is_the_backend() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["torch_dynamo_backends"] == {"fusewise": "fusewise.dynamo:backend"}


@needs_triton
def test_graphs_run_on_a_gpu(device: Any, made: list[api.Options], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the processor go there and come back; parameters are constants there."""
    compile_nothing(monkeypatch)
    opened = share(monkeypatch, device)
    chosen = {"device": "cuda", "cache": False}

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.randn(8))
            self.register_buffer("shift", torch.randn(8))

        def forward(self, x: Any) -> Any:
            return torch.softmax(x * self.scale + self.shift, -1), x

    module, x = Small().eval(), torch.randn(3, 8)
    call = compiled(module, dynamic=False, options=chosen)
    agree(call(x), module(x))
    with torch.no_grad():
        module.scale.mul_(2.0)
    agree(call(x), module(x))
    assert [one.device for one in made] == ["cuda", "cuda"] and opened
    free = torch.compile(module, backend=backend, dynamic=True, options=chosen)
    with (
        torch.no_grad(),
        pytest.warns(
            RuntimeWarning,
            match="its sizes .* are free, and graphs are compiled for a GPU at known sizes alone: say dynamic=False",
        ),
    ):
        agree(free(x), module(x))
    share(monkeypatch, None)
    with pytest.raises(Exception, match="there is no driver of NVIDIA's"), torch.no_grad():
        torch.compile(lambda x: x + 1, backend=backend, options=chosen)(x)
