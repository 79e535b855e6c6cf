"""The quantities of named models as they are built: sizes, properties of a recurrence, growth of a cost."""

from __future__ import annotations

import numpy as np
import polars as pl

from ssm.base.seeds import numpy_generator
from ssm.base.tables import COST, MODEL_SIZE, TAXONOMY, Schema, read_table, schema_name
from ssm.claims.estimate import DRAWS, LEVEL, Estimate, UndecidableError
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
    "identity": "an initial state remains as it is, whatever comes in (A_t = I)",
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
    return f"p of {COSTS[quantity.cost]} ~ T^p, the slope over all T on logarithmic scales, {quantity.model}"


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
    """Bytes give one exponent, exactly; seconds one a round, whose median has a bootstrap interval over the rounds."""
    rows = _rows(panel, COST, quantity).filter(pl.col("cost") == quantity.cost).sort("length", "repeat")
    logs = np.log(rows["value"].to_numpy().reshape(rows["length"].n_unique(), -1))  # (lengths, rounds)
    exponents = np.polyfit(np.log(rows["length"].unique().sort()), logs, 1)[0]  # (rounds,): as the machine was then
    value = float(np.median(exponents))
    if len(exponents) < 2:
        return _exact(value, quantity)
    generator = numpy_generator(0, "cost exponent")
    draws = np.median(generator.choice(exponents, (DRAWS, len(exponents))), axis=1)
    low, high = (float(np.quantile(draws, tail)) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    how = f"bootstrap of the median over {len(exponents)} rounds"
    return Estimate(value, low, high, how, words_on_model(quantity))


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
