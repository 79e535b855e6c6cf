"""Sentences that sum up several figures. Each rests on registered statements, and needs a verdict of each of them.

A verdict that does not survive the correction for many tests does not support a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ssm.base.errors import ConfigError, nearest
from ssm.base.strict_parsing import read_yaml
from ssm.claims.preregistration import Preregistrations, read_preregistrations
from ssm.claims.significance import weak_verdicts
from ssm.claims.statements import CONFIRMED, Statement, model_of, statement_id, statements
from ssm.claims.words import WEAK, measured
from ssm.specs.base import Distinct, Prose, Spec

UNREGISTERED, UNJUDGED = "not registered", "not judged"  # outcomes of a statement without a verdict that counts
SUPPORTED, UNSUPPORTED = "supported", "not supported"  # states of a sentence; the third is UNJUDGED


class Ground(Spec):
    """A registered statement that a sentence rests on."""

    figure: str  # the target of its figure
    claim: str  # its id in the figure file
    models: Annotated[tuple[str, ...], Field(strict=False), Distinct] = ()  # only these models; none: all of the figure
    verdict: Literal["confirmed", "refuted", "not decided"] = "confirmed"  # the verdict that the sentence needs

    def check(self, known: Preregistrations, where: str) -> None:
        """Raise a ConfigError if no such claim is registered at any scale. `where`: the file, and the key in it."""
        if self.figure not in known.figures:
            raise ConfigError(
                f"{where}.figure: no claim of '{self.figure}' is registered; {nearest(self.figure, known.figures)}"
            )
        names = known.names(self.figure)
        ids = {statement_id(name) for name in names}
        if self.claim not in ids:
            raise ConfigError(
                f"{where}.claim: no claim '{self.claim}' of {self.figure} is registered; {nearest(self.claim, ids)}"
            )
        models = {model_of(name) for name in names if statement_id(name) == self.claim} - {""}
        if self.models and not models:
            raise ConfigError(f"{where}.models: '{self.claim}' of {self.figure} is on one model; leave 'models' out")
        for model in self.models:
            if model not in models:
                raise ConfigError(
                    f"{where}.models: '{self.claim}' of {self.figure} is not about '{model}'; {nearest(model, models)}"
                )


class Sentence(Spec):
    """A sentence, and all that it rests on."""

    says: Prose  # the sentence; at most 25 words
    # the claims that it needs
    rests_on: Annotated[tuple[Ground, ...], Field(strict=False, min_length=1), Distinct]


class SentenceGroup(Spec):
    """Sentences under a heading."""

    title: Prose  # the heading
    sentences: Annotated[tuple[Sentence, ...], Field(strict=False)] = ()  # without any, the heading is not shown


class Synthesis(Spec):
    """The file of the page of findings, `config/synthesis.yaml`."""

    picture: str  # the target of the figure whose picture is shown
    groups: Annotated[tuple[SentenceGroup, ...], Field(strict=False)]  # the sentences, in the order of the page

    def check(self, known: Preregistrations, source: str) -> None:
        """Raise a ConfigError if a figure, claim or model has no registration. `source`: the file."""
        if self.picture not in known.figures:
            hint = nearest(self.picture, known.figures)
            raise ConfigError(f"{source}: picture: no claim of '{self.picture}' is registered; {hint}")
        for i, group in enumerate(self.groups):
            for j, sentence in enumerate(group.sentences):
                for k, ground in enumerate(sentence.rests_on):
                    ground.check(known, f"{source}: groups.{i}.sentences.{j}.rests_on.{k}")


def read_synthesis(folder: Path) -> Synthesis | None:
    """Read config/synthesis.yaml; None: there is no such file.

    Raises:
        ConfigError: the file is broken, or names a figure, a claim or a model that has no registration.
    """
    path = folder / "synthesis.yaml"
    if not os.path.isfile(path):  # noqa: PTH113 (a name may be too long)
        return None
    synthesis = Synthesis.parse(read_yaml(path, ConfigError), str(path))
    synthesis.check(read_preregistrations(folder), str(path))
    return synthesis


@dataclass(frozen=True)
class Support:
    """A statement that a sentence rests on, as it was judged."""

    ground: Ground
    rows: tuple[Mapping[str, Any], ...]  # its verdicts on the models of the ground
    weak: bool = False  # a verdict does not survive the correction for many tests (`weak_verdicts`)

    @property
    def outcome(self) -> str:
        """One of OUTCOMES, UNREGISTERED or UNJUDGED."""
        if any(row["registered"] is False for row in self.rows):
            return UNREGISTERED
        statement = Statement(self.ground.figure, self.ground.claim, self.rows)
        if {model_of(row["claim"]) for row in statement.counted}.issuperset(self.ground.models):
            return statement.outcome or UNJUDGED
        return UNJUDGED

    @property
    def holds(self) -> bool:
        """Whether it has the verdict that the sentence needs, without the mark WEAK."""
        return self.outcome == self.ground.verdict and not self.weak

    @property
    def words(self) -> str:
        """Its number: "1.98 (1.59 to 2.45)"; the smallest and the largest one of several. Then what has to be said.

        This is the outcome if it is not "confirmed". If the sentence needs another one, it is the region, too.
        """
        known = sorted((row for row in self.rows if row["estimate"] is not None), key=lambda row: row["estimate"])
        numbers = " to ".join(map(measured, known if len(known) < 2 else (known[0], known[-1])))
        several = f"{len(self.rows)} verdicts, " if len(self.rows) > 1 else ""
        words = [several + (numbers or "no number")] if self.rows else []
        if not self.holds:
            words += [f"expected {row['expected']}" for row in self.rows[:1]]
            mark = WEAK if self.weak else ""
            words += [f"{self.outcome}{mark}; the sentence needs '{self.ground.verdict}'"]
        elif self.outcome != CONFIRMED:
            words += [self.outcome]
        return ", ".join(words)


@dataclass(frozen=True)
class Finding:
    """A sentence, and how what it rests on was judged."""

    says: str
    supports: tuple[Support, ...]

    @property
    def state(self) -> str:
        """SUPPORTED: every statement has its verdict. UNSUPPORTED: one has another. UNJUDGED: one has none."""
        failing = {support.outcome for support in self.supports if not support.holds}
        return SUPPORTED if not failing else UNJUDGED if failing == {UNJUDGED} else UNSUPPORTED

    @property
    def why(self) -> str:
        """Which claims do not have their verdict, in one line; empty: all have it."""
        return "; ".join(
            f"{one.ground.figure} {one.ground.claim}: {one.words}" for one in self.supports if not one.holds
        )


@dataclass(frozen=True)
class FindingGroup:
    """Findings under a heading."""

    title: str
    findings: tuple[Finding, ...]


def findings(synthesis: Synthesis, rows: Iterable[Mapping[str, Any]]) -> tuple[FindingGroup, ...]:
    """The groups with sentences, and what verdicts say about them.

    Args:
        rows: verdicts at one scale for each figure, as in the verdicts table.
    """
    rows = list(rows)
    found = {(one.target, one.id): one.rows for one in statements(rows)}
    weak = weak_verdicts(rows)

    def support(ground: Ground) -> Support:
        rows = found.get((ground.figure, ground.claim), ())
        own = tuple(row for row in rows if not ground.models or model_of(row["claim"]) in ground.models)
        return Support(ground, own, any((row["target"], row["claim"]) in weak for row in own))

    def finding(sentence: Sentence) -> Finding:
        return Finding(sentence.says, tuple(map(support, sentence.rests_on)))

    groups = (group for group in synthesis.groups if group.sentences)
    return tuple(FindingGroup(group.title, tuple(map(finding, group.sentences))) for group in groups)
