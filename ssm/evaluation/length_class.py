"""The class of a loss curve: strong, weak or no length extension (ls Def. 2.1); length generalization (lg Def. 3.2).

Both definitions compare expectations. Here, confidence intervals of differences, paired by sequence, replace them. A
curve has a class if the intervals lie inside the bounds of the class. A curve that is too noisy is not decided.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy.stats import t as student

from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.length_class import LengthClass

LEVEL = 0.05
# Nats: a smaller rise of the mean loss from a length to twice this length does not count as a rise. No sample can show
# that a rise is exactly 0. Over five octaves, from T to 32 T, it adds up to 0.1 nats. This is the increase of the
# perplexity by 10% above which claims call a model broken.
NO_RISE = 0.02
NOT_DECIDED = "not decided"


@MEASURES.function
def length_class(spec: LengthClass, curve: pl.DataFrame) -> pl.DataFrame:
    """One row in the schema LengthClass.table, from a table of PositionLoss; or one for each of `spec.lengths`."""
    losses, starts, stops = _matrix(curve)
    if spec.lengths is None:
        columns = {name: kind for name, kind in LengthClass.table.columns.items() if name != "loss"}
        return pl.DataFrame([_row(losses, starts, stops, spec.context)], schema=columns)
    rows = []
    for length in (length for length in spec.lengths if length <= stops[-1]):
        bins = stops <= length
        mean = float(losses[:, bins].mean(0) @ (stops - starts)[bins] / length)
        sizes = {"context": spec.context, "length": length, "sequences": len(losses)}
        past = _row(losses[:, bins], starts[bins], stops[bins], spec.context) if length > spec.context else sizes
        rows.append(past | {"loss": mean})
    return pl.DataFrame(rows, schema=LengthClass.table.columns)


def _row(losses: np.ndarray, starts: np.ndarray, stops: np.ndarray, context: int) -> dict[str, object]:
    """Both classes of a curve."""
    extension = _extension(losses, starts, stops, context)
    generalization = _generalization(losses, starts, stops, context)
    sizes = {"context": context, "length": int(stops[-1]), "sequences": len(losses)}
    return extension | generalization | sizes


def _extension(losses: np.ndarray, starts: np.ndarray, stops: np.ndarray, context: int) -> dict[str, object]:
    """ls Def. 2.1 on the mean loss over the first l tokens, l = 2, 4, 8 ...

    | class | condition |
    |---|---|
    | strong | from T_0 on, the loss falls at each step to the next length |
    | weak | from T_0 on, the loss rises at no step by NO_RISE or more |
    | none | after the context, it rises at some step by more than NO_RISE, or is not finite |
    | not decided | otherwise |

    T_0 is at most the training context, so a curve that rises after it and stays at a worse level is no extension.

    Strong and weak are conditions on all steps, so each step is tested at the full level. None is a condition on some
    step after the context, so these steps share the level (Bonferroni).
    """
    lengths = [int(stop) for stop in stops if stop & (stop - 1) == 0 and stop > 1]
    weights = stops - starts
    curve = np.stack([losses[:, stops <= n] @ weights[stops <= n] / n for n in lengths], 1)  # (sequences, lengths)
    steps, errors = _mean_and_error(np.diff(curve, axis=1))  # from lengths[i] to lengths[i + 1]
    past = [i for i, n in enumerate(lengths[:-1]) if n >= context]
    if not past:  # nothing was measured beyond the training context
        return {"class": NOT_DECIDED, "extends_from": None, "largest_rise": None, "largest_rise_error": None}
    worst = max(past, key=lambda i: steps[i])
    rise = {"largest_rise": float(steps[worst]), "largest_rise_error": float(errors[worst])}
    least = steps - _bound(len(past), len(losses)) * errors
    if not (least[past] <= NO_RISE).all():
        return {"class": "none", "extends_from": None, **rise}
    most = steps + _bound(1, len(losses)) * errors
    for kind, limit in (("strong", 0.0), ("weak", NO_RISE)):
        for first, start in enumerate(lengths[:-1]):
            if start <= context and (most[first:] < limit).all():
                return {"class": kind, "extends_from": start, **rise}
    return {"class": NOT_DECIDED, "extends_from": None, **rise}


def _generalization(losses: np.ndarray, starts: np.ndarray, stops: np.ndarray, context: int) -> dict[str, object]:
    """lg Def. 3.2: no bin after t* has a significantly larger loss than t*, the best bin inside the training context.

    Every other sequence chooses t*, and the rest test it. The smallest of many sample means is below its expectation,
    so a test on the same sequences would be biased.
    """
    if stops[-1] <= context:  # nothing was measured beyond the training context
        columns = ("generalizes", "best_position", "excess", "excess_error", "excess_sequences")
        return dict.fromkeys(columns)
    chosen_on, tested_on = losses[::2], losses[1::2]
    inside = np.flatnonzero(stops <= context)
    best = inside[np.argmin(chosen_on[:, inside].mean(0))]
    later = np.arange(best + 1, losses.shape[1])
    excess, errors = _mean_and_error(tested_on[:, later] - tested_on[:, [best]])
    bound = _bound(len(later), len(tested_on))
    worst = int(np.argmax(excess - bound * errors))
    return {
        "generalizes": bool(excess[worst] <= bound * errors[worst]),
        "best_position": int(starts[best] + stops[best]) // 2,
        "excess": float(excess[worst]),
        "excess_error": float(errors[worst]),
        "excess_sequences": len(tested_on),
    }


def _matrix(curve: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses (sequences, bins), and starts and stops of the bins, (bins,) each."""
    ordered = curve.sort("sequence", "position_from")
    bins = ordered.select("position_from", "position_to").unique().sort("position_from")
    starts, stops = bins["position_from"].to_numpy(), bins["position_to"].to_numpy()
    return ordered["loss"].to_numpy().reshape(-1, len(starts)), starts, stops


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over sequences (the first axis)."""
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def _bound(comparisons: int, sequences: int) -> float:
    """Number of standard errors that a significant one-sided difference exceeds."""
    return float(student.ppf(1 - LEVEL / comparisons, sequences - 1))
