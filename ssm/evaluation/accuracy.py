"""Accuracy on the test examples of a task, under teacher forcing and in greedy decoding.

One pass over the examples gives the results under teacher forcing. Greedy decoding and the wrong alternatives continue
from the state after the prompt, which is saved in the same pass. So no token is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.progress import Progress
from ssm.base.seeds import derived_seed
from ssm.data.batches import IGNORE_INDEX
from ssm.data.tasks import build_generator
from ssm.data.tasks.base import Answers, TestSet
from ssm.evaluation.alternatives import log_likelihoods
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.evaluation.stream import Segment, segments
from ssm.models.logits import likeliest, read_written
from ssm.models.readable import ModelState, Readable
from ssm.specs.measurements.accuracy import Accuracy
from ssm.specs.tasks.base import Task


@MEASURES.function
def accuracy(spec: Accuracy, ctx: EvaluationContext) -> pl.DataFrame:
    """All answers of all test sets, in the schema Accuracy.table."""
    seed = derived_seed(spec.seed, "accuracy", ctx.seed)
    tests = [TestSet(build_generator(task, "test", seed, ctx.store), spec.examples) for task in spec.sets()]
    answers = [test.answers() for test in tests]
    with ctx.progress(spec.examples, sum(int(of_set.stop.max()) for of_set in answers)) as progress:
        return pl.concat(
            _of_set(task, test, of_set, ctx, progress)
            for task, test, of_set in zip(spec.sets(), tests, answers, strict=True)
        )


def _of_set(task: Task, test: TestSet, answers: Answers, ctx: EvaluationContext, progress: Progress) -> pl.DataFrame:
    sizes = answers.stop - answers.start  # (A,)
    first, end = int(answers.start.min()), int(answers.stop.max())
    forced = torch.zeros(len(test), end - first, dtype=torch.int64)  # 1 if right, by example and place
    generated = torch.zeros(len(sizes), int(sizes.max()), dtype=torch.int64)  # 1 if right, by answer and token
    compared = answers.alternatives is not None
    margins = torch.zeros(len(sizes), dtype=torch.float64)  # by answer, nats
    # Segments end after each prompt. An answer of one token needs no decoding: teacher forcing gives the same.
    stops = np.unique(answers.start if compared else answers.start[sizes > 1]) + 1
    for segment in segments(ctx, test, end, stops=stops.tolist()):
        progress.advance(segment.targets.numel())
        begin = max(segment.start, first)
        if begin < segment.stop:
            targets = segment.targets[:, begin - segment.start :]
            predicted = likeliest(ctx.model, segment.hidden[:, begin - segment.start :])  # (B, S)
            forced[segment.rows, begin - first : segment.stop - first] = (predicted == targets).long().cpu()
        prompted = _prompted(segment, test, answers) if segment.stop in stops else None
        if prompted is not None:
            _generate(ctx.model, prompted, generated)
            if answers.alternatives is not None:
                _compare(ctx.model, prompted, answers.alternatives, margins)
    forced, generated = ctx.total(forced), ctx.total(generated)
    margins = ctx.total(margins) if compared else margins
    right = np.concatenate([np.zeros((len(test), 1), np.int64), forced.numpy().cumsum(1)], 1)
    forced_right = right[answers.example, answers.stop - first] - right[answers.example, answers.start - first]
    generated_right = np.where(sizes > 1, generated.sum(1).numpy(), forced_right)  # zero after the end of an answer
    return pl.DataFrame(
        {
            "length": answers.length,
            "group": [task.groups[group] for group in answers.group],
            "example": answers.example,
            "answer": _counted(answers.example),
            "difficulty": pl.Series(answers.difficulty).fill_nan(None),
            "tokens": sizes,
            "forced_share": forced_right / sizes,
            "forced_all": forced_right == sizes,
            "generated_share": generated_right / sizes,
            "generated_all": generated_right == sizes,
        }
        | ({"margin": margins.numpy(), "preferred": margins.numpy() > 0} if compared else {}),
        schema_overrides=Accuracy.table.columns,
    )


@dataclass(frozen=True)
class Prompted:
    """Answers that begin after a segment, and the state of the model there."""

    answers: list[int]  # (a,) numbers of the answers
    hidden: Tensor  # (a, 1, *) of the last token of each prompt
    state: ModelState
    tokens: np.ndarray  # (a, longest) right tokens, IGNORE_INDEX after the end of an answer


def _prompted(segment: Segment, test: TestSet, answers: Answers) -> Prompted | None:
    """The answers that begin after this segment; None if there are none."""
    place = {row: number for number, row in enumerate(segment.rows.tolist())}  # example -> row of the segment
    numbers = [
        number
        for number in np.nonzero(answers.start == segment.stop - 1)[0].tolist()
        if int(answers.example[number]) in place
    ]
    if not numbers:
        return None
    rows = torch.tensor([place[int(answers.example[number])] for number in numbers])  # (a,)
    sizes = answers.stop[numbers] - answers.start[numbers]
    start, longest = segment.stop - 1, int(sizes.max())
    _, wanted = test.read(segment.rows.numpy(), start, start + longest)
    inside = np.arange(longest) < sizes[:, None]  # (a, longest)
    state = segment.state
    if len(rows) != len(segment.rows) or not torch.equal(rows, torch.arange(len(rows))):
        state = state.select(rows)
    hidden = segment.hidden[:, -1:][rows.to(segment.hidden.device)]
    return Prompted(numbers, hidden, state, np.where(inside, wanted[rows].numpy(), IGNORE_INDEX))


@torch.inference_mode()
def _generate(model: Readable, prompted: Prompted, generated: Tensor) -> None:
    """Decode the answers greedily, and mark the right tokens in `generated`."""
    written, state = [likeliest(model, prompted.hidden)], prompted.state.copy()  # (a, 1)
    for _ in range(prompted.tokens.shape[1] - 1):
        hidden, state = read_written(model, written[-1], state)
        written.append(likeliest(model, hidden))
    wanted = torch.from_numpy(prompted.tokens)
    generated[prompted.answers, : wanted.shape[1]] = (torch.cat(written, 1).cpu() == wanted).long()


def _compare(model: Readable, prompted: Prompted, alternatives: np.ndarray, margins: Tensor) -> None:
    """Write into `margins` how much more likely each answer is than its best alternative.

    Args:
        alternatives: (A, K, M) tokens of K alternatives for each answer.
    """
    wrong = alternatives[prompted.answers]  # (a, K, M)
    room = wrong.shape[2] - prompted.tokens.shape[1]
    right = np.pad(prompted.tokens, ((0, 0), (0, room)), constant_values=IGNORE_INDEX)
    candidates = np.concatenate([right[:, None], wrong], 1)  # (a, 1 + K, M)
    likelihoods = log_likelihoods(model, prompted.hidden, prompted.state, candidates)
    margins[prompted.answers] = likelihoods[:, 0] - likelihoods[:, 1:].max(1).values


def _counted(examples: np.ndarray) -> np.ndarray:
    """Number the answers of each example 0, 1, ...; answers of one example are neighbors."""
    new = np.diff(examples, prepend=-1) != 0
    places = np.arange(len(examples))
    return places - np.maximum.accumulate(np.where(new, places, 0))
