"""The prompt of the passkey task (lg Figure 8, after Mohtashami & Jaggi 2023) in the tokens of any tokenizer.

    There is an important info ... there. | is green. The sky is ... again. | The pass key is 12345. ... the pass key. |
    The grass is green. ... again. | What is the pass key? The pass key is | 12345

Every piece, and every sentence of the text between, is tokenized apart, as what follows another sentence. So a prompt
has its length to the token, the key stands between two sentences, and its tokens are the same wherever it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ssm.base.errors import DataError
from ssm.base.seeds import derived_seed, numpy_generator
from ssm.data.tokenizers import Tokenizer
from ssm.specs.measurements import Passkey

INSTRUCTION = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I will quiz you "
    "about the important information there."
)
TEXT = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")
NEEDLE = "The pass key is {key}. Remember it. {key} is the pass key."
QUESTION = "What is the pass key? The pass key is"
DIGITS = "0123456789"


@dataclass(frozen=True)
class PasskeyPieces:
    """What prompts of every length are made of, a row for each depth and trial (depth by depth)."""

    instruction: np.ndarray  # (I,) tokens, int64 as all others
    sentences: np.ndarray  # (U,) tokens of the text, which repeats
    ends: np.ndarray  # (sentences,): behind the last token of each
    question: np.ndarray  # (Q,) tokens
    needles: list[np.ndarray]  # (n_i,) tokens of each row
    keys: list[np.ndarray]  # (K_i,) tokens of each row
    last: np.ndarray  # (rows,): the number of the sentence that the text ends with
    depths: np.ndarray  # (rows,)

    @property
    def longest_key(self) -> int:
        """Tokens of the longest key."""
        return max(len(key) for key in self.keys)

    @property
    def shortest(self) -> int:
        """The least length of a prompt and its key: without any text between."""
        return len(self.instruction) + max(map(len, self.needles)) + len(self.question) + self.longest_key


def passkey_pieces(spec: Passkey, tokenizer: Tokenizer, seed: int) -> PasskeyPieces:
    """The pieces of a measurement's prompts: a function of its seed and the run's.

    A key, and where its text ends, belong to a depth and a trial: they are the same at every length.

    Raises:
        DataError: the tokenizer has no tokens for digits.
    """
    shape = (spec.trials, len(spec.depths))  # the first trials of more are those of fewer
    generators = (numpy_generator(derived_seed(spec.seed, "passkey", seed), name) for name in ("keys", "texts"))
    numbers, last = (
        generator.integers(low, high, size=shape).T.flatten()
        for generator, low, high in zip(
            generators, (10 ** (spec.digits - 1), 0), (10**spec.digits, len(TEXT)), strict=True
        )
    )
    sentences = [_following(tokenizer, sentence) for sentence in TEXT]
    keys = [_following(tokenizer, str(number)) for number in numbers]
    for number, key in zip(numbers, keys, strict=True):
        if digits_of(tokenizer, key) != str(number):
            raise DataError(f"the tokenizer cannot spell a key: of {number} it makes '{tokenizer.decode(key)}'")
    return PasskeyPieces(
        instruction=tokenizer.encode([INSTRUCTION.encode()])[0].astype(np.int64),
        sentences=np.concatenate(sentences),
        ends=np.cumsum([len(sentence) for sentence in sentences]),
        question=_following(tokenizer, QUESTION),
        needles=[_following(tokenizer, NEEDLE.format(key=number)) for number in numbers],
        keys=keys,
        last=last,
        depths=np.repeat(spec.depths, spec.trials),
    )


def digits_of(tokenizer: Tokenizer, tokens: np.ndarray) -> str:
    """The digits in the text of (n,) tokens."""
    return "".join(character for character in tokenizer.decode(tokens) if character in DIGITS)


class PasskeyPrompts:
    """Prompts of one length with their keys behind them. Tokens are made where they are read, none are stored.

    Args:
        pieces: what they are made of.
        length: tokens of a prompt and the longest key. What is behind a shorter key has no meaning.

    Raises:
        DataError: `length` is too short.
    """

    def __init__(self, pieces: PasskeyPieces, length: int):
        if length < pieces.shortest:
            raise DataError(
                f"length {length}: too short for a passkey; instruction, needle, question and key take "
                f"{pieces.shortest} tokens"
            )
        self.pieces, self.length = pieces, length
        self.prompt = length - pieces.longest_key  # tokens, up to the key
        self.needle = np.array([len(needle) for needle in pieces.needles])  # (rows,) tokens
        self.text = self.prompt - len(pieces.instruction) - self.needle - len(pieces.question)  # (rows,) tokens
        # Of the repeated sentences, the token with which a text begins: cut there, so that it ends with a whole one.
        self.first = (pieces.ends[pieces.last] - self.text) % len(pieces.sentences)  # (rows,)
        self.before = np.array([self._before(row) for row in range(len(pieces.depths))])  # (rows,) tokens of the text
        fixed = [
            np.concatenate([pieces.instruction, needle, pieces.question, key])
            for needle, key in zip(pieces.needles, pieces.keys, strict=True)
        ]
        # Without any text between, and zeros behind a shorter key: (rows, shortest).
        self.fixed = np.stack([np.pad(tokens, (0, pieces.shortest - len(tokens))) for tokens in fixed])

    def __len__(self) -> int:
        return len(self.pieces.depths)

    def read(self, rows: np.ndarray, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [start, stop) of some prompts: two (rows, stop - start) int64 tensors."""
        position = np.arange(start, stop + 1)
        needle, text, before, first = (x[rows, None] for x in (self.needle, self.text, self.before, self.first))
        begin = len(self.pieces.instruction)  # of the text; then come needle, text, question and key
        there, again, end = begin + before, begin + before + needle, begin + text + needle  # (B, 1)
        in_text = ((begin <= position) & (position < there)) | ((again <= position) & (position < end))  # (B, S + 1)
        in_front = np.where(position < there, 0, np.where(position < end, before, text))  # tokens of the text
        fixed = np.take_along_axis(self.fixed[rows], np.where(in_text, 0, position - in_front), 1)
        index = first + position - begin - np.where(position < there, 0, needle)
        sentences = self.pieces.sentences[index % len(self.pieces.sentences)]
        tokens = torch.from_numpy(np.where(in_text, sentences, fixed))
        return tokens[:, :-1], tokens[:, 1:]

    def _before(self, row: int) -> int:
        """Tokens of the text before the key: those before the end of a sentence that is nearest to the depth."""
        text, period = int(self.text[row]), len(self.pieces.sentences)
        wanted = self.pieces.depths[row] * text
        rounds = int(wanted) // period + np.arange(-1, 3)
        ends = (self.pieces.ends - self.first[row] + period * rounds[:, None]).flatten()
        places = np.unique([0, text, *ends[(ends > 0) & (ends < text)]])
        return int(places[np.abs(places - wanted).argmin()])


def _following(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text behind a sentence and a space, whichever way the tokenizer treats spaces: (n,) int64."""
    sentence, both, alone = tokenizer.encode([b".", f". {text}".encode(), f" {text}".encode()])
    continues = np.array_equal(both[: len(sentence)], sentence)
    return (both[len(sentence) :] if continues else alone).astype(np.int64)
