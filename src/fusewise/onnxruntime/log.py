"""What sessions have to say goes to the logger `fusewise.onnxruntime`, by ONNX Runtime's levels of severity."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from fusewise.onnxruntime.errors import RefusedUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["INFO", "WARNING", "sayer", "set_default_logger_severity", "set_default_logger_verbosity"]

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Python's levels for severities: verbose, info, warning, error, fatal."""

INFO, WARNING = 1, 2

_LOGGER = logging.getLogger("fusewise.onnxruntime")


def sayer(severity: int, label: str) -> Callable[[int, str], None]:
    """Says a sentence of a severity, where that is at least the one given; -1 leaves it to the logger. `label` stands before it.
    `RefusedUse` for a severity that there is not."""
    return partial(_say, _checked(severity) if severity != -1 else -1, f"{label}: " if label else "")


def _say(least: int, before: str, severity: int, sentence: str) -> None:
    level = _LEVELS[severity]
    if least < 0:
        _LOGGER.log(level, "%s%s", before, sentence)
    elif severity >= least:
        _LOGGER.handle(_LOGGER.makeRecord(_LOGGER.name, level, "", 0, "%s%s", (before, sentence), None))


def set_default_logger_severity(severity: int) -> None:
    """The least severity that is logged by sessions which do not say one: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    _LOGGER.setLevel(_LEVELS[_checked(severity)])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Nothing: there is one verbosity."""


def _checked(severity: int) -> int:
    if not 0 <= severity < len(_LEVELS):
        raise RefusedUse(f"there is no severity {severity}: use 0 verbose, 1 info, 2 warning, 3 error or 4 fatal")
    return severity
