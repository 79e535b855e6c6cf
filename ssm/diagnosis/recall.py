"""The recall tests of a diagnosis: passkeys, needles, and three tasks of RULER."""

from __future__ import annotations

from functools import partial
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


def passkeys(session: Session) -> pl.DataFrame | None:
    """The table of the passkey test; None: not measured, and `session.missing` has the reason."""
    if not session.spec.passkey:
        session.missing.append("passkey: not requested (--no-passkey)")
        return None
    ctx = session.ctx
    spec = Passkey(lengths=session.asked_lengths(), depths=DEPTHS, trials=TRIALS)
    try:
        pieces = passkey_pieces(spec, ctx.store.tokenizer(), ctx.seed)
    except UserError as error:
        session.missing.append(f"passkey: {error}")
        return None
    lengths = tuple(length for length in spec.lengths if length >= pieces.shortest)
    if not lengths:
        session.missing.append(f"passkey: its shortest prompt has {pieces.shortest} tokens")
        return None
    spec = spec.model_copy(update={"lengths": lengths})
    return session.measured("passkey", TRIALS * len(DEPTHS) * sum(lengths), lambda: passkey(spec, ctx))


def needles(session: Session) -> pl.DataFrame | None:
    """The table ACCURACY of the needle test: the same statements at every length and depth, in the diagnosis's text.

    None: not measured, and `session.missing` has the reason.
    """
    if not session.spec.passkey:
        session.missing.append("needles: not requested (--no-passkey)")
        return None
    store, lengths = session.ctx.store, session.asked_lengths()
    try:
        tasks = [_needle_task(store, depth, max(lengths)) for depth in DEPTHS]
        needle = Needle(tasks[0], "test", 0, store)
    except UserError as error:
        session.missing.append(f"needles: {error}")
        return None
    lengths = tuple(length for length in lengths if length >= needle.shortest)
    answer = tasks[0].answering(needle.room)
    tokens = TRIALS * len(DEPTHS) * sum(length + answer for length in lengths)
    specs = [Accuracy(task=task, lengths=lengths, examples=TRIALS) for task in tasks]
    return session.measured("needles", tokens, lambda: pl.concat(accuracy(spec, session.ctx) for spec in specs))


def ruler(session: Session) -> pl.DataFrame | None:
    """The table ACCURACY of three tasks of RULER, with random places in every prompt.

    None: nothing was measured. `session.missing` has the reason for each task that is missing.
    """
    if not session.spec.passkey:
        session.missing.append("RULER: not requested (--no-passkey)")
        return None
    store, asked, tables = session.ctx.store, session.asked_lengths(), []
    for name in RULER:
        try:
            task = _ruler_task(store, name, max(asked))
            shortest = Ruler(task, "test", 0, store).shortest(name)
        except UserError as error:
            session.missing.append(f"{name}: {error}")
            continue
        lengths = tuple(length for length in asked if length >= shortest)
        answer = task.answering(task.longest_answer)
        tokens = PROMPTS * sum(length + answer for length in lengths)
        spec = Accuracy(task=task, lengths=lengths, examples=PROMPTS)
        table = session.measured(name, tokens, partial(accuracy, spec, session.ctx))
        if table is not None:
            tables.append(table)
    return pl.concat(tables) if tables else None


def _ruler_task(store: TokenStore, name: str, length: int) -> RulerTask:
    """One of RULER's tasks in the tokens of a store, with a default length."""
    return RulerTask.parse(_task(store, name, {"length": length, "tasks": (name,)}), name)


def _needle_task(store: TokenStore, depth: float, length: int) -> NeedleTask:
    """Needles at one depth in the text of a store, with a default length."""
    return NeedleTask.parse(_task(store, "needle", {"length": length, "depths": (depth, depth)}), "needles")


def _task(store: TokenStore, name: str, part: dict[str, Any]) -> dict[str, Any]:
    text = store.spec.text
    assert text is not None
    return {"name": name, "corpus": text.corpus, "tokenizer": text.tokenizer, "mix": (part,)}
