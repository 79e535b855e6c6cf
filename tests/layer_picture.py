"""The layers as a Mermaid flowchart in CONTRIBUTING.md, drawn from the imports.

python tests/layer_picture.py
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path

from ssm.base.marked_table import with_table

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"
START, END = "<!-- layers -->", "<!-- end of layers -->"


def flowchart(graph: Mapping[str, Set[str]]) -> str:
    """Arrows from each package to its imports, without arrows that others imply.

    Args:
        graph: the packages that each package imports, without circles.
    """
    below: dict[str, set[str]] = {}  # direct and indirect imports

    def reached(package: str) -> set[str]:
        if package not in below:
            below[package] = set(graph[package]).union(*map(reached, graph[package]))
        return below[package]

    arrows = [
        f"    {package} --> {other}"
        for package in sorted(graph)
        for other in sorted(graph[package])
        if not any(other in reached(third) for third in graph[package])
    ]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```"])


def drawn(text: str, graph: Mapping[str, Set[str]]) -> str:
    """The text of CONTRIBUTING.md with the picture of this graph."""
    return with_table(text, flowchart(graph), START, END, GUIDE.name)


if __name__ == "__main__":
    from test_layers import packages

    GUIDE.write_text(drawn(GUIDE.read_text(encoding="utf-8"), packages()), encoding="utf-8")
