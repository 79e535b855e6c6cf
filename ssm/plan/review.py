"""Whether the claims of a planned figure were preregistered, which means before their seeds were read.

`ssm register` registers all claims of a figure at one scale together, with the seeds. From then on, these seeds only
judge what was registered. After a change the figure needs seeds that it never had. Changes are: another bound, a new or
removed claim, another training or measurement, and seeds that are added or left out.

A scale that inherits another scale's values can plan the same runs. So the two never have the same seeds of a figure.

The rule holds within a figure. Another figure may read the same runs later. It is refused only if it expects another
region of the very same number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssm.claims.claim import ClaimSpec
from ssm.claims.preregistration import DIGITS, Content, Preregistration, Preregistrations, earlier_seeds
from ssm.claims.quantity import FigureQuantity
from ssm.figures.figure import FigureTask
from ssm.specs.base import INHERITED, SCALES, short_hash
from ssm.specs.measurement import MeasurementTask
from ssm.specs.training import RunSpec

CHANGES = {
    "quantity": "its quantity changed",
    "arms": "its models, recipes or data changed",
    "measurements": "its measurements changed",
    "seeds": "its arms use other seeds of the figure",
    "judged": "it is about other models",
    "ours": "'ours' changed",
}

Runs = Mapping[str, RunSpec]
Measurements = Mapping[str, MeasurementTask]


@dataclass(frozen=True)
class Findings:
    """How figures differ from their preregistrations: a line for each figure, with the names of its claims."""

    refused: list[str] = field(default_factory=list)  # must get other seeds, or be changed back
    missing: list[str] = field(default_factory=list)  # `ssm register` can register it
    measured: list[str] = field(default_factory=list)  # registered now, after it was measured

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.refused + other.refused, self.missing + other.missing, self.measured + other.measured)


def contents(task: FigureTask, runs: Runs, measurements: Measurements) -> dict[str, Content]:
    """Verdict -> hashes of everything that decides it, except the figure's seeds."""
    cache: dict[str, Any] = {}
    return {name: _content(task, claim, panel, runs, measurements, cache) for name, claim, panel in task.verdicts}


def with_preregistrations(
    task: FigureTask, runs: Runs, measurements: Measurements, preregistrations: Preregistrations
) -> FigureTask:
    """The task with a hash of each judged number, the dates of registrations, and the seeds that were read before."""
    found = contents(task, runs, measurements)
    seeds = seeds_of(task)
    numbers = {name: content.number(seeds) for name, content in found.items()}
    past = preregistrations.of(task.target, task.scale)
    current = _current(past, seeds)
    registered = {}
    if current is not None and not _used_before(_earlier(task, current, preregistrations), seeds):
        known = _registered_elsewhere(task, current.date, found, preregistrations)
        same = [name for name in found if current.claims.get(name) == found[name] and name not in known]
        registered = dict.fromkeys(same, current.date)
    earlier = earlier_seeds(past, current) if current is not None else ()
    return task.model_copy(update={"numbers": numbers, "registered": registered, "earlier": earlier})


def seeds_of(task: FigureTask) -> tuple[int, ...]:
    """The seeds of the task, ascending. There are none if nothing is trained."""
    return tuple(sorted({series.seed for series in task.series}))


def review(
    task: FigureTask,
    found: Mapping[str, Content],
    preregistrations: Preregistrations,
    of_others: Preregistrations | None = None,
) -> Findings:
    """Compare a planned figure, with its `contents`, with its preregistrations.

    Args:
        of_others: those of other figures, if they differ. Figures that are registered together may expect different
            regions of one number, as one figure may: nobody has read its seeds.
    """
    target, scale, seeds = task.target, task.scale, seeds_of(task)
    past = preregistrations.of(target, scale)
    current = _current(past, seeds)
    where = f"{target} ({scale})"
    if not found and (current is None or not seeds):
        return Findings()
    refused, missing = [], []
    if current is None or (not seeds and current.claims != found):
        refused = _used_before(_earlier(task, None, preregistrations), seeds)
        missing = [] if refused else [f"{where}: not registered; `ssm register {target} --scale {scale}`"]
    else:
        refused = _used_before(_earlier(task, current, preregistrations), seeds)
        changes = _changes(current.claims, found)
        if changes:
            replace = f"replace the seeds {_list(seeds)} by unused ones, or undo the change ({_used(past)})"
            refused.append(f"{'; '.join(changes)}, since the registration of {current.date[:10]}; {replace}")
    date = current.date if current is not None else None
    refused += _registered_elsewhere(task, date, found, of_others or preregistrations).values()
    return Findings([f"{where}: {'; '.join(refused)}"], []) if refused else Findings([], missing)


def _content(
    task: FigureTask,
    claim: ClaimSpec,
    panel: str,
    runs: Runs,
    measurements: Measurements,
    cache: dict[str, Any],
) -> Content:
    quantity = claim.quantity
    fewer: tuple[int, ...] = ()
    if not isinstance(quantity, FigureQuantity):
        places = task.series_of(claim, panel)
        seeds = {frozenset(series.seed for series in found) for found in places.values() if found}
        if seeds and seeds != {frozenset(seeds_of(task))}:
            fewer = tuple(sorted(frozenset.intersection(*seeds)))
        arms: list[Any] = []
        measured: list[Any] = []
        for found in places.values():
            if not found:  # this scale lacks the arm
                arms.append(None)
                measured.append(None)
                continue
            series = found[0]
            if series.run not in cache:
                cache[series.run] = short_hash(runs[series.run].canonical_content(), DIGITS)
            arms.append([cache[series.run], series.snapshot])
            tables = [series.tables[name] for name in quantity.measurement_names if name in series.tables]
            measured.append([measurements[table].measurement.content() for table in tables])
    else:
        own = [measurements[table].measurement for table in task.tables]
        arms, measured = quantity.decided_by(
            [measured for measured in own if measured.kind in (*quantity.reads, *quantity.measurement_names)]
        )
    return Content(
        expected=claim.expected.words(),
        quantity=short_hash(quantity.canonical(panel, task.series), DIGITS),
        arms=short_hash(arms, DIGITS),
        measurements=short_hash(measured, DIGITS),
        seeds=fewer,
        judged=claim.models is None or panel in claim.models,
        ours=claim.ours,
    )


def _current(past: Sequence[Preregistration], seeds: tuple[int, ...]) -> Preregistration | None:
    """The last registration, if it has exactly these seeds."""
    return past[-1] if past and past[-1].claims and set(past[-1].seeds) == set(seeds) else None


def _related(scale: str) -> list[str]:
    """The scales that can plan the same runs, with this one."""
    return [other for other in SCALES if INHERITED.get(other, other) == INHERITED.get(scale, scale)]


def _earlier(
    task: FigureTask, current: Preregistration | None, preregistrations: Preregistrations
) -> list[Preregistration]:
    """The preregistrations of the figure before the current one, at all related scales; all if there is none."""
    found: list[Preregistration] = []
    for scale in _related(task.scale):
        past = preregistrations.of(task.target, scale)
        if current is not None:
            past = past[:-1] if scale == task.scale else tuple(one for one in past if one.date < current.date)
        found += past
    return found


def _used_before(past: Sequence[Preregistration], seeds: tuple[int, ...]) -> list[str]:
    """A message if seeds were used before: read without registration, or registered together with other seeds."""
    for entry in reversed(past):
        shared = sorted(set(entry.seeds) & set(seeds))
        if shared:
            why = entry.used or f"registered with the seeds {_list(entry.seeds)}; none can be added or left out"
            return [
                f"all claims: seeds {_list(shared)} were used before ({entry.date[:10]}: {why}); replace them by "
                f"unused ones ({_used(past)})"
            ]
    return []


def _registered_elsewhere(
    task: FigureTask, date: str | None, found: Mapping[str, Content], preregistrations: Preregistrations
) -> dict[str, str]:
    """Claim -> a message if another figure registered the same number earlier, with another region.

    Related scales count too.

    Args:
        date: when these claims were registered; None: not yet.
    """
    lines, seeds = {}, seeds_of(task)
    for other, scales in preregistrations.figures.items():
        for entry in (entry for scale in _related(task.scale) for entry in scales.get(scale, ())):
            earlier = date is None or entry.date < date
            if other == task.target or not earlier or not set(seeds) & set(entry.seeds):
                continue
            for name, content in found.items():
                for its, before in entry.claims.items():
                    region = {"expected": content.expected, "ours": content.ours}
                    same = before.model_copy(update=region) == content
                    if same and before.expected != content.expected:
                        lines[name] = (
                            f"{name}: expects {content.expected}, but {other} {its} expects {before.expected} of the "
                            f"same number since {entry.date[:10]}; replace the seeds {_list(seeds)} by unused ones"
                        )
    return lines


def _changes(before: Mapping[str, Content], now: Mapping[str, Content]) -> list[str]:
    """A message for each claim that differs from its registration."""
    fresh = {name: content for name, content in now.items() if name not in before}
    changes = []
    for name, content in before.items():
        if name not in now and content.ours and not content.judged:
            continue  # an added check about models that the scale does not have: nothing can decide it
        renamed = next((other for other in fresh if fresh[other] == content), None)
        if name in now:
            change = _change(content, now[name])
        elif renamed is not None:
            del fresh[renamed]
            change = f"its name is {renamed} now"
        else:
            change = "it was removed"
        if change:
            changes.append(f"{name}: {change}")
    return changes + [f"{name}: it is new" for name in fresh]


def _change(before: Content, now: Content) -> str:
    """How a claim differs from its registration; empty if it does not."""
    changes = [words for name, words in CHANGES.items() if getattr(before, name) != getattr(now, name)]
    if before.expected != now.expected:
        changes.insert(0, f"it expects {now.expected} instead of {before.expected}")
    return " and ".join(changes)


def _used(past: Iterable[Preregistration]) -> str:
    return f"used so far: {_list(sorted({seed for entry in past for seed in entry.seeds}))}"


def _list(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds)) or "none"
