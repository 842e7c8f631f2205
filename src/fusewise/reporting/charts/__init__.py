"""Charts of a report as Vega-Lite, made by Altair (extra `report`), which is imported when a chart is made.

A chart is an entry of plain data: `id`, `title`, `section` of the page, `about` (a sentence for who cannot see it), `spec`
(Vega-Lite with its data inside, and without colours, which the page or `svg` gives it), and `rows`, the same as a table under its
headings.
"""

from fusewise.reporting.charts.of_document import charts_of, missing_charts, with_charts
from fusewise.reporting.charts.standalone import svg

__all__ = ["charts_of", "missing_charts", "svg", "with_charts"]
