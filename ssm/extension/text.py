"""The user's text in three parts that share no token: what trains, what the pages measure, what chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ssm.base.errors import DataError
from ssm.base.files import absolute
from ssm.data.build import TooFewDocumentsError
from ssm.data.own_text import own_text, windows_of
from ssm.data.store import TokenSplit, TokenStore
from ssm.plan.sources import text_files
from ssm.specs.data import TokenizerSpec
from ssm.specs.diagnosis import LEAST
from ssm.specs.extension import MOST


@dataclass(frozen=True)
class Text:
    """A store to train from, and two whose held-out parts are measured."""

    train: TokenStore
    page: TokenStore  # for the diagnoses, before and after
    choice: TokenStore  # for the choice among checkpoints
    words: str  # what is measured


class Stretch(TokenSplit):
    """The tokens [start, stop) of a split."""

    def __init__(self, split: TokenSplit, start: int, stop: int):
        inside = split.documents[(split.documents > start) & (split.documents < stop)] - start
        super().__init__(split.name, (), np.concatenate([[0], inside]), split.vocab_size)
        self.split, self.start, self.n_tokens = split, start, stop - start

    def rows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """As of a whole split."""
        if len(starts) and (starts.min() < 0 or starts.max() + length > self.n_tokens):
            raise IndexError(f"{self.name}: tokens {starts.min()} to {starts.max() + length} of {self.n_tokens}")
        return self.split.rows(starts + self.start, length)


def tokenized(
    text: Sequence[str],
    held_out: Sequence[str],
    share: float,
    tokenizer: TokenizerSpec,
    length: int,
    folder: Path,
    shortest: int = 1,
) -> Text:
    """The token stores, built below `folder` unless they are there.

    Args:
        text: files; all of them train where others are held out, and otherwise all but a share of the documents.
        held_out: other files, or none.
        length: of a measured window.
        shortest: a length that an error may advise.

    Raises:
        DataError: a file is missing, unreadable, or both trains and is held out; there are too few documents, or too
            few tokens.
        OutputError: `folder` cannot be written.
    """
    if held_out:
        both = set(text_files(absolute(text)) or ()) & set(text_files(absolute(held_out)) or ())
        if both:
            raise DataError(f"{min(both)}: is in --text and in --held-out; what is measured may not be trained on")
        train = own_text(text, tokenizer, folder / "training", 0.0)
        measured, words = own_text(held_out, tokenizer, folder / "held_out", 1.0), ", ".join(held_out)
    else:
        try:
            train = measured = own_text(text, tokenizer, folder / "text", share)
        except TooFewDocumentsError as error:
            few = (
                f"{error.documents} document{'s' * (error.documents > 1)}, too few to hold {share:g} of them out whole"
            )
            more = "give more documents, or another text with --held-out"
            raise DataError(f"{', '.join(text)}: {few}: {more}") from error
        words = f"{', '.join(text)} ({share:g} of the documents, held out)"
    page, choice = parts(measured.held_out, length, shortest)
    return Text(train, replace(measured, held_out=page), replace(measured, held_out=choice), words)


def parts(split: TokenSplit, length: int, shortest: int = 1) -> tuple[TokenSplit, TokenSplit]:
    """What the pages measure, and what chooses.

    The best of several checkpoints on some windows is partly the luckiest on them: the lowest of several noisy numbers
    lies below what it estimates. What chose may therefore not be what reports.

    Raises:
        DataError: they have fewer than LEAST windows of `length` each; no length below `shortest` is advised.
    """
    use = f"{LEAST} windows to measure and {LEAST} to choose a checkpoint"
    windows = windows_of(split, length, 2 * LEAST, use, shortest)
    cut = split.n_tokens - min(MOST, max(LEAST, windows // 4)) * (length + 1)
    return Stretch(split, 0, cut), Stretch(split, cut, split.n_tokens)
