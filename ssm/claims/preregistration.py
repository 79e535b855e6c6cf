"""Preregistrations: the claims of a figure and their seeds, recorded before the seeds are read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from ssm.base.records import Time
from ssm.claims.series import Seeds
from ssm.claims.words import spoken_seeds
from ssm.specs.base import Spec, short_hash

DIGITS = 12  # of all hashes
PREREGISTERED = "registered.json"  # in the config folder


class Content(Spec):
    """What determines a verdict. The hashes cover what is planned, without names and texts."""

    expected: str  # the confirming region, such as "> 1.1"
    quantity: str  # hash of the quantity
    arms: str  # hash of models, recipes, data and earlier training steps of the arms that the quantity reads
    measurements: str  # hash of the measurements that it reads
    seeds: Seeds = ()  # the seeds that all its arms share, if some arm lacks seeds of the registration
    judged: bool = True  # false: the claim is about models that the scale does not have
    ours: bool = False  # true: an added check, counted separately from the papers' statements

    def number(self, seeds: tuple[int, ...]) -> str:
        """Hash of the judged number, whatever region is expected. `seeds`: those of the figure."""
        return short_hash([self.quantity, self.arms, self.measurements, self.seeds or seeds], DIGITS)


class EarlierSeeds(Spec):
    """Seeds of a figure that count as read, because they were registered or read before its present seeds."""

    date: Time
    seeds: Seeds
    why: str  # why they do not judge its claims now

    @property
    def words(self) -> str:
        """Seeds, date and reason as text."""
        return f"seeds {spoken_seeds(self.seeds)} ({self.date[:10]}: {self.why})"


class Preregistration(Spec):
    """The claims of one figure at one scale with their seeds; or seeds that were read before registration."""

    date: Time
    seeds: Seeds = ()
    used: str | None = None  # reason why these seeds cannot judge claims any more
    claims: dict[str, Content] = {}  # by name of the verdict

    @model_validator(mode="after")
    def _claims_or_used(self) -> Preregistration:
        if bool(self.claims) == (self.used is not None):
            raise ValueError("give either 'claims', or 'used' with the reason why these seeds judge no claims")
        return self


class Preregistrations(Spec):
    """config/registered.json: target -> scale -> preregistrations, oldest first. Entries are never removed."""

    figures: dict[str, dict[str, Annotated[tuple[Preregistration, ...], Field(strict=False)]]] = {}

    def of(self, target: str, scale: str) -> tuple[Preregistration, ...]:
        """The preregistrations of one figure at one scale."""
        return self.figures.get(target, {}).get(scale, ())

    def names(self, target: str) -> set[str]:
        """All verdicts of a figure that are or were registered, at any scale."""
        entries = (entry for own in self.figures.get(target, {}).values() for entry in own)
        return {name for entry in entries for name in entry.claims}

    def at(self, target: str, scale: str, numbers: Collection[str]) -> Preregistration | None:
        """The preregistration that has one of these judged numbers (`Content.number`); the last one if several do."""
        found = (
            entry
            for entry in reversed(self.of(target, scale))
            if any(content.number(entry.seeds) in numbers for content in entry.claims.values())
        )
        return next(found, None)


def read_preregistrations(folder: Path) -> Preregistrations:
    """Read config/registered.json. Without the file, nothing is registered.

    Raises:
        ConfigError: the file is broken.
    """
    path = folder / PREREGISTERED
    return Preregistrations.load(path) if os.path.isfile(path) else Preregistrations()  # noqa: PTH113 (a name may be too long)


def earlier_seeds(past: Iterable[Preregistration], current: Preregistration) -> tuple[EarlierSeeds, ...]:
    """The other seeds of a figure, up to the date of its current preregistration; oldest first."""
    found = []
    for entry in past:
        if entry.seeds and set(entry.seeds) != set(current.seeds) and entry.date <= current.date:
            kept = sum(content in current.claims.values() for content in entry.claims.values())
            why = entry.used or f"registered with {len(entry.claims)} claims, of which {kept} are unchanged"
            found.append(EarlierSeeds(date=entry.date, seeds=entry.seeds, why=why))
    return tuple(found)
