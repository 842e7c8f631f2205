"""Sizes as text and back, and the nearest of several names."""

from __future__ import annotations

import pytest

from fusewise.errors import UsageError
from fusewise.words import alike, bytes_of, nearest, no_such, size_text


@pytest.mark.parametrize(
    "text, size",
    [
        ("256KiB", 262_144),
        ("0.5 MiB", 524_288),
        ("128k", 131_072),
        ("1000B", 1000),
        ("1024", 1024),
        ("2KB", 2000),
        ("1.5GiB", 3 << 29),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-3KiB", "12 parsecs", "0", "1e3"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        bytes_of(text)


def test_a_small_size_needs_a_unit() -> None:
    with pytest.raises(UsageError, match=r"'256' is a size without a unit: did you mean 256KiB\? For bytes write 256B"):
        bytes_of("256")


def test_size_text() -> None:
    sizes = (17, 177_536, 3 << 20, 44_302_336, 3 << 29, 1 << 50)
    assert [size_text(n) for n in sizes] == ["17 B", "173.4 KiB", "3.0 MiB", "42.3 MiB", "1.5 GiB", "1048576.0 GiB"]


def test_few_names_are_all_told() -> None:
    assert str(no_such("search", "gready", ("greedy", "none"))) == (
        "there is no search 'gready'; did you mean 'greedy'? there are greedy, none"
    )
    many = [f"name{k}" for k in range(20)]
    assert str(no_such("thing", "xyz", many, "'list' has them")) == "there is no thing 'xyz'; 'list' has them"


def test_names_that_are_alike() -> None:
    known = ("FuseOps", "FoldConstants", "fuseConv", "DropDead")
    assert alike("fuseops", known) == ["FuseOps"] and alike("xyz", known) == []
    assert nearest("FusOp", known, most=2) == "did you mean 'FuseOps' or 'fuseConv'?"
    assert nearest("xyz", known, "a list has them") == "a list has them"
    assert nearest("xyz", ("b", "a")) == "known are a, b."


def test_a_beginning_of_a_name_is_most_like_it() -> None:
    known = ["mask_rcnn_resnet50_fpn", "nasrnn", "unet"]
    assert alike("Mask_RCNN", known) == ["mask_rcnn_resnet50_fpn"]
    assert alike("mask_rcnn", known, most=2) == ["mask_rcnn_resnet50_fpn", "nasrnn"]
    assert alike("un", ["unlike_anything"]) == []
