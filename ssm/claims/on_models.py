"""The quantities of named models as they are built: sizes, properties of a recurrence, growth of a cost."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from scipy.special import stdtrit

from ssm.base.tables import COST, MODEL_SIZE, TAXONOMY, Schema, read_table, schema_name
from ssm.claims.estimate import LEVEL, Estimate, UndecidableError
from ssm.claims.panel import Panel
from ssm.specs.claim import CostExponent, ParameterRatio, SystemProperty

ModelQuantity = ParameterRatio | SystemProperty | CostExponent

COSTS = {
    "training_step": "time of a training step",
    "training_memory": "bytes kept for the backward pass",
    "decoding_step": "time of a decoding step",
    "state": "bytes of the state",
}
PROPERTIES = {
    "selective": "what remains of an initial state depends on the input",
    "linear": "what remains of an initial state is proportional to it",
    "constant": "the state is as large after many tokens as after one",
}


def estimate_on_model(panel: Panel, quantity: ModelQuantity) -> Estimate:
    """The quantity, with its interval where it was timed.

    Raises:
        UndecidableError: the model is not in the tables, or they cannot give it.
    """
    if isinstance(quantity, ParameterRatio):
        return _parameter_ratio(panel, quantity)
    if isinstance(quantity, SystemProperty):
        return _property(panel, quantity)
    return _cost_exponent(panel, quantity)


def words_on_model(quantity: ModelQuantity) -> str:
    """What is computed, in one line."""
    if isinstance(quantity, ParameterRatio):
        return f"parameters of {quantity.model} counted here / parameters that the paper states"
    if isinstance(quantity, SystemProperty):
        return f"1 if {PROPERTIES[quantity.property]}, else 0; measured on {quantity.model}"
    return f"p of {COSTS[quantity.cost]} ~ T^p between the two largest T, {quantity.model}"


def _parameter_ratio(panel: Panel, quantity: ParameterRatio) -> Estimate:
    row = _rows(panel, MODEL_SIZE, quantity).row(0, named=True)
    if not row["published_parameters"]:
        raise UndecidableError(f"no published number of parameters is known for {quantity.model}")
    return _exact(row["parameters"] / row["published_parameters"], quantity)


def _property(panel: Panel, quantity: SystemProperty) -> Estimate:
    row = _rows(panel, TAXONOMY, quantity).row(0, named=True)
    if quantity.property == "constant":
        return _exact(float(row["state_numbers_late"] == row["state_numbers"]), quantity)
    if row[quantity.property] is None:
        raise UndecidableError(f"the state of {quantity.model} grows, so that nothing of an initial state is lost")
    return _exact(float(row[quantity.property]), quantity)


def _cost_exponent(panel: Panel, quantity: CostExponent) -> Estimate:
    """Bytes give an exact exponent; seconds Student's interval on the difference of mean logarithms."""
    rows = _rows(panel, COST, quantity).filter(pl.col("cost") == quantity.cost)
    shorter, longer = rows["length"].unique().sort()[-2:]
    logs = [np.log(rows.filter(pl.col("length") == length)["value"].to_numpy()) for length in (shorter, longer)]
    span = math.log(longer / shorter)
    value = float(np.median(logs[1]) - np.median(logs[0])) / span
    repeats = min(map(len, logs))
    if repeats < 2:
        return _exact(value, quantity)
    error = math.sqrt(sum(float(x.var(ddof=1)) / len(x) for x in logs)) / span
    half = float(stdtrit(repeats - 1, 0.5 + LEVEL / 2)) * error
    return Estimate(value, value - half, value + half, f"t over {repeats} timed steps", words_on_model(quantity))


def _rows(panel: Panel, schema: Schema, quantity: ModelQuantity) -> pl.DataFrame:
    for table in panel.task.tables:
        path = panel.folder / f"{table}.parquet"
        if schema_name(path) != schema.name:
            continue
        rows = read_table(path, schema).filter(pl.col("model") == quantity.model)
        if rows.height:
            return rows
    raise UndecidableError(f"{quantity.model} is not among the models measured at the scale {panel.task.scale}")


def _exact(value: float, quantity: ModelQuantity) -> Estimate:
    return Estimate(value, value, value, "exact", words_on_model(quantity))
