"""Verdicts that rest on exactly the same base models: they are not independent of each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ssm.base.counting import counted
from ssm.claims.statements import ELSEWHERE, statements
from ssm.specs.base import short_hash

OVERLAPS = "A group has exactly the same base models; sets that overlap are not listed"


@dataclass(frozen=True)
class SharedModels:
    """Verdicts of several statements that read the same base models."""

    models: int
    verdicts: int
    statements: int
    targets: tuple[str, ...]

    @property
    def words(self) -> str:
        of = ", ".join(self.targets)
        verdicts = f"{self.verdicts} verdicts on " if self.verdicts > self.statements else ""
        return f"{verdicts}{self.statements} statements ({of}) rest on the same {counted(self.models, 'base model')}"


def bases_of(base_models: Collection[str]) -> dict[str, Any]:
    """The fields of a verdict about its base models, given their ids."""
    group = short_hash(sorted(base_models)) if base_models else ""
    return {"base_models": len(base_models), "base_group": group}


def shared_models(rows: Iterable[Mapping[str, Any]]) -> list[SharedModels]:
    """The groups of several statements with the same base models, the largest first.

    Verdicts on models that the scale does not have rest on none. Sets of models that only overlap are no group: a
    verdict has the hash of its set, and not the ids of its models.

    Args:
        rows: verdicts, with `base_group`, which is equal for equal base models, and `base_models`, their number.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["base_group"] and row["sort"] != ELSEWHERE:
            groups.setdefault(row["base_group"], []).append(row)
    found = []
    for own in groups.values():
        judged = statements(own)
        if len(judged) > 1:
            targets = tuple(dict.fromkeys(one.target for one in judged))
            found.append(SharedModels(own[0]["base_models"], len(own), len(judged), targets))
    return sorted(found, key=lambda group: -group.verdicts)
