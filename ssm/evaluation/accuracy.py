"""Accuracy on a task's test examples: teacher-forced, and decoded greedily by the model itself.

Teacher-forced tokens come with the pass over the example. Decoding goes on from the state behind the prompt, which that
pass goes through as well: so nothing is read twice.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.progress import Progress
from ssm.base.seeds import derived_seed
from ssm.base.tables import ACCURACY
from ssm.data.tasks import build_generator
from ssm.data.tasks.base import Answers, TestSet
from ssm.evaluation.stream import Segment, likeliest, segments
from ssm.evaluation.subject import Subject
from ssm.models.readable import Readable
from ssm.specs.measurements import Accuracy
from ssm.specs.tasks.base import Task


def accuracy(spec: Accuracy, subject: Subject) -> pl.DataFrame:
    """Every answer of every test set, in the schema ACCURACY."""
    seed = derived_seed(spec.seed, "accuracy", subject.seed)
    tests = [TestSet(build_generator(task, "test", seed, subject.store), spec.examples) for task in spec.sets()]
    answers = [test.answers() for test in tests]
    with subject.progress(spec.examples, sum(int(found.stop.max()) for found in answers)) as progress:
        return pl.concat(
            _of_set(task, test, found, subject, progress)
            for task, test, found in zip(spec.sets(), tests, answers, strict=True)
        )


def _of_set(task: Task, test: TestSet, answers: Answers, subject: Subject, progress: Progress) -> pl.DataFrame:
    sizes = answers.stop - answers.start  # (A,)
    first, end = int(answers.start.min()), int(answers.stop.max())
    forced = torch.zeros(len(test), end - first, dtype=torch.int64)  # by example and place: whether it is right
    generated = torch.zeros(len(sizes), int(sizes.max()), dtype=torch.int64)  # by answer and token
    stops = np.unique(answers.start[sizes > 1]) + 1  # behind every prompt: one token is the same either way
    for segment in segments(subject, test, end, stops=stops.tolist()):
        progress.advance(segment.targets.numel())
        begin = max(segment.start, first)
        if begin < segment.stop:
            targets = segment.targets[:, begin - segment.start :]
            said = likeliest(subject.model, segment.hidden[:, begin - segment.start :])  # (B, S)
            forced[segment.rows, begin - first : segment.stop - first] = (said == targets).long().cpu()
        if segment.stop in stops:
            _generate(subject.model, segment, test, answers, generated)
    forced, generated = subject.team.total(forced), subject.team.total(generated)  # zero but where a process read
    right = np.concatenate([np.zeros((len(test), 1), np.int64), forced.numpy().cumsum(1)], 1)
    forced_right = right[answers.example, answers.stop - first] - right[answers.example, answers.start - first]
    generated_right = np.where(sizes > 1, generated.sum(1).numpy(), forced_right)  # zero behind an answer's end
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
        },
        schema=ACCURACY.columns,
    )


@torch.inference_mode()
def _generate(model: Readable, segment: Segment, test: TestSet, answers: Answers, generated: Tensor) -> None:
    """Decode the answers that begin behind the segment, and mark in `generated` what is right of them."""
    place = {row: number for number, row in enumerate(segment.rows.tolist())}  # of an example among the rows
    asked = [
        number
        for number in np.nonzero(answers.start == segment.stop - 1)[0].tolist()
        if int(answers.example[number]) in place
    ]
    if not asked:
        return
    rows = torch.tensor([place[int(answers.example[number])] for number in asked])  # (a,)
    sizes = answers.stop[asked] - answers.start[asked]
    start, longest = segment.stop - 1, int(sizes.max())
    _, wanted = test.read(segment.rows.numpy(), start, start + longest)
    said = likeliest(model, segment.hidden[:, -1:])[rows.to(segment.hidden.device)]  # (a, 1)
    state = segment.state
    if len(rows) != len(segment.rows) or not torch.equal(rows, torch.arange(len(rows))):
        state = state.select(rows)  # type: ignore[attr-defined]
    written = [said]
    for _ in range(longest - 1):
        hidden, state = model.hidden(written[-1], state)
        written.append(likeliest(model, hidden))
    inside = torch.arange(longest) < torch.from_numpy(sizes)[:, None]  # (a, longest)
    generated[asked, :longest] = ((torch.cat(written, 1).cpu() == wanted[rows]) & inside).long()


def _counted(examples: np.ndarray) -> np.ndarray:
    """0, 1, ... for every answer among those of its example, which stand together."""
    new = np.diff(examples, prepend=-1) != 0
    places = np.arange(len(examples))
    return places - np.maximum.accumulate(np.where(new, places, 0))
