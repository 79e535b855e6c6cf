"""Bytes of the text that tokens represent, compared with the bytes of byte-level tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from data.tasks.test_prompts import with_a_space_in_front

from ssm.data.own_text import own_text
from ssm.data.spelled import spelled_bytes
from ssm.data.store import TokenStore
from ssm.data.tokenizers import ByteTokenizer, JsonTokenizer, train_bpe
from ssm.specs.data import BytesTokenizer, FileTokenizer

TEXT = "Grüße, naïve 漢字 and 😀😀 cost €5 or more; plain words do not. " * 12


def store_of(folder: Path, tokenizer: JsonTokenizer | None, text: str = TEXT) -> TokenStore:
    (folder / "text.txt").write_text(text)
    spec: BytesTokenizer | FileTokenizer = BytesTokenizer()
    if tokenizer is not None:
        assert tokenizer.json is not None
        (folder / "tokenizer.json").write_text(tokenizer.json)
        spec = FileTokenizer(path=str(folder / "tokenizer.json"), vocab_size=tokenizer.vocab_size)
    return own_text([str(folder / "text.txt")], spec, folder / "tokens", held_out=1.0)


def byte_level() -> tuple[JsonTokenizer, np.ndarray]:
    """A tokenizer, and the bytes of each token, (V,): every character of a token represents a byte."""
    tokenizer = train_bpe(iter([b"and the words plain words do not cost more", b"or more; and"]), 290)
    vocab = tokenizer.inner.get_vocab()
    return tokenizer, np.array([len(name) for name in sorted(vocab, key=lambda name: vocab[name])])


def byte_fallback() -> tuple[JsonTokenizer, np.ndarray]:
    """A tokenizer like Llama's, with a token for each byte of a character that it does not know."""
    names = [f"<0x{byte:02X}>" for byte in range(256)] + list(" Gadeinoprst")
    model = tokenizers.models.BPE({name: token for token, name in enumerate(names)}, [], byte_fallback=True)
    inner = tokenizers.Tokenizer(model)
    inner.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()])
    return JsonTokenizer(inner.to_str(), len(names), "test"), np.ones(len(names), np.int64)


@pytest.mark.parametrize("made", [byte_level, byte_fallback])
@pytest.mark.parametrize("text", [TEXT, "Grüße, " + "漢字かな" * 50])
def test_every_byte_is_counted_once_in_the_bin_where_its_character_ends(
    made: Callable[[], tuple[JsonTokenizer, np.ndarray]], text: str, tmp_path: Path
) -> None:
    tokenizer, sizes = made()
    store = store_of(tmp_path, tokenizer, text)
    split = store.held_out
    tokens = split.read(0, split.n_tokens)
    assert len(tokens) > len(text), "characters of several tokens"
    ends = np.concatenate([[0], sizes[tokens].cumsum()])  # bytes before every token
    whole = np.concatenate([[0], np.cumsum([len(one.encode()) for one in text])])  # where characters end
    expected = whole[np.searchsorted(whole, ends, side="right") - 1]  # cut back to the last whole character
    starts, edges = np.arange(0, 150, 7), np.array([0, 1, 2, 3, 5, 8, 13, 40, 41, 100])
    found = spelled_bytes(split, store.tokenizer(), starts, edges)
    borders = starts[:, None] + 1 + edges
    np.testing.assert_array_equal(found, np.diff(expected[borders]))
    assert (found == 0).any(), "bins in which no character ends"
    one = spelled_bytes(split, store.tokenizer(), np.array([0]), np.array([0, split.n_tokens - 1]))
    assert one.item() == len(text.encode()) - len("G"), "all tokens except the first are targets"


def test_a_tokenizer_that_adds_a_space_at_the_start(tmp_path: Path) -> None:
    """Its decoder removes the space at the start of a text. The counts of bins keep it."""
    store = store_of(tmp_path, with_a_space_in_front(iter([TEXT.encode()])))
    split = store.held_out
    edges = np.array([0, 1, 4, 9, 30, 31, split.n_tokens - 1])
    found = spelled_bytes(split, store.tokenizer(), np.array([0]), edges)[0]
    first = len(store.tokenizer().decode(split.read(0, 1)).encode())
    assert found.sum() == len(TEXT.encode()) - first
    texts = [store.tokenizer().decode(split.read(1 + start, stop - start)) for start, stop in pairwise(edges)]
    lost = found - [len(text.encode()) for text in texts]  # the space that the decoder drops at the start
    assert set(lost.tolist()) <= {0, 1}


@pytest.mark.parametrize(
    ("splitter", "expected"),
    [
        (tokenizers.pre_tokenizers.Split("", "isolated"), [2, 5]),
        (None, [2, 5]),
        (tokenizers.pre_tokenizers.WhitespaceSplit(), [4, 10]),  # it drops spaces, so decoding puts them back
    ],
)
def test_letters_without_a_decoder(
    splitter: tokenizers.pre_tokenizers.PreTokenizer | None, expected: list[int], tmp_path: Path
) -> None:
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({letter: token for token, letter in enumerate("ACGT")}, []))
    if splitter is not None:
        inner.pre_tokenizer = splitter
    store = store_of(tmp_path, JsonTokenizer(inner.to_str(), 4, "test"), "GATTACA" * 9)
    found = spelled_bytes(store.held_out, store.tokenizer(), np.array([3]), np.array([0, 2, 7]))
    assert found.tolist() == [expected]


def test_pieces_of_words_without_a_decoder_are_not_joined() -> None:
    """The mark of a piece would become text: "A##C"."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "A": 1, "##C": 2}, unk_token="[UNK]"))
    assert JsonTokenizer(inner.to_str(), 3, "test").inner.decoder is None


def test_a_byte_is_a_byte(tmp_path: Path) -> None:
    store = store_of(tmp_path, None)
    assert isinstance(store.tokenizer(), ByteTokenizer)
    found = spelled_bytes(store.held_out, store.tokenizer(), np.array([0, 3]), np.array([0, 2, 7]))
    assert found.tolist() == [[2, 5], [2, 5]]


@pytest.mark.parametrize("text", ["\ufffd\ufffd is a character too. ", "😀"])
def test_characters_that_look_broken_are_counted_whole_and_once(text: str, tmp_path: Path) -> None:
    store = store_of(tmp_path, train_bpe(iter([b"is"]), 256), text * 20)
    split = store.held_out
    assert split.n_tokens == len((text * 20).encode()), "a token for every byte"
    found = spelled_bytes(split, store.tokenizer(), np.array([3]), np.arange(0, split.n_tokens - 3))[0]
    assert set(found.tolist()) <= {0, *(len(one.encode()) for one in text)}
    ends = np.cumsum([len(one.encode()) for one in text * 20])
    whole = ends[ends <= 4].max(initial=0)  # of the characters before the first target
    assert found.sum() == split.n_tokens - whole - (3 if text[0] == "\ufffd" else 0)
