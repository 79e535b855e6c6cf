"""Multi-query associative recall (MQAR): key value key value ..., then key . . . key . (Arora et al. 2023)."""

from __future__ import annotations

import numpy as np

from ssm.data.tasks.base import Answers, Examples, Generator
from ssm.specs.tasks.recall import RecallTask

FILL = 0


class Recall(Generator, kind="recall"):
    """Makes all examples of a part of the mix together."""

    spec: RecallTask

    def make(self, indices: np.ndarray) -> Examples:
        spec = self.spec
        B, N = len(indices), spec.least_context
        part_of = self.parts(self.draws(indices))  # (B,)
        tokens = np.full((B, N + 1), FILL)
        labels = np.full((B, N), FILL)  # the values that answer a query
        given = np.zeros((B, N), np.int64)  # for a queried key, the position where it was given
        for number, part in enumerate(spec.mix):
            few = np.flatnonzero(part_of == number)  # (b,)
            rows, draws = few[:, None], self.draws(indices[few])
            K, front = part.pairs, 2 * part.pairs  # pairs, and the number of their tokens
            keys = 1 + draws.chosen("keys", np.ones(spec.keys), K)  # (b, K)
            values = spec.keys + 1 + draws.chosen("values", np.ones(spec.keys + 1), K)  # (b, K)
            likely = np.arange(1, (part.length - front) // 2 + 1) ** (spec.power - 1.0)
            places = front + 2 * draws.chosen("places", likely, K)  # (b, K), position of each query
            tokens[few, 0:front:2], tokens[few, 1:front:2] = keys, values
            tokens[rows, places], labels[rows, places], given[rows, places] = keys, values, np.arange(0, front, 2)
        target_mask = labels != FILL
        rows, places = np.nonzero(target_mask)
        length, pairs = np.array([(part.length, part.pairs) for part in spec.mix])[part_of[rows]].T  # (A,)
        return Examples(
            tokens,
            target_mask,
            Answers(
                example=rows,
                start=places,
                stop=places + 1,
                length=length,
                group=len(spec.groups) * (places - given[rows, places]) // length,
                difficulty=pairs.astype(np.float64),
            ),
            labels,
            sources=given + 1,  # a value follows its key
        )
