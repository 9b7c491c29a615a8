"""The report: a self-contained HTML page of one or several studies, which needs neither a network nor semcom."""

from semcom.plots.report.build import report

__all__ = ["report"]
