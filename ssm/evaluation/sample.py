"""An example of a task, piece by piece, as text."""

from __future__ import annotations

import numpy as np
import polars as pl

from ssm.base.seeds import derived_seed
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.sample import Sample


@MEASURES.function
def sample(spec: Sample, store: TokenStore) -> pl.DataFrame:
    """A row a piece, in the schema Sample.table.

    A tokenizer may drop the space in front of what it decodes alone, so a piece is what it adds to the text before it.

    Raises:
        DataError: the length is too short for an example.
    """
    generator = build_generator(spec.example(), "test", derived_seed(spec.seed, "sample"), store)
    tokenizer, tokens, before = store.tokenizer(), np.empty(0, np.int64), ""
    rows = []
    for place, (piece, its) in enumerate(generator.pieces(0)):
        tokens = np.concatenate([tokens, its])
        text = tokenizer.decode(tokens)
        rows.append({"place": place, "piece": piece, "tokens": len(its), "text": text[len(before) :]})
        before = text
    return pl.DataFrame(rows, schema=Sample.table.columns)
