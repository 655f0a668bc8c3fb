"""docs/reference/results.md as tests read it: the columns that it documents, by kind of run and file."""

import re

from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "reference" / "results.md").read_text()
EXPERIMENTS, PLANS = "Runs of experiments", "Plans of schedules"
FAULT_STUDY, SCALE = "InfiniteHBD's fault study", "mFabric at scale"
ORCHESTRATION = "InfiniteHBD's orchestration"
TOPOOPT_SCALE, TOPOOPT_SHARED = "TopoOpt at scale", "TopoOpt's shared cluster"
"""The kinds of runs, as its headings have them."""


def documented(kind: str, file: str) -> list[str]:
    """Return the columns that a file of a kind of run has, in order; none if it is not on the page."""
    of_kind = PAGE.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    of_file = of_kind.partition(f"\n### {file}\n")[2].partition("\n### ")[0]
    return re.findall(r"^\| `([^|]+)` \|[^|]*\|[^|]+\|$", of_file, re.MULTILINE)
