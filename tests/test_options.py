"""Options that somebody else hands on: None is what nobody says, and what cannot be one is told in a sentence."""

from __future__ import annotations

import warnings
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import fusewise
from fusewise.comparing import ComparisonDict, ComparisonSettings
from fusewise.errors import FusewiseError, UsageError
from fusewise.inspecting import InspectionDict, inspected
from fusewise.optimizing import SearchDict, SearchOptions
from fusewise.options import Options, OptionsDict, options_from
from fusewise.planning import PlanDict, PlanOptions
from fusewise.verifying import VerificationDict, VerificationSettings


def relu() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NAMES = sorted(Options.__dataclass_fields__)
ODD = st.one_of(
    st.sampled_from(
        [None, True, 3, 0.5, float("nan"), "x", "", b"x", np.int64(2), np.float32(1), object(), 10**30, -1]
    ),
    st.lists(st.sampled_from([1, "a", None, -1])),
    st.dictionaries(
        st.sampled_from(["x", "n", 1]), st.sampled_from([None, 3, "4", "1..8", [1, 4], (2.5, 4), True, -1])
    ),
)


def test_none_is_what_nobody_says() -> None:
    assert options_from(None, dict.fromkeys(NAMES)) == Options()
    assert options_from(Options(exact=True, cache=False), {"exact": None}) == Options(exact=True, cache=False)
    assert options_from(Options(**dict.fromkeys(NAMES)), {}) == Options()


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"cache": 3}, "cache must be True, False or a folder, not 3"),
        ({"cache": ""}, "cache must be True, False or a folder, not ''"),
        ({"threads": "2"}, "threads must be a whole number, not '2'"),
        ({"memory_limit": "1GB"}, "memory_limit must be a whole number, not '1GB'"),
        ({"disable": "fuse"}, "disable must be several names, not 'fuse'"),
        ({"exact": 1}, "exact must be True or False, not 1"),
        ({"shapes": {"x": 3}}, "the shape for input 'x' is given as 3; give a list of numbers"),
        ({"symbols": {"n": 1.5}}, "dimension 'n' is given as 1.5; give a number, or a range"),
        ({"symbols": {"n": 10**30}}, "dimension 'n' cannot have the size"),
        ({"passes": ["none"]}, "passes must be True, False, a text or a list of passes, not \\['none'\\]"),
        ({"trheads": 2}, "there is no option 'trheads'; did you mean 'threads'"),
    ],
)
def test_what_cannot_be_an_option(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        options_from(None, settings)


def test_what_is_kept_of_them(tmp_path: Path) -> None:
    names = (name for name in ("a", "b"))
    given = {"threads": np.int64(2), "symbols": {"n": np.int32(3), "m": "1..8,4"}, "shapes": {"x": np.array([2, 4])}}
    found = options_from(None, {**given, "disable": names, "cache": str(tmp_path)})
    assert (type(found.threads), found.disable, found.cache) == (int, ("a", "b"), tmp_path)
    assert found.symbols == {"n": 3, "m": "1..8,4"}
    assert found.shapes == {"x": (2, 4)}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([name for name in NAMES if name not in ("cache", "tune", "warn")]), ODD)
def test_any_value_is_taken_or_told_of(name: str, value: Any) -> None:
    with warnings.catch_warnings(), suppress(FusewiseError):
        warnings.simplefilter("ignore")
        fusewise.compile(relu(), cache=False, **{name: value})


# --- one by one as keywords ----------------------------------------------------------------------------------------


def said(kind: type, but: tuple[str, ...] = ()) -> dict[str, str]:
    """The types of a class's own names as they are written, None left out."""
    own = {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in kind.__annotations__.items()}
    return {name: hint.removesuffix(" | None") for name, hint in own.items() if name not in but}


@pytest.mark.parametrize(
    "keywords, record, but",
    [
        (OptionsDict, Options, ()),
        (PlanDict, PlanOptions, ()),
        (SearchDict, SearchOptions, ("progress",)),
        (ComparisonDict, ComparisonSettings, tuple(Options.__dataclass_fields__)),
        (VerificationDict, VerificationSettings, tuple(Options.__dataclass_fields__)),
    ],
)
def test_keywords_are_the_fields(keywords: type, record: type, but: tuple[str, ...]) -> None:
    """What a type checker takes is what the program takes. `optimize` tells of its progress besides."""
    assert said(keywords, but) == said(record, but)


def test_a_comparison_takes_options_too() -> None:
    assert said(OptionsDict).items() <= said(ComparisonDict).items()


def test_keywords_of_an_inspection() -> None:
    own = dict(inspected.__annotations__)
    assert said(InspectionDict) == {
        name: own[name].removesuffix(" | None") for name in own if name not in ("graph", "return")
    }


@pytest.mark.parametrize("verb", ["compile", "verify", "bench", "plan", "optimize", "inspect"])
def test_verbs_name_their_keywords(verb: str) -> None:
    last = list(signature(getattr(fusewise, verb)).parameters.values())[-1]
    assert last.kind is last.VAR_KEYWORD and str(last.annotation).startswith("Unpack[")


def test_a_keyword_that_there_is_not_is_told() -> None:
    for verb in (fusewise.compile, fusewise.verify, fusewise.bench):
        with pytest.raises(UsageError, match="there is no option 'trheads'"):
            verb(relu(), trheads=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="there is no .* 'grups'; did you mean 'groups'"):
        fusewise.inspect(relu(), grups=True)  # type: ignore[call-arg]
