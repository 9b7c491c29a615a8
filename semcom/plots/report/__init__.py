"""The report: a page of HTML that shows a study, or several, without a network and without semcom."""

from semcom.plots.report.build import report

__all__ = ["report"]
