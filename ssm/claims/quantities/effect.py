"""What one axis of a grid does to a quantity."""

from __future__ import annotations

import numpy as np

from ssm.claims.estimate import Reading, UndecidableError
from ssm.claims.panel import Panel
from ssm.claims.quantities.base import SeedEstimator
from ssm.claims.quantities.curve import estimator_of, numbers_of
from ssm.specs.families import axis_name, place_words, value_text
from ssm.specs.quantities.effect import Effect


class EffectEstimator(SeedEstimator[Effect]):
    """Of every seed the mean over its pairs of arms: the interval is over seeds."""

    compared = False
    logarithmic = False

    def readings(self, panel: Panel) -> dict[int, Reading]:
        found = [self._effect(panel, axis) for axis in self.spec.axes]
        seeds = sorted(set.intersection(*(set(one) for one in found)))
        if len(seeds) < 2:
            raise UndecidableError(f"the arms share {len(seeds)} of their seeds: two are needed for an interval")
        own, other = found[0], found[1] if len(found) > 1 else {}
        return {seed: Reading(own[seed] - other.get(seed, 0.0)) for seed in seeds}

    def _effect(self, panel: Panel, axis: str) -> dict[int, float]:
        """Seed -> the effect of an axis, of the seeds that all arms have."""
        spec = self.spec
        pairs = spec.pairs(panel.name, panel.task.series, axis)
        if not pairs:
            on, off = value_text(spec.on), value_text(spec.off)
            raise UndecidableError(f"no two arms differ by {axis} {on} and {off} alone at the scale {panel.task.scale}")
        numbers = {arm: numbers_of(spec.quantity(arm), panel) for pair in pairs for arm in pair}
        seeds = set.intersection(*(set(one) for one in numbers.values()))
        return {seed: float(np.mean([numbers[on][seed] - numbers[off][seed] for on, off in pairs])) for seed in seeds}

    def words(self, panel: Panel) -> str:
        spec = self.spec
        pairs = spec.pairs(panel.name, panel.task.series, spec.axis)
        of = estimator_of(spec.quantity(pairs[0][0] if pairs else "each arm")).words(panel)
        where = "".join(f", {place_words(axis, value)}" for axis, value in spec.where.items())
        other = f"; difference from that of {axis_name(spec.against)}" if spec.against else ""
        values = f"{value_text(spec.on)} less {value_text(spec.off)}"
        effect = f"effect of {axis_name(spec.axis)} ({values}{where})"
        return f"{effect}, mean over {len(pairs)} pairs of arms, of {of}{other}"
