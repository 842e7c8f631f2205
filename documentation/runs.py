"""Runs of the program whose results the site shows."""

from __future__ import annotations

from typing import Any

__all__ = ["made"]


def made() -> Any:
    return None
