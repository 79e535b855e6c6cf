"""Tokenizers with one small protocol: bytes, or a tokenizer.json (trained here, from disk, from the hub)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
import tokenizers

from ssm.base.errors import DataError, first_line
from ssm.base.paths import home_expanded
from ssm.specs.data import BpeTokenizer, BytesTokenizer, FileTokenizer, HubTokenizer, TokenizerSpec

TOKENIZER_BYTES = 256 * 2**20  # limit for a tokenizer.json: the largest have about ten MB
KEPT = 2**16  # cached sentences; needle tasks have thousands
UNKNOWN = "\ufffd"  # decoded from bytes that are not UTF-8
BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")
PIECE = 2**20  # characters that are encoded at once: the encoder needs about 100 bytes for each


class Tokenizer(Protocol):
    """Converts text to tokens and back."""

    @property
    def vocab_size(self) -> int:
        """V: every token is below it. A model's embedding has V rows, perhaps more than there are tokens in use."""

    @property
    def json(self) -> str | None:
        """The tokenizer.json that restores it in another process; None for bytes."""

    def encode(self, texts: list[bytes]) -> list[np.ndarray]:
        """The tokens of each text, (n_i,) in `token_dtype(vocab_size)`, without special tokens at the ends."""

    def decode(self, tokens: np.ndarray) -> str:
        """The text of (n,) tokens; bytes that are not UTF-8 become U+FFFD. Rows that no text uses have no text."""

    def __hash__(self) -> int:
        """By identity, so that results for a tokenizer can be cached."""


class ByteTokenizer:
    """Each byte is a token."""

    vocab_size = 256
    json = None

    def encode(self, texts: list[bytes]) -> list[np.ndarray]:
        return [np.frombuffer(text, np.uint8) for text in texts]

    def decode(self, tokens: np.ndarray) -> str:
        return tokens[tokens < 256].astype(np.uint8).tobytes().decode("utf-8", errors="replace")


class JsonTokenizer:
    """A tokenizer.json of the `tokenizers` package.

    Truncation, padding and templates are off, and special tokens inside a text are read as text. A text of more than
    2^20 characters is encoded in pieces, which end at line ends if there are any.

    Args:
        json: the content of the file.
        vocab_size: V; the tokenizer must not need more.
        source: the file or hub name, for errors.

    Raises:
        DataError: the content is not a tokenizer.json, or has a token of at least `vocab_size`.
    """

    def __init__(self, json: str, vocab_size: int, source: str):
        self.json, self.vocab_size = json, vocab_size
        try:
            self.inner = _parsed(json)
        except BaseException as error:  # the package raises Exception, and panics that are not an Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise DataError(f"{source}: not a tokenizer.json ({first_line(error)})") from error
        needed = max(self.inner.get_vocab(with_added_tokens=True).values(), default=0) + 1
        if needed > vocab_size:
            raise DataError(f"{source}: the tokenizer needs vocab_size {needed}, the spec says {vocab_size}")

    def encode(self, texts: list[bytes]) -> list[np.ndarray]:
        dtype = token_dtype(self.vocab_size)
        encoded = []
        for text in texts:
            pieces = _pieces(text.decode("utf-8", errors="replace"))
            encoded.append(np.concatenate([np.asarray(self._ids(piece), dtype) for piece in pieces]))
        return encoded

    def decode(self, tokens: np.ndarray) -> str:
        numbers = np.asarray(tokens).tolist()
        text = self.inner.decode(numbers, skip_special_tokens=False)
        if UNKNOWN in text and (decoder := self.inner.decoder) is not None and decoder.decode(["<0x41>"]) == "A":
            # The package replaces all of a run of tokens for single bytes if one of its bytes is not UTF-8.
            names = [name for number in numbers if (name := self.inner.id_to_token(number)) is not None]
            text = decoder.decode(_valid_bytes_apart(names))
        return text

    def _ids(self, text: str) -> list[int]:
        # A list of one text: the fast encoder, without offsets, on this thread only (processes share the work).
        return self.inner.encode_batch_fast([text], add_special_tokens=False)[0].ids


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest little-endian unsigned type for tokens below `vocab_size`."""
    return np.dtype("u1" if vocab_size <= 2**8 else "<u2" if vocab_size <= 2**16 else "<u4")


def make_tokenizer(spec: TokenizerSpec, training_texts: Iterator[bytes]) -> Tokenizer:
    """The tokenizer of a spec. Only a BPE tokenizer reads `training_texts`, which must not contain held-out documents.

    Raises:
        DataError: the file, the hub's name or the optional package is missing, or the tokenizer does not fit the spec.
    """
    if isinstance(spec, BytesTokenizer):
        return ByteTokenizer()
    if isinstance(spec, BpeTokenizer):
        return train_bpe(training_texts, spec.vocab_size)
    path = home_expanded(spec.path) if isinstance(spec, FileTokenizer) else _download(spec)
    return read_tokenizer(path, spec.vocab_size)


def read_tokenizer(path: Path, vocab_size: int) -> JsonTokenizer:
    """Read a tokenizer.json from disk.

    Raises:
        DataError: it is missing or unreadable, is not a tokenizer.json, or needs more than `vocab_size`.
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
    """Train byte-level BPE (GPT-2's pre-tokenization, all 256 bytes in the alphabet, no special tokens).

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
    """The tokens of a text after a sentence and a space, for any treatment of spaces by the tokenizer: (n,) int64.

    The result is cached and read-only.
    """
    sentence, both, alone = tokenizer.encode([b".", f". {text}".encode(), f" {text}".encode()])
    continues = np.array_equal(both[: len(sentence)], sentence)
    tokens = (both[len(sentence) :] if continues else alone).astype(np.int64)
    tokens.setflags(write=False)
    return tokens


@lru_cache(1)
def _parsed(json: str) -> tokenizers.Tokenizer:
    """The tokenizer of the package, with the settings of `JsonTokenizer`.

    Cached: a command checks a tokenizer against the model, reads its special tokens, and encodes and decodes text.
    """
    inner = tokenizers.Tokenizer.from_str(json)
    inner.encode_batch_fast([""], add_special_tokens=False)
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = True
    if inner.decoder is None and _keeps_spaces(inner):
        # Without a decoder, the package puts a space between all tokens, such as the letters of DNA.
        inner.decoder = tokenizers.decoders.Fuse()
    return inner


def _download(spec: HubTokenizer) -> Path:
    """The file of a folder with the hub's name, as for weights, or of the hub."""
    own = Path(spec.name, "tokenizer.json")
    return own if spec.revision is None and own.is_file() else _of_hub(spec.name, spec.revision)


@lru_cache(1)
def _of_hub(name: str, revision: str | None) -> Path:
    """The file of the hub. Cached, like `_parsed`: each question can take half a minute without a network."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise DataError(f"{name}: tokenizers of the hub need `pip install '.[hub]'` in the clone") from error
    try:
        return Path(huggingface_hub.hf_hub_download(name, "tokenizer.json", revision=revision))
    except Exception as error:  # the package raises its own exceptions, and its transports' exceptions
        raise DataError(f"{name}: cannot get its tokenizer.json from the hub ({first_line(error)})") from error


def _keeps_spaces(inner: tokenizers.Tokenizer) -> bool:
    """Whether a space reaches the tokenizer's model as a space, and a token is what it stands for."""
    splitter = inner.pre_tokenizer
    if isinstance(inner.model, tokenizers.models.WordPiece):  # it marks a token inside a word, as in "##ing"
        return False
    return splitter is None or "".join(piece for piece, _ in splitter.pre_tokenize_str("a a")) == "a a"


def _valid_bytes_apart(names: list[str]) -> list[str]:
    """The names of tokens, with U+FFFD for those of bytes ("<0xE2>") that are not UTF-8."""
    apart = list[str]()
    for is_byte, run in groupby(names, key=lambda name: BYTE_TOKEN.fullmatch(name) is not None):
        if not is_byte:
            apart.extend(run)
            continue
        for one in bytes(int(name[3:5], 16) for name in run).decode("utf-8", errors="replace"):
            apart.extend([one] if one == UNKNOWN else [f"<0x{byte:02X}>" for byte in one.encode()])
    return apart


def _pieces(text: str) -> list[str]:
    """The text in pieces of at most `PIECE` characters, cut after a line end if possible."""
    pieces, start = [], 0
    while len(text) - start > PIECE:
        end = text.rfind("\n", start, start + PIECE) + 1
        end = end or start + PIECE
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
