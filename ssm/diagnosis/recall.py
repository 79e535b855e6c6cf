"""The recall tests of a diagnosis: passkeys, needles, and three tasks of RULER."""

from __future__ import annotations

from typing import Any

import polars as pl

from ssm.base.errors import UserError
from ssm.data.store import TokenStore
from ssm.data.tasks.needle import Needle
from ssm.data.tasks.ruler import Ruler
from ssm.diagnosis.session import Session
from ssm.evaluation.accuracy import accuracy
from ssm.evaluation.passkey import passkey, passkey_pieces
from ssm.specs.measurements.accuracy import Accuracy
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.tasks.needle import NeedleTask
from ssm.specs.tasks.ruler import RULER, RulerTask

TRIALS = 8  # passkeys or needles at one length and depth
PROMPTS = 16  # prompts of each of RULER's tasks at one length
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


def passkeys(session: Session) -> pl.DataFrame:
    """The table of the passkey test.

    Raises:
        UserError: it cannot be measured, or the user does not want it.
    """
    ctx = session.ctx
    spec = Passkey(lengths=session.asked_lengths(), depths=DEPTHS, trials=TRIALS)
    shortest = passkey_pieces(spec, ctx.store.tokenizer(), ctx.seed).shortest
    lengths = tuple(length for length in spec.lengths if length >= shortest)
    if not lengths:
        raise UserError(f"its shortest prompt has {shortest} tokens")
    session.spend(TRIALS * len(DEPTHS) * sum(lengths))
    return passkey(spec.model_copy(update={"lengths": lengths}), ctx)


def needles(session: Session) -> pl.DataFrame:
    """The table ACCURACY of the needle test: the same statements at every length and depth, in the diagnosis's text.

    Raises:
        UserError: as `passkeys`. For example, no sentence of the text ends.
    """
    store, asked = session.ctx.store, session.asked_lengths()
    tasks = [_needle_task(store, depth, max(asked)) for depth in DEPTHS]
    needle = Needle(tasks[0], "test", 0, store)
    lengths = tuple(length for length in asked if length >= needle.shortest)
    answer = tasks[0].answering(needle.room)
    session.spend(TRIALS * len(DEPTHS) * sum(length + answer for length in lengths))
    specs = [Accuracy(task=task, lengths=lengths, examples=TRIALS) for task in tasks]
    return pl.concat(accuracy(spec, session.ctx) for spec in specs)


def ruler(session: Session) -> pl.DataFrame | None:
    """The table ACCURACY of three tasks of RULER, with random places in every prompt.

    None: nothing was measured. `session.missing` has the reason for each task that is missing.

    Raises:
        UserError: the user does not want it.
    """
    asked = session.asked_lengths()
    tables = [session.measured(name, _of_ruler, session, name, asked) for name in RULER]
    found = [table for table in tables if table is not None]
    return pl.concat(found) if found else None


def _of_ruler(session: Session, name: str, asked: tuple[int, ...]) -> pl.DataFrame:
    """The table ACCURACY of one of RULER's tasks.

    Raises:
        UserError: as `passkeys`. For example, the states cannot be split by sequences.
    """
    store = session.ctx.store
    task = RulerTask.parse(_task(store, name, {"length": max(asked), "tasks": (name,)}), name)
    shortest = Ruler(task, "test", 0, store).shortest(name)
    lengths = tuple(length for length in asked if length >= shortest)
    answer = task.answering(task.longest_answer)
    session.spend(PROMPTS * sum(length + answer for length in lengths))
    return accuracy(Accuracy(task=task, lengths=lengths, examples=PROMPTS), session.ctx)


def _needle_task(store: TokenStore, depth: float, length: int) -> NeedleTask:
    """Needles at one depth in the text of a store, with a default length."""
    return NeedleTask.parse(_task(store, "needle", {"length": length, "depths": (depth, depth)}), "needles")


def _task(store: TokenStore, name: str, part: dict[str, Any]) -> dict[str, Any]:
    text = store.spec.text
    assert text is not None
    return {"name": name, "corpus": text.corpus, "tokenizer": text.tokenizer, "mix": (part,)}
