"""An example of a task as text, in pieces."""

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
    """One row for each piece, in the schema Sample.table.

    Some tokenizers drop the first space of a text. So the text of a piece is what it adds to the decoded text before.

    Raises:
        DataError: the length is too short for an example.
    """
    generator = build_generator(spec.example(), "test", derived_seed(spec.seed, "sample"), store)
    tokenizer, tokens, before = store.tokenizer(), np.empty(0, np.int64), ""
    rows = []
    for place, (piece, of_piece) in enumerate(generator.pieces(0)):
        tokens = np.concatenate([tokens, of_piece])
        text = tokenizer.decode(tokens)
        rows.append({"place": place, "piece": piece, "tokens": len(of_piece), "text": text[len(before) :]})
        before = text
    return pl.DataFrame(rows, schema=Sample.table.columns)
