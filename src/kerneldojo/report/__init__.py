"""What a run is worth, in figures that say what they count, in tables, and as a page that anybody can open.

`measure` takes every figure of a run, `compare` pairs two runs, `write_report` and `write_comparison` write one
self-contained HTML file each. All of them are functions of episodes alone: numpy is the heaviest thing they import.
`write_all` does it for a run folder and leaves everything there.
"""

from kerneldojo.report.comparison import Comparison, NotComparable, compare
from kerneldojo.report.costs import Cost
from kerneldojo.report.counting import AgainstCompile
from kerneldojo.report.figures import Figure
from kerneldojo.report.metrics import Metrics, MetricsConfig, measure
from kerneldojo.report.outcomes import problem_key
from kerneldojo.report.page import write_comparison, write_report
from kerneldojo.report.run import read_run, sampling_of, write_all
from kerneldojo.report.searches import SearchFigures

__all__ = [
    "AgainstCompile",
    "Comparison",
    "Cost",
    "Figure",
    "Metrics",
    "MetricsConfig",
    "NotComparable",
    "SearchFigures",
    "compare",
    "measure",
    "problem_key",
    "read_run",
    "sampling_of",
    "write_all",
    "write_comparison",
    "write_report",
]
