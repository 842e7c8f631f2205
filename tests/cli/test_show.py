"""What verbs put on the terminal."""

from __future__ import annotations

import pytest

from fusewise.cli.show import table


def test_words_are_cut_where_a_line_has_no_room_and_numbers_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a" * 150, "12345.678", "b" * 90, "[x]"), ("short", "1.5", "c", "9" * 20)]
    table(("name", "ms", "nodes", "count"), rows, words=(0, 2))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 160 for line in lines)
    (long,) = (line for line in lines if "aaa" in line)
    assert "12345.678" in long and "[x]" in long and long.count("…") == 2
    assert any("9" * 20 in line for line in lines)
    assert len([line for line in lines if line.strip(" ─")]) == 3, "a heading and a line for each row"
