"""The user's text in three parts without common tokens: for training, for the diagnoses, and for the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from ssm.base.counting import size
from ssm.base.errors import DataError
from ssm.base.paths import absolute
from ssm.data.own_text import own_text, windows_of
from ssm.data.pieces import Division, Pieces, divide
from ssm.data.store import TokenSplit, TokenStore
from ssm.extension.windows import HeldOut, for_choice, wanted
from ssm.plan.sources import text_files
from ssm.specs.data import TokenizerSpec
from ssm.specs.diagnosis import LEAST, DiagnosisSpec
from ssm.specs.diagnosis_defaults import TEXT_KEY
from ssm.specs.extension import HALF

SEED = 1234  # for drawing held-out documents: the same for all other settings


@dataclass(frozen=True)
class Text:
    """A store for training, and two stores with held-out parts for measurements."""

    train: TokenStore
    page: TokenStore  # for the diagnoses before and after
    choice: TokenStore  # for the choice among checkpoints
    files: str  # names of the measured files
    held_out: HeldOut


def tokenized(
    text: Sequence[str],
    held_out: Sequence[str],
    divided: bool,
    share: float | None,
    tokenizer: TokenizerSpec,
    spec: DiagnosisSpec,
    folder: Path,
    text_key: str = TEXT_KEY,
) -> Text:
    """The token stores, built in `folder` if they are missing.

    Args:
        text: files for training.
        held_out: other files to measure on. If empty, a part of `text` is held out for that.
        divided: whether a part of `text` is held out of training. Always true without other files.
        share: the share of `text` that is held out; None: `ssm.extension.windows.wanted` computes it.
        text_key: JSON key or Parquet column with the text.

    Raises:
        DataError: a file is missing, unreadable, or in both lists; or there are too few tokens.
        OutputError: `folder` cannot be written.
    """
    both = set(text_files(absolute(text)) or ()) & set(text_files(absolute(held_out)) or ()) if held_out else ()
    if both:
        raise DataError(f"{min(both)}: is in --text and in --held-out; give different files")
    measured = train = own_text(text, tokenizer, folder / "text", 0.0, text_key)
    known = _bytes_per_token(train.manifest, train.train)
    words, files, least = "", ", ".join(text), 1.0
    if divided:
        division, least = _divided(train.train, known, share, spec)
        words, files = _words(division, files), f"the held-out part of {files}"
        measured = replace(train, held_out=division.held_out)
        # The share is part of a run's spec: a run that has read another share is another run.
        unread = 1 - division.train.n_tokens / train.train.n_tokens
        manifest = train.manifest | {"spec": train.manifest["spec"] | {"held_out": unread}}
        train = replace(train, train=division.train, manifest=manifest)
    if held_out:
        measured, least = own_text(held_out, tokenizer, folder / "held_out", 1.0, text_key), 1.0
        known = _bytes_per_token(measured.manifest, measured.held_out)
        _check(measured.held_out, known, 1.0, "", spec)
        files = ", ".join(held_out)
        words = f"all {measured.held_out.n_tokens:,} tokens of {files}"
    page, choice = parts(measured.held_out, spec.length)
    windows = (page.n_tokens // (spec.length + 1), choice.n_tokens // (spec.length + 1))
    tokens = measured.held_out.n_tokens
    description = HeldOut(words, tokens, round(tokens * known), spec.length, *windows, spec.sequences, least)
    return Text(train, replace(measured, held_out=page), replace(measured, held_out=choice), files, description)


def require_training_text(text: Text, context: int) -> None:
    """Check that a divided text leaves a sequence of `context` tokens for training.

    Raises:
        DataError: it does not.
    """
    split, held_out = text.train.train, text.held_out
    if held_out.share < 1 and split.n_tokens <= context:
        raise DataError(
            f"{split.name}: with --held-out {held_out.share:g} --length {held_out.length}, {split.n_tokens} tokens are "
            f"left; context {context} needs {context + 1}; give a smaller --held-out, or more text"
        )


def parts(split: TokenSplit, length: int) -> tuple[TokenSplit, TokenSplit]:
    """The parts for the diagnoses and for the choice, from at least 2 LEAST windows of `length`.

    The parts must be different. The lowest of several noisy losses is too optimistic, so the text that chose a
    checkpoint cannot also measure it.
    """
    cut = split.n_tokens - for_choice(split.n_tokens // (length + 1)) * (length + 1)
    first, second = np.array([[0, cut]]), np.array([[cut, split.n_tokens]])
    return Pieces(split, first, split.name), Pieces(split, second, split.name)


def _divided(
    split: TokenSplit, bytes_per_token: float, share: float | None, spec: DiagnosisSpec
) -> tuple[Division, float]:
    """The division of the text, and the largest share that may be held out."""
    most = HALF if share is None else share
    how = "at most half of a text is held out" if share is None else f"{share:g} of the text is held out"
    _check(split, bytes_per_token, most, f", where {how}", spec)
    tokens = wanted(split.n_tokens, spec) if share is None else int(share * split.n_tokens)
    return divide(split, tokens, spec.length, SEED), most


def _check(split: TokenSplit, bytes_per_token: float, share: float, where: str, spec: DiagnosisSpec) -> None:
    """Check that `share` of a text has enough windows for the verdict and the choice."""
    windows = ceil(2 * LEAST / share)
    about = size(windows * (spec.length + 1) * bytes_per_token)
    use = f"about {about}: {LEAST} windows to measure and {LEAST} to choose a checkpoint{where}"
    windows_of(split, spec.length, windows, use, 2 * spec.context)


def _words(division: Division, files: str) -> str:
    """A description of the held-out part of a text."""
    whole = f"{division.whole:,} of {division.documents:,} documents of {files}"
    if not division.last:
        return f"{whole}, whole"
    cut = f"the last {division.last:,} tokens of {files if division.documents == 1 else 'one'}"
    gap = f"nothing reads the {division.gap:,} tokens before these"
    if division.documents == 1:
        return f"{cut}; {gap}"
    return f"{whole}, whole, and {cut} more; {gap}" if division.whole else f"{cut} document of {files}; {gap}"


def _bytes_per_token(manifest: dict[str, Any], split: TokenSplit) -> float:
    return float(manifest["corpus"]["bytes"]) / max(1, split.n_tokens)
