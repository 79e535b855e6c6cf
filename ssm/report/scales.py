"""Statements at every scale at which they were judged: those of reference results, and those of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.claims.statements import Statement, statements
from ssm.report.papers import in_order
from ssm.report.reference import Reference, read_references
from ssm.specs.base import SCALES


@dataclass(frozen=True)
class SizedStatement:
    """A statement at every scale at which it was judged, the smallest first. Only the largest scale counts."""

    target: str
    id: str
    by_scale: dict[str, Statement]

    @property
    def scale(self) -> str:
        """The largest scale."""
        return list(self.by_scale)[-1]

    @property
    def largest(self) -> Statement:
        """The statement at the largest scale."""
        return self.by_scale[self.scale]


def all_scales(folder: Path) -> list[Reference]:
    """The references in `folder`, such as reports/smoke, and those of other scales beside it, smallest scale first.

    Raises:
        ConfigError: a file is not a reference.
    """
    return with_other_scales(read_references(folder).values(), folder)


def with_other_scales(own: Iterable[Reference], folder: Path) -> list[Reference]:
    """The references `own` of `folder`, and those of other scales beside it, smallest scale first.

    The folder may have any name. A folder beside it counts only if it has the name of a scale that `folder` lacks.
    Raises as `all_scales`.
    """
    found = list(own)
    scales = {reference.scale for reference in found}
    beside = [folder.absolute().with_name(scale) for scale in SCALES if scale not in scales]  # "." has no name
    found += [one for other in beside for one in read_references(other).values() if one.scale == other.name]
    return sorted(found, key=lambda reference: SCALES.index(reference.scale))


def sized_statements(references: Iterable[Reference]) -> list[SizedStatement]:
    """The statements of all references, in the order of the papers."""
    return statements_by_scale((reference.scale, reference.rows()) for reference in references)


def statements_by_scale(judged: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> list[SizedStatement]:
    """The statements of verdicts, in the order of the papers.

    Args:
        judged: scales with their verdicts. No figure is twice at one scale.
    """
    found: dict[tuple[str, str], dict[str, Statement]] = {}
    for scale, rows in sorted(judged, key=lambda one: SCALES.index(one[0])):
        for statement in statements(rows):
            found.setdefault((statement.target, statement.id), {})[scale] = statement
    order = in_order({target for target, _ in found})
    names = sorted(found, key=lambda name: order.index(name[0]))
    return [SizedStatement(*name, _judged_scales(found[name])) for name in names]


def largest_rows(sized: Iterable[SizedStatement]) -> list[dict[str, Any]]:
    """The verdicts of all statements at their largest scale."""
    return [dict(row) for one in sized for row in one.largest.rows]


def _judged_scales(by_scale: dict[str, Statement]) -> dict[str, Statement]:
    """Only the scales with a verdict that counts; if there are none, the largest scale."""
    judged = {scale: one for scale, one in by_scale.items() if one.outcome is not None}
    return judged or dict([list(by_scale.items())[-1]])
