"""Other runtimes give the same answers through the seam, and a missing or unable one is said to be so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusewise.benchmarking.accuracy import relative_error
from fusewise.benchmarking.contest import ContestRules, contest
from fusewise.benchmarking.meters import footprint, load_feeds, peak_rss_mb, save_feeds
from fusewise.benchmarking.peers import PEERS, Peer, Subject, opener_of, peers_named
from fusewise.benchmarking.timing import TimingBudget
from fusewise.errors import FusewiseError, UsageError
from fusewise.frontend.onnx_export import save
from fusewise.ops.build import GraphBuilder

SHORT = TimingBudget(runs=2, seconds=0.0, block_seconds=0.001)


@pytest.fixture
def subject(tmp_path):
    b = GraphBuilder("tiny")
    x = b.input("x", (3, 8))
    w = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    save(b.finish(b.op("Relu", b.op("MatMul", x, b.constant(w)), name="y")), tmp_path / "tiny.onnx")
    return Subject(tmp_path / "tiny.onnx", ("x",), None, {"shapes": {"x": [3, 8]}})


@pytest.fixture
def feeds():
    return {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}


def expected(feeds):
    return np.maximum(feeds["x"] @ np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), 0)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_peer_runs_the_model(name, subject, feeds):
    pytest.importorskip(name)
    (peer,) = peers_named((name,))
    (found,) = opener_of(peer)(subject, 1).run(feeds)
    assert relative_error(np.array(found), expected(feeds)) < 1e-6


def test_openvino_may_take_bfloat16_where_the_subject_may(subject, feeds):
    pytest.importorskip("openvino")
    (peer,) = peers_named(("openvino",))
    allowed = replace(subject, options={**subject.options, "precision": "bfloat16"})
    (found,) = opener_of(peer)(allowed, 1).run(feeds)
    assert relative_error(np.array(found), expected(feeds)) < 2e-2


@pytest.mark.slow
def test_torch_runs_a_saved_program(tmp_path, feeds):
    torch = pytest.importorskip("torch")

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2, x + 1

    program = torch.export.export(Doubled(), (torch.zeros(3, 8),))
    torch.export.save(program, tmp_path / "doubled.pt2")
    (peer,) = peers_named(("torch",))
    found = opener_of(peer)(Subject(tmp_path / "none.onnx", ("x",), tmp_path / "doubled.pt2"), 1).run(feeds)
    assert np.array_equal(found[0], feeds["x"] * 2) and np.array_equal(found[1], feeds["x"] + 1)


def test_torch_needs_a_program(subject):
    pytest.importorskip("torch")
    (peer,) = peers_named(("torch",))
    with pytest.raises(UsageError, match="came from a PyTorch module"):
        opener_of(peer)(subject, 1)


def test_unknown_and_missing_peers_are_refused_by_name():
    with pytest.raises(UsageError, match="no runtime 'tensorfoo'.*onnxruntime"):
        peers_named(("tensorfoo",))
    assert Peer("x", ("no_such_package",), "a:b").missing == ("no_such_package",)
    assert [peer.name for peer in PEERS if peer.opener] == ["onnxruntime", "openvino", "torch", "torch.compile"]


def test_feeds_survive_the_way_to_a_child(tmp_path):
    feeds = {"a/b:0": np.arange(3), "": np.ones((0, 2), np.float16), "names": np.array(True)}
    save_feeds(tmp_path / "feeds.npz", feeds)
    found = load_feeds(tmp_path / "feeds.npz")
    assert list(found) == list(feeds)
    assert all(np.array_equal(found[name], feeds[name]) and found[name].dtype == feeds[name].dtype for name in feeds)


class Waiting:
    def __init__(self, megabytes: int = 0) -> None:
        self.held = np.ones(megabytes * 125_000)

    def run(self, feeds):
        return [feeds["x"] * 2]


def open_small(subject, threads):
    return Waiting()


def open_large(subject, threads):
    return Waiting(200)


def open_broken(subject, threads):
    raise RuntimeError("no kernel for Relu\nand a long story")


class Failing:
    def run(self, feeds):
        raise ValueError("no compiler was found\nwhere one was looked for")


def open_failing(subject, threads):
    return Failing()


def here(name):
    """A peer whose opener is in this file, found by a child process through the search path."""
    return Peer(name, ("numpy",), f"test_peers:open_{name}")


@pytest.fixture
def importable(monkeypatch):
    from pathlib import Path

    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("importable")
def test_memory_is_that_of_the_child_alone(tmp_path, subject, feeds):
    ballast = np.ones(40_000_000)  # 320 MB here must not be charged to a child
    save_feeds(tmp_path / "feeds.npz", feeds)
    small, large = (footprint(here(name), subject, 1, tmp_path / "feeds.npz") for name in ("small", "large"))
    assert peak_rss_mb() > ballast.nbytes / 1e6 > small.peak_rss_mb
    assert 190 < large.peak_rss_mb - small.peak_rss_mb < 215
    assert small.load_ms >= 0 and small.first_run_ms >= 0


@pytest.mark.usefixtures("importable")
def test_a_child_that_fails_says_why(tmp_path, subject, feeds):
    save_feeds(tmp_path / "feeds.npz", feeds)
    with pytest.raises(FusewiseError, match="broken could not be measured.*long story"):
        footprint(here("broken"), subject, 1, tmp_path / "feeds.npz")


@pytest.mark.usefixtures("importable")
def test_a_contest_has_its_keys_and_goes_on_without_a_peer_that_cannot(subject, feeds):
    found = contest(here("small"), [here("large"), here("broken")], subject, feeds, ContestRules(1, SHORT))
    assert set(found) == {"runtimes", "best_peer", "ratio", "max_rel_error"}
    assert found["runtimes"]["broken"] == {"error": "no kernel for Relu"}
    row = found["runtimes"]["large"]
    assert {"p50_ms", "p90_ms", "min_ms", "load_ms", "peak_rss_mb", "max_rel_error"} <= set(row)
    assert row["max_rel_error"] == 0.0 and found["max_rel_error"] == 0.0
    assert found["best_peer"] == "large"
    assert found["ratio"] == pytest.approx(row["p50_ms"] / found["runtimes"]["small"]["p50_ms"])


@pytest.mark.usefixtures("importable")
def test_a_peer_that_fails_when_it_first_runs_is_left_out_too(subject, feeds):
    peers = [here("failing"), here("large")]
    found = contest(here("small"), peers, subject, feeds, ContestRules(1, SHORT, weigh=False))
    assert found["runtimes"]["failing"] == {"error": "no compiler was found"}
    assert found["best_peer"] == "large"
    with pytest.raises(ValueError, match="no compiler"):
        contest(here("failing"), [here("large")], subject, feeds, ContestRules(1, SHORT, weigh=False))


@pytest.mark.usefixtures("importable")
def test_a_contest_without_peers_still_times(subject, feeds):
    found = contest(here("small"), [], subject, feeds, ContestRules(1, SHORT, weigh=False))
    assert found["ratio"] is None and found["best_peer"] is None and found["max_rel_error"] is None
    assert found["runtimes"]["small"]["peak_rss_mb"] is None
