"""What a model is asked: keys and statements hidden in a text, and prompts by RULER's rules."""

from __future__ import annotations

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

TRIALS = 8  # passkeys, and needles, at one length and depth
PROMPTS = 16  # of each of RULER's tasks at one length
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


def passkeys(session: Session) -> pl.DataFrame | None:
    """In the schema PASSKEY; None: not measured, and the session says why."""
    if not session.spec.passkey:
        session.missing.append("passkey: not asked for")
        return None
    reader = session.reader
    asked = Passkey(lengths=session.asked_lengths(), depths=DEPTHS, trials=TRIALS)
    try:
        pieces = passkey_pieces(asked, reader.store.tokenizer(), reader.seed)
    except UserError as error:
        session.missing.append(f"passkey: {error}")
        return None
    lengths = tuple(length for length in asked.lengths if length >= pieces.shortest)
    if not lengths:
        session.missing.append(f"passkey: its prompt alone takes {pieces.shortest} tokens")
        return None
    if not session.affordable("passkey", TRIALS * len(DEPTHS) * sum(lengths)):
        return None
    return passkey(asked.model_copy(update={"lengths": lengths}), reader)


def needles(session: Session) -> pl.DataFrame | None:
    """The same statements at every length and depth, in the text of the diagnosis; in the schema ACCURACY.

    None: not measured, and the session says why.
    """
    if not session.spec.passkey:
        session.missing.append("needles: not asked for")
        return None
    store, lengths = session.reader.store, session.asked_lengths()
    try:
        tasks = [_needle_task(store, depth, max(lengths)) for depth in DEPTHS]
        needle = Needle(tasks[0], "test", 0, store)
    except UserError as error:
        session.missing.append(f"needles: {error}")
        return None
    lengths = tuple(length for length in lengths if length >= needle.shortest)
    behind = tasks[0].answering(needle.room)
    if not session.affordable("needles", TRIALS * len(DEPTHS) * sum(length + behind for length in lengths)):
        return None
    asked = [Accuracy(task=task, lengths=lengths, examples=TRIALS) for task in tasks]
    try:
        return pl.concat(accuracy(one, session.reader) for one in asked)
    except UserError as error:  # such as a text in which no sentence ends
        session.missing.append(f"needles: {error}")
        return None


def ruler(session: Session) -> pl.DataFrame | None:
    """Three tasks by RULER's rules, at places of their own in every prompt; in the schema ACCURACY.

    None: none was measured. The session says why one was not.
    """
    if not session.spec.passkey:
        session.missing.append("RULER: not asked for")
        return None
    store, asked, found = session.reader.store, session.asked_lengths(), []
    for name in RULER:
        try:
            task = _ruler_task(store, name, max(asked))
            shortest = Ruler(task, "test", 0, store).shortest(name)
        except UserError as error:
            session.missing.append(f"{name}: {error}")
            continue
        lengths = tuple(length for length in asked if length >= shortest)
        behind = task.answering(task.longest_answer)
        if session.affordable(name, PROMPTS * sum(length + behind for length in lengths)):
            try:
                found.append(accuracy(Accuracy(task=task, lengths=lengths, examples=PROMPTS), session.reader))
            except UserError as error:  # such as states that cannot be split by sequences
                session.missing.append(f"{name}: {error}")
    return pl.concat(found) if found else None


def _ruler_task(store: TokenStore, name: str, length: int) -> RulerTask:
    """One of RULER's tasks in a store's own tokens, of that length where no other is asked for."""
    text = store.spec.text
    assert text is not None
    mix = ({"length": length, "tasks": (name,)},)
    content = {"name": name, "corpus": text.corpus, "tokenizer": text.tokenizer, "mix": mix}
    return RulerTask.parse(content, name)


def _needle_task(store: TokenStore, depth: float, length: int) -> NeedleTask:
    """Needles at one depth in a store's own text, of that length where no other is asked for."""
    text = store.spec.text
    assert text is not None
    mix = ({"length": length, "depths": (depth, depth)},)
    content = {"name": "needle", "corpus": text.corpus, "tokenizer": text.tokenizer, "mix": mix}
    return NeedleTask.parse(content, "needles")
