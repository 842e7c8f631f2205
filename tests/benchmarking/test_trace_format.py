"""Events as the Trace Event Format has them, and as Perfetto's importer reads them: by its rules, written here anew."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.reporting.documents import small

from fusewise.benchmarking.trace_format import Bar, TraceTrack, bars_apart, events_of, named
from fusewise.reporting.formats.perfetto import perfetto

NS = st.integers(0, 10**13)
TRACKS = st.sampled_from([TraceTrack(1, 1), TraceTrack(2, 2), TraceTrack(2, 3)])
BARS = st.lists(st.builds(Bar, st.text(), st.just("kernel"), TRACKS, NS, NS, st.just({"step": 1})), max_size=12)


def multiplied(us: str) -> int:
    """A number of microseconds in a file as nanoseconds, by a reader that computes."""
    return int(float(us) * 1000.0)


def cut(us: str) -> int:
    """The same by a reader that moves the point in the text."""
    whole, point, rest = us.partition(".")
    assert point and re.fullmatch(r"\d+", whole + rest), us
    return int(whole + (rest + "000")[:3])


def check(events: list[dict[str, Any]]) -> None:
    """What the format asks of complete events and of names, and that nothing is dropped where bars have to nest."""
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    names = {}
    for event in json.loads(json.dumps(events), parse_float=str):
        place = event["pid"], event["tid"]
        assert all(type(number) is int and 0 < number < 2**32 for number in place)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]
            names[event["name"], place] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and type(event["name"]) is type(event["cat"]) is str and type(event["args"]) is dict
        assert multiplied(event["ts"]) == cut(event["ts"]) and multiplied(event["dur"]) == cut(event["dur"])
        spans.setdefault(place, []).append((cut(event["ts"]), cut(event["ts"]) + cut(event["dur"])))
    for bars in spans.values():
        assert all(first[1] <= second[0] for first, second in pairwise(bars))
    threads = [place[1] for place in spans]
    assert len(threads) == len({*threads}), "names would be those of another process"
    assert all(("thread_name", place) in names for place in spans) or not names


@given(BARS)
def test_readers_see_no_bar_over_another(bars: list[Bar]) -> None:
    check(events_of(bars))
    assert sorted(bar.ns for bar in bars) == sorted(bar.ns for bar in bars_apart(bars))
    assert [cut(str(event["dur"])) for event in events_of(bars)] == [bar.ns for bar in bars_apart(bars)]


TIMES = st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 1e7), st.floats(0.0, 1e6)), max_size=8)


@given(TIMES, st.lists(st.floats(0.0, 1e5), min_size=1, max_size=8))
def test_a_report_gives_whole_traces(shares: list[tuple[int, float, float]], stages: list[float]) -> None:
    document = small()
    document["times"]["timeline"] = [
        {"step": 0, "worker": worker, "start_us": start, "us": us} for worker, start, us in shares
    ]
    document["compile"] = {"ms": sum(stages), "stages": [{"name": f"{k}", "ms": ms} for k, ms in enumerate(stages)]}
    found = perfetto(document)
    assert {*found} == {"traceEvents", "displayTimeUnit", "otherData"} and found["displayTimeUnit"] in ("ms", "ns")
    check(found["traceEvents"])
    assert sum(event["ph"] == "X" for event in found["traceEvents"]) == len(shares) + len(stages)


def test_names_of_tracks() -> None:
    assert named("thread_name", TraceTrack(2, 3), "worker 1") == {
        "name": "thread_name",
        "ph": "M",
        "pid": 2,
        "tid": 3,
        "args": {"name": "worker 1"},
    }
