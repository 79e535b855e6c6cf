"""Tokenizers: bytes, or a tokenizer.json (trained here, from disk, from the hub) behind one small protocol."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import tokenizers

from ssm.base.errors import DataError, first_line
from ssm.specs.data import BpeTokenizer, BytesTokenizer, FileTokenizer, HubTokenizer, TokenizerSpec

TOKENIZER_BYTES = 256 * 2**20  # of a tokenizer.json: the largest have some ten MB
KEPT = 2**16  # sentences whose tokens are remembered: needles have some thousands
PIECE = 2**20  # characters encoded at once: the encoder needs some hundred bytes for each


class Tokenizer(Protocol):
    """Text to tokens and back."""

    @property
    def vocab_size(self) -> int:
        """V: every token is below it. The rows of a model's embedding, which may exceed the tokens in use."""

    @property
    def json(self) -> str | None:
        """The tokenizer.json that rebuilds it elsewhere; None for bytes, which need none."""

    def encode(self, texts: list[bytes]) -> list[np.ndarray]:
        """The tokens of each text, (n_i,) in `token_dtype(vocab_size)`; nothing is added at its ends."""

    def decode(self, tokens: np.ndarray) -> str:
        """The text of (n,) tokens; bytes that are no UTF-8 become U+FFFD."""

    def __hash__(self) -> int:
        """By identity: what is computed of a vocabulary can be kept."""


class ByteTokenizer:
    """A token is a byte."""

    vocab_size = 256
    json = None

    def encode(self, texts: list[bytes]) -> list[np.ndarray]:
        return [np.frombuffer(text, np.uint8) for text in texts]

    def decode(self, tokens: np.ndarray) -> str:
        return np.asarray(tokens).astype(np.uint8).tobytes().decode("utf-8", errors="replace")


class JsonTokenizer:
    """A tokenizer.json of the `tokenizers` package.

    Its truncation, padding and templates are off, and the spelling of a special token inside a text is text. A text
    beyond 1 Mi characters is encoded in pieces that end at line ends where there are any.

    Args:
        json: the content of the file.
        vocab_size: V; the tokenizer may not exceed it.
        source: the file or hub name, for errors.

    Raises:
        DataError: not a tokenizer.json, or one with a token that is not below `vocab_size`.
    """

    def __init__(self, json: str, vocab_size: int, source: str):
        self.json, self.vocab_size = json, vocab_size
        try:
            self.inner = tokenizers.Tokenizer.from_str(json)
            self.inner.encode_batch_fast([""], add_special_tokens=False)
        except BaseException as error:  # the package raises plain Exception, and panics, which are none
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise DataError(f"{source}: not a tokenizer.json ({first_line(error)})") from error
        self.inner.no_truncation()
        self.inner.no_padding()
        self.inner.encode_special_tokens = True
        needed = max(self.inner.get_vocab(with_added_tokens=True).values(), default=0) + 1
        if needed > vocab_size:
            raise DataError(f"{source}: the tokenizer needs vocab_size {needed}, the spec says {vocab_size}")

    def encode(self, texts: list[bytes]) -> list[np.ndarray]:
        dtype = token_dtype(self.vocab_size)
        encoded = []
        for text in texts:
            pieces = [self._ids(piece) for piece in _pieces(text.decode("utf-8", errors="replace"))]
            encoded.append(np.concatenate([np.asarray(ids, dtype) for ids in pieces]))
        return encoded

    def decode(self, tokens: np.ndarray) -> str:
        return self.inner.decode(np.asarray(tokens).tolist(), skip_special_tokens=False)

    def _ids(self, text: str) -> list[int]:
        # A batch of one: the fast encoder without offsets, on this thread alone (processes share the work).
        return self.inner.encode_batch_fast([text], add_special_tokens=False)[0].ids


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest little-endian unsigned type that holds every token below `vocab_size`."""
    return np.dtype("u1" if vocab_size <= 2**8 else "<u2" if vocab_size <= 2**16 else "<u4")


def make_tokenizer(spec: TokenizerSpec, training_texts: Iterator[bytes]) -> Tokenizer:
    """The tokenizer of a spec. Only a BPE tokenizer reads `training_texts`, which must hold no held-out document.

    Raises:
        DataError: the file, the hub's name or the optional package is missing, or the tokenizer does not fit the spec.
    """
    if isinstance(spec, BytesTokenizer):
        return ByteTokenizer()
    if isinstance(spec, BpeTokenizer):
        return train_bpe(training_texts, spec.vocab_size)
    path = Path(spec.path).expanduser() if isinstance(spec, FileTokenizer) else _download(spec)
    return read_tokenizer(path, spec.vocab_size)


def read_tokenizer(path: Path, vocab_size: int) -> JsonTokenizer:
    """A tokenizer.json on disk.

    Raises:
        DataError: missing, unreadable, not a tokenizer.json, or above `vocab_size`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(TOKENIZER_BYTES + 1)
        if len(content) > TOKENIZER_BYTES:
            raise DataError(f"{path}: not a readable tokenizer.json (it has more than {TOKENIZER_BYTES:,} bytes)")
        text = content.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path}: no such tokenizer") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable tokenizer.json ({first_line(error)})") from error
    return JsonTokenizer(text, vocab_size, str(path))


def train_bpe(texts: Iterator[bytes], vocab_size: int) -> JsonTokenizer:
    """Byte-level BPE (GPT-2's pre-tokenization, all 256 bytes in the alphabet, no special tokens).

    The same texts give the same tokenizer. A small corpus may support fewer than `vocab_size` tokens.
    """
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator((text.decode("utf-8", errors="replace") for text in texts), trainer)
    return JsonTokenizer(model.to_str(), vocab_size, "the trained tokenizer")


@lru_cache(KEPT)
def following(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The tokens of a text behind a sentence and a space, whichever way the tokenizer treats spaces: (n,) int64.

    They are remembered, and not to be changed.
    """
    sentence, both, alone = tokenizer.encode([b".", f". {text}".encode(), f" {text}".encode()])
    continues = np.array_equal(both[: len(sentence)], sentence)
    tokens = (both[len(sentence) :] if continues else alone).astype(np.int64)
    tokens.setflags(write=False)
    return tokens


def _download(spec: HubTokenizer) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        raise DataError(f"{spec.name}: tokenizers of the hub need `pip install 'ssm-length[hub]'`") from error
    try:
        return Path(huggingface_hub.hf_hub_download(spec.name, "tokenizer.json", revision=spec.revision))
    except Exception as error:  # the package raises its own and its transports' kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{spec.name}: the hub does not give its tokenizer.json ({reason})") from error


def _pieces(text: str) -> list[str]:
    """The text, cut after the last line end of every `PIECE` characters."""
    pieces, start = [], 0
    while len(text) - start > PIECE:
        end = text.rfind("\n", start, start + PIECE) + 1
        end = end or start + PIECE
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
