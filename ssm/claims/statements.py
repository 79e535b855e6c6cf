"""Statements: the verdicts on one claim of one figure, on all its models and all members of its families."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssm.base.errors import ConfigError, nearest

ALL = "all"  # the name of all figures
CONFIRMED, REFUTED, OPEN = "confirmed", "refuted", "not decided"
VERDICT_NAMES = (CONFIRMED, REFUTED, OPEN)
MIXED = "mixed"  # the verdicts of a statement differ between models
OUTCOMES = (CONFIRMED, REFUTED, MIXED, OPEN)
# Who makes a statement (`sort` of a verdict). ELSEWHERE: it is on models that this scale does not have.
PAPER, DEFINITION, ADDED, ELSEWHERE = "paper", "definition", "ours", "elsewhere"
SORTS = {PAPER: "statements of the papers", DEFINITION: "definitions", ADDED: "added checks"}


def statement_id(claim: str) -> str:
    """The id of the claim of a verdict.

    >>> statement_id("previous_extends[context=16]/mamba1-slow")
    'previous_extends'
    """
    return re.split(r"[\[/]", claim, maxsplit=1)[0]


def model_of(claim: str) -> str:
    """The judged model in the claim of a verdict; empty if its figure has only one.

    >>> model_of("previous_extends[context=16]/mamba1-slow")
    'mamba1-slow'
    """
    return claim.partition("/")[2]


def paper_of(target: str) -> str:
    """The paper of a figure, as its target names it.

    >>> paper_of("lg_fig5")
    'lg'
    """
    return target.partition("_")[0]


def figures_named(names: Sequence[str], existing: Sequence[str], where: str) -> tuple[str, ...]:
    """The existing figures that names mean: targets, papers, or `all`.

    Args:
        where: the place of the names, for errors.

    Raises:
        ConfigError: a name is none of these.

    >>> figures_named(["lg", "bn_fig1"], ["bn_fig1", "lg_fig4", "lg_fig5", "ls_tab1"], "config.yaml")
    ('bn_fig1', 'lg_fig4', 'lg_fig5')
    """
    known = {ALL, *existing, *map(paper_of, existing)}
    for name in names:
        if name not in known:
            hint = nearest(name, known, "`ssm plan` lists all figures")
            raise ConfigError(f"{where}: unknown figure '{name}'; {hint}")
    return tuple(target for target in existing if {ALL, target, paper_of(target)} & set(names))


def outcome(verdicts: Iterable[str]) -> str:
    """One of OUTCOMES: the verdict if all agree, otherwise "mixed".

    >>> outcome(["confirmed", "confirmed"]), outcome(["confirmed", "not decided"])
    ('confirmed', 'mixed')
    """
    found = set(verdicts)
    return found.pop() if len(found) == 1 else MIXED


@dataclass(frozen=True)
class Statement:
    """The verdicts on one claim of one figure."""

    target: str
    id: str
    rows: tuple[Mapping[str, Any], ...]  # verdicts, as in the verdicts table

    @property
    def counted(self) -> tuple[Mapping[str, Any], ...]:
        """The verdicts that count: registered before they were measured, and on models that the scale has."""
        return tuple(row for row in self.rows if row["sort"] != ELSEWHERE and row["registered"] is not False)

    @property
    def outcome(self) -> str | None:
        """One of OUTCOMES; None: no verdict counts."""
        return outcome(row["verdict"] for row in self.counted) if self.counted else None

    def where(self, row: Mapping[str, Any]) -> str:
        """The model and the member of a family that a verdict is about; empty if there is only one."""
        return str(row["claim"]).removeprefix(self.id).replace("]/", "], ").lstrip("/")


def statements(rows: Iterable[Mapping[str, Any]]) -> list[Statement]:
    """The statements of verdicts, in their order. Each row has `target` and `claim`."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["target"], statement_id(row["claim"])), []).append(row)
    return [Statement(target, id, tuple(own)) for (target, id), own in found.items()]
