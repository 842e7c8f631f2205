"""Two documents beside each other: groups matched by written nodes, what differs named, models told apart."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.errors import UsageError
from fusewise.reporting.document.comparison import compared, figure_rows, require_same_model


def document(
    groups: list[list[str]], ms: list[float] | None = None, way: str = "product tile=6", **more: Any
) -> dict[str, Any]:
    """A document whose groups cover these written nodes, a kernel for each."""
    names = [name for group in groups for name in group]
    nodes = [{"id": k, "name": f"n{k}", "op": "Relu", "origin": [name]} for k, name in enumerate(names)]
    number = iter(range(len(names)))
    written = [{"id": k, "name": name, "op": "Relu", "origin": [name]} for k, name in enumerate(dict.fromkeys(names))]
    return {
        "schema": "fusewise-report",
        "version": 1,
        "title": "m",
        "verb": "report",
        "made": {"fusewise": "0.1", "at": "2026-01-01T00:00:00Z"},
        "machine": {"processor": "p", "threads": 2, "instruction_set": "avx2"},
        "options": {},
        "model": {"name": "m", "inputs": {"x": "float32[1]"}, "outputs": {"y": "float32[1]"}},
        "graphs": {"written": {"nodes": written}, "native": {"nodes": nodes}},
        "groups": [
            {"id": k, "title": "Relu", "nodes": [next(number) for _ in group], "steps": [k]}
            for k, group in enumerate(groups)
        ],
        "steps": [{"index": k, "kernel": k, "kind": "native"} for k in range(len(groups))],
        "kernels": [{"id": k, "way": way, "code_bytes": 10} for k in range(len(groups))],
        "times": None if ms is None else {"ms": sum(ms), "groups": [{"group": k, "ms": t} for k, t in enumerate(ms)]},
        "compile": {"ms": 5.0, "stages": [{"name": "reading", "ms": 1.0}, {"name": "reading", "ms": 2.0}]},
        "decisions": [
            {"kind": "pass", "what": way, "where": [], "reason": "0.1 ms, nothing to do", "applied": False},
            {"kind": "fuse", "what": "fuse", "where": ["a", "b"], "reason": "r", "applied": True},
        ],
        **more,
    }


def test_equal_documents_do_not_differ() -> None:
    one = document([["a", "b"], ["c"]], [1.0, 2.0])
    found = compared(one, deepcopy(one))
    assert json.loads(json.dumps(found)) == found
    assert not found["differences"] and all(row["ratio"] in (1.0, None) for row in found["figures"])
    assert [row["regrouped"] or row["another_way"] for row in found["groups"]] == [False, False]
    assert found["decisions"] == {"first": {"count": 0, "rows": []}, "second": {"count": 0, "rows": []}, "both": 1}
    assert found["stages"] == [{"name": "reading", "first": 3.0, "second": 3.0, "ratio": 1.0}]


def test_what_was_made_otherwise_is_named() -> None:
    first = document([["a", "b"], ["c"]], [1.0, 2.0])
    second = document([["c"], ["a"], ["b"]], [3.0, 0.25, 0.25], way="product tile=8", options={"fusion": "none"})
    second["machine"]["processor"] = "q"
    second["decisions"][1]["applied"] = False
    found = compared(first, second)
    told = {row["what"]: (row["first"], row["second"]) for row in found["differences"]}
    assert told == {"processor": ("p", "q"), "option fusion": ("-", "none")}
    slower, faster = found["groups"]
    assert (slower["written"], slower["ratio"], slower["regrouped"], slower["another_way"]) == (["c"], 1.5, False, True)
    assert (faster["written"], faster["ratio"], faster["regrouped"]) == (["a", "b"], 0.5, True)
    assert (faster["first_groups"], faster["second_groups"]) == ([0], [1, 2])
    assert found["decisions"]["first"]["count"] == found["decisions"]["second"]["count"] == 1
    rows = {row[0]: row[1:] for row in figure_rows(found)}
    assert rows["time of a run, ms"] == ("3", "3.5", "1.167") and rows["groups"] == ("2", "3", "1.500")


@given(st.data())
def test_every_group_of_both_sides_is_in_one_row(data: st.DataObject) -> None:
    def some() -> list[list[str]]:
        names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8))
        cuts = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
        groups: list[list[str]] = [[]]
        for name, cut in zip(names, cuts, strict=True):
            if cut and groups[-1]:
                groups.append([])
            groups[-1].append(name)
        return groups

    first, second = some(), some()
    rows = compared(document(first), document(second))["groups"]
    assert sorted(k for row in rows for k in row["first_groups"]) == list(range(len(first)))
    assert sorted(k for row in rows for k in row["second_groups"]) == list(range(len(second)))
    for row in rows:
        here = [set(first[k]) for k in row["first_groups"]]
        there = [set(second[k]) for k in row["second_groups"]]
        assert set(row["written"]) == set().union(*here, *there)
        assert row["regrouped"] == (sorted(map(sorted, here)) != sorted(map(sorted, there)))


def test_documents_of_little_are_compared_by_what_they_have() -> None:
    bare = {"title": "m", "model": {}, "plan": {"summary": {"dram_bytes": 10, "groups": 2}}}
    found = compared(bare, {**bare, "plan": {"summary": {"dram_bytes": 5, "groups": 2}}})
    assert [(row["name"], row["ratio"]) for row in found["figures"]] == [
        ("DRAM traffic of the plan", 0.5),
        ("groups of the plan", 1.0),
    ]


def test_two_models_are_refused_unless_forced() -> None:
    one, other = document([["a"]]), document([["a"], ["b"]], title="o")
    with pytest.raises(UsageError, match=r"a\.json is a report of 'm' and b\.json of 'm'.*--force"):
        require_same_model(one, other, ("a.json", "b.json"))
    require_same_model(one, other, ("a.json", "b.json"), force=True)
    require_same_model(one, deepcopy(one), ("a.json", "b.json"))
