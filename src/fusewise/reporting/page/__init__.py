"""The page of a report: `html(document)` gives one self-contained file."""

from fusewise.reporting.page.page import html

__all__ = ["html"]
