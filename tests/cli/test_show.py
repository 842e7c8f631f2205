"""What verbs put on the terminal, and how much of it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.cli.show import facts, progress, table
from fusewise.cli.streams import Talk, streams, words_and_talk


def test_words_are_cut_where_a_line_has_no_room_and_numbers_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [("a" * 150, "12345.678", "b" * 90, "[x]"), ("short", "1.5", "c", "9" * 20)]
    table(("name", "ms", "nodes", "count"), rows, words=(0, 2))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 160 for line in lines)
    long, *more = (line for line in lines if "aaa" in line)
    assert "12345.678" in long and "[x]" in long and long.count("…") == 1
    assert sum(line.count("a") for line in (long, *more)) == 150, "the key is whole"
    assert any("9" * 20 in line for line in lines)


@pytest.mark.parametrize(
    "columns, left", [(120, []), (80, ["far"]), (60, ["far", "middle"]), (20, ["far", "middle", "near"])]
)
def test_columns_go_by_rank_and_the_key_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, left: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    cells = ("a key of some length", "1" * 20, "2" * 20, "3" * 20)
    table(("key", "middle", "near", "far"), [cells], ranks=(0, 2, 1, 3))
    shown = capsys.readouterr().out
    assert "a key of some length" in shown
    assert all(len(line) <= columns for line in shown.splitlines() if "no room" not in line and "near" not in line)
    for heading, cell in zip(("middle", "near", "far"), cells[1:], strict=True):
        assert (cell in shown) == (heading not in left)
    told = " ".join(shown.split())
    assert all(name in told.partition("no room for:")[2] for name in left)
    assert ("no room for" in told) == bool(left)


def test_columns_without_anything_go_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table(("key", "unknown", "last"), [("k" * 20, "", "1" * 12)], ranks=(0, 1, 2))
    shown = capsys.readouterr().out
    assert "1" * 12 in shown and "(no room for: unknown)" in shown


def test_a_name_without_a_value_ends_where_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    facts([("a heading", ""), ("  row", "its value")])
    assert capsys.readouterr().out == "a heading\n  row      its value\n"


@given(
    st.integers(20, 200), st.lists(st.tuples(*[st.text("ab ", min_size=1, max_size=90)] * 4), min_size=1, max_size=4)
)
def test_no_line_of_words_is_wider_than_the_terminal(columns: int, rows: list[tuple[str, ...]]) -> None:
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(columns))
        patched.setattr("sys.stdout", shown)
        table(("key", "a", "b", "c"), rows, words=range(4), ranks=(0, 3, 1, 2))
    assert all(len(line) <= columns for line in shown.getvalue().splitlines())


def test_long_values_go_on_below(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    facts([("a name", "word " * 20), ("b", "first\nsecond")])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert [line[:8] for line in lines[-2:]] == ["b       ", " " * 8]
    monkeypatch.delenv("COLUMNS")
    facts([("a name", "word " * 20)])
    assert len(capsys.readouterr().out.splitlines()) == 1, "what another program reads stays one line"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def phases(report: Callable[[str, float], None]) -> None:
    for what, share in (("loading", 0.0), ("searching: best 3", 0.5), ("searching: best 2", 0.75)):
        report(what, share)


def test_phases_are_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, is_drawn in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress() as report:
            phases(report)
        said = stream.getvalue()
        assert ("loading" in said and "searching: best 2" in said and "75%" in said and "0:00:00" in said) == is_drawn
        assert bool(said) == is_drawn


def test_quiet_says_nothing_and_verbose_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, lines in ((Talk.QUIET, []), (Talk.VERBOSE, ["loading", "searching"])):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        with streams(said), progress() as report:
            phases(report)
        found = stream.getvalue().splitlines()
        assert [line.removeprefix("fusewise: ").partition(":")[0] for line in found] == lines
        assert all(line.endswith(" ms") for line in found)


def test_words_that_may_stand_anywhere() -> None:
    assert words_and_talk(["run", "m", "-q"]) == (["run", "m"], Talk.QUIET, False)
    assert words_and_talk(["-v", "run", "--debug"]) == (["run"], Talk.VERBOSE, True)
    assert words_and_talk(["run", "--", "-q"]) == (["run", "--", "-q"], Talk.USUAL, False)
