"""Learning rate and weight decay as functions of the step (lg App. B.1)."""

from __future__ import annotations

import math

from ssm.specs.training import TrainingSpec


def warmup_steps(training: TrainingSpec, steps: int) -> int:
    """A `warmup` below 1 is a fraction of all steps; from 1 on it is a number of steps. At least 1 step."""
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
    """The coefficient of AdamW's weight decay: constant, or scheduled with the learning rate `lr`.

    AdamW subtracts lr * decay * weight in a step. With "with_lr", the subtracted part is proportional to lr squared. We
    read "weight decay scheduling with a peak of 0.01" (lg App. B.1) in this way: a peak needs a schedule of the
    coefficient itself, and the paper describes no schedule except that of the rate. The other reading is plain AdamW,
    without a schedule of the coefficient: "constant".
    """
    return training.weight_decay * (lr / peak if training.weight_decay_schedule == "with_lr" else 1.0)
