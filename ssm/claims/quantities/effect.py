"""The effect of one axis of a grid on a quantity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from ssm.base.errors import nearest
from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.families import Member, axis_name, axis_values, has_values, place_words, require_axes, value_text
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import PanelArm, SeedQuantity
from ssm.claims.series import Series
from ssm.claims.sweep import SOME, OfQuantity, content_without_arms
from ssm.specs.base import Name, Setting

Pairs = tuple[tuple[str, str], ...]  # (arm with the effect, the same arm without it)


class Effect(OfQuantity, SeedQuantity):
    """The effect of an axis of a grid: the quantity `of` at the value `on` minus the same at `off`.

    It is the mean over all pairs of arms that differ only in this axis. With `against`, the effect of another axis is
    subtracted.
    """

    kind: Literal["effect"] = "effect"
    axis: Name  # axis of a grid whose effect is measured
    on: Setting = True  # value of the axis with the effect ...
    off: Setting = False  # ... and without it
    where: dict[Name, Setting] = {}  # only arms with these values on other axes
    against: Name | None = None  # another axis, whose effect is subtracted; it has the same values `on` and `off`

    @model_validator(mode="after")
    def _different(self) -> Self:
        if value_text(self.on) == value_text(self.off):
            raise ValueError(f"'on' and 'off' are both {value_text(self.on)}")
        for axis in self.axes:
            if axis in self.where:
                raise ValueError(f"where: '{axis}' is an axis whose effect is measured; give other axes")
        if self.against == self.axis:
            raise ValueError(f"against: '{self.axis}' cannot be compared with itself")
        return self

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes whose effects are measured."""
        return (self.axis,) if self.against is None else (self.axis, self.against)

    @property
    def rounding(self) -> float:
        return self.quantity().rounding

    def arms(self) -> tuple[str, ...]:
        return tuple(arm for arm in self.quantity().arms() if arm != SOME)

    def check(self, families: Mapping[str, Mapping[str, Member]], arms: Collection[str]) -> None:
        values = axis_values(families.values())
        if not values and families:
            return  # no family exists at this scale
        named = [*zip(("axis", "against"), self.axes, strict=False), *(("where", axis) for axis in self.where)]
        require_axes(named, values)
        asked = [(field, axis, value) for axis in self.axes for field, value in (("on", self.on), ("off", self.off))]
        for field, axis, value in asked + [("where", axis, value) for axis, value in self.where.items()]:
            there = {value_text(one) for one in values[axis]}
            if value_text(value) not in there:
                hint = nearest(value_text(value), there)
                raise ValueError(f"{field}: '{axis}' has no value {value_text(value)}; {hint}")

    def pairs(self, panel: str, series: Sequence[Series], axis: str) -> Pairs:
        """The pairs of arms of a panel that differ only in this axis."""
        there = {one.arm: one for one in series if one.panel == panel and axis in one.axes}
        found = []
        for arm, one in there.items():
            if has_values(one.axes, {axis: self.on} | self.where):
                others = {name: value for name, value in one.axes.items() if name != axis} | {axis: self.off}
                alike = {name: two.axes for name, two in there.items() if _alike(one, two)}
                found += [(arm, name) for name, axes in alike.items() if has_values(axes, others)]
        return tuple(found)

    def about(self, series: Series) -> bool:
        on, off = ({self.axis: value} | self.where for value in (self.on, self.off))
        return has_values(series.axes, on) or has_values(series.axes, off)

    def panel_arms(self, panel: str, series: Sequence[Series] = ()) -> tuple[PanelArm, ...]:
        arms = (arm for axis in self.axes for pair in self.pairs(panel, series, axis) for arm in pair)
        return tuple(dict.fromkeys(place for arm in arms for place in self.quantity(arm).panel_arms(panel, series)))

    def canonical(self, panel: str, series: Sequence[Series] = ()) -> dict[str, Any]:
        order = self.panel_arms(panel, series)

        def numbers(axis: str) -> list[Any]:
            return [
                [[order.index(place) for place in self.quantity(arm).panel_arms(panel, series)] for arm in pair]
                for pair in self.pairs(panel, series, axis)
            ]

        of = content_without_arms(self.quantity(), panel, series)
        against = None if self.against is None else numbers(self.against)
        return {"kind": self.kind, "of": of, "pairs": numbers(self.axis), "against": against}

    def readings(self, panel: PanelTables) -> dict[int, Reading]:
        """For each seed the mean over the pairs of arms."""
        found = [self._effect(panel, axis) for axis in self.axes]
        seeds = sorted(set.intersection(*(set(one) for one in found)))
        if len(seeds) < 2:
            raise UndecidableError(f"the arms share too few seeds: {len(seeds)}; an interval needs 2")
        own, other = found[0], found[1] if len(found) > 1 else {}
        return {seed: Reading(own[seed] - other.get(seed, 0.0)) for seed in seeds}

    def _effect(self, panel: PanelTables, axis: str) -> dict[int, float]:
        """Seed -> the effect of an axis, for the seeds that all arms share."""
        pairs = self.pairs(panel.name, panel.task.series, axis)
        if not pairs:
            on, off = value_text(self.on), value_text(self.off)
            raise UndecidableError(f"no two arms differ only in {axis} {on} and {off} at the scale {panel.task.scale}")
        numbers = {arm: self.quantity(arm).numbers(panel) for pair in pairs for arm in pair}
        seeds = set.intersection(*(set(one) for one in numbers.values()))
        return {seed: float(np.mean([numbers[on][seed] - numbers[off][seed] for on, off in pairs])) for seed in seeds}

    def words(self, panel: PanelTables) -> str:
        pairs = self.pairs(panel.name, panel.task.series, self.axis)
        of = self.quantity("each arm").words(panel)
        where = "".join(f", {place_words(axis, value)}" for axis, value in self.where.items())
        other = f"; minus the effect of {axis_name(self.against)}" if self.against else ""
        values = f"{value_text(self.on)} minus {value_text(self.off)}"
        effect = f"effect of {axis_name(self.axis)} ({values}{where})"
        return f"{effect}, mean over {len(pairs)} pairs of arms: {of}{other}"


def _alike(one: Series, two: Series) -> bool:
    """Whether two series belong to one family and have the same axes."""
    return one.family == two.family and one.axes.keys() == two.axes.keys()
