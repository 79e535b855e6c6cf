"""Learning rate and weight decay as functions of the step (lg App. B.1)."""

from __future__ import annotations

import math

from ssm.specs.training import TrainingSpec


def warmup_steps(training: TrainingSpec, steps: int) -> int:
    """`warmup` below 1 is a fraction of all steps, from 1 on a number of steps; at least one."""
    return max(1, round(training.warmup * steps if training.warmup < 1 else training.warmup))


def learning_rate(training: TrainingSpec, peak: float, step: int, steps: int) -> float:
    """The rate of `step` (1 to `steps`): linear warm-up to `peak`, then a cosine down to min_lr, or constant."""
    warm = warmup_steps(training, steps)
    if step <= warm:
        return peak * step / warm
    if training.schedule == "constant":
        return peak
    done = (step - warm) / max(1, steps - warm)
    low = min(training.min_lr, peak)
    return low + (peak - low) * 0.5 * (1 + math.cos(math.pi * done))


def weight_decay(training: TrainingSpec, lr: float, peak: float) -> float:
    """The decay that goes with `lr`: scheduled along with it, or constant."""
    return training.weight_decay * (lr / peak if training.weight_decay_schedule == "with_lr" else 1.0)
