"""Tokenizers: they restore text, read special tokens as text, and refuse a wrong vocabulary."""

from __future__ import annotations

import json
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from ssm.base.errors import DataError
from ssm.base.stopping import Preempted
from ssm.data import tokenizers as ours
from ssm.data.tokenizers import ByteTokenizer, JsonTokenizer, make_tokenizer, read_tokenizer, token_dtype, train_bpe
from ssm.specs.data import BpeTokenizer, BytesTokenizer, FileTokenizer, HubTokenizer

TEXTS = [b"def step(state, token):\n    return state + token\n" * 20, "naïve café €\n".encode() * 20]


@pytest.fixture(scope="module")
def bpe() -> JsonTokenizer:
    return train_bpe(iter(TEXTS), 300)


@given(st.binary())
def test_bytes_are_their_own_tokens(text: bytes) -> None:
    tokenizer = make_tokenizer(BytesTokenizer(), iter(()))
    (tokens,) = tokenizer.encode([text])
    assert tokens.dtype == np.uint8
    assert tokens.tobytes() == text
    assert tokenizer.decode(tokens.astype(np.int64)) == text.decode("utf-8", errors="replace")


@given(st.text())
def test_bpe_restores_any_text(bpe: JsonTokenizer, text: str) -> None:
    (tokens,) = bpe.encode([text.encode()])
    assert tokens.dtype == np.dtype("<u2")
    assert bpe.decode(tokens) == text


def test_rows_that_no_text_uses_have_no_text(bpe: JsonTokenizer) -> None:
    """A model can write such a token if its `vocab_size` is larger than the tokenizer needs."""
    for tokenizer in (bpe, ByteTokenizer()):
        (tokens,) = tokenizer.encode([b"the"])
        assert tokenizer.decode(np.array([*tokens, 300, *tokens])) == "thethe"


def test_bpe_compresses_replaces_bad_bytes_and_is_deterministic(bpe: JsonTokenizer) -> None:
    assert len(bpe.encode(TEXTS)[0]) < len(TEXTS[0]) / 2
    assert bpe.decode(bpe.encode([b"caf\xe9"])[0]) == "caf\ufffd"
    assert train_bpe(iter(TEXTS), 300).json == bpe.json
    assert max(bpe.inner.get_vocab().values()) < 300


def test_a_batch_is_encoded_like_its_texts(bpe: JsonTokenizer) -> None:
    texts = [*TEXTS, b"", b"x"]
    for text, tokens in zip(texts, bpe.encode(texts), strict=True):
        np.testing.assert_array_equal(tokens, bpe.encode([text])[0])


@given(st.text(alphabet="ab\n", max_size=60))
def test_pieces_join_to_the_text_and_end_at_line_ends(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "PIECE", 7)
        pieces = ours._pieces(text)
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= 7 and (piece.endswith("\n") or "\n" not in piece) for piece in pieces[:-1])
    assert len(pieces[-1]) <= 7


def test_only_one_piece_of_a_text_is_a_list_of_numbers(bpe: JsonTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number in a list takes up to 40 bytes, a token in an array at most 4."""

    class Numbers(list[int]):
        pass

    original, made = JsonTokenizer._ids, list[weakref.ref[Numbers]]()

    def ids(self: JsonTokenizer, text: str) -> Numbers:
        assert all(reference() is None for reference in made)
        numbers = Numbers(original(self, text))
        made.append(weakref.ref(numbers))
        return numbers

    monkeypatch.setattr(ours, "PIECE", 64)
    monkeypatch.setattr(JsonTokenizer, "_ids", ids)
    bpe.encode(TEXTS)
    assert len(made) > 2 * len(TEXTS)


def test_special_tokens_are_text_and_nothing_is_cut_or_added(bpe: JsonTokenizer) -> None:
    inner = tokenizers.Tokenizer.from_str(bpe.json)
    inner.add_special_tokens(["<|end|>"])
    inner.enable_truncation(3)
    inner.enable_padding(length=50)
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <|end|>", special_tokens=[("<|end|>", inner.token_to_id("<|end|>"))]
    )
    loaded = JsonTokenizer(inner.to_str(), 320, "x")
    (tokens,) = loaded.encode([b"a <|end|> in the text"])
    assert loaded.decode(tokens) == "a <|end|> in the text"
    assert inner.token_to_id("<|end|>") not in tokens


def test_a_tokenizer_from_disk(bpe: JsonTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(bpe.json)
    loaded = make_tokenizer(FileTokenizer(path=str(path), vocab_size=70_000), iter(()))
    (tokens,) = loaded.encode(TEXTS[:1])
    assert tokens.dtype == np.dtype("<u4")  # follows from the spec's vocabulary, not from the tokens in use
    assert loaded.decode(tokens) == TEXTS[0].decode()


def test_wrong_tokenizers_are_one_clear_line(bpe: JsonTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match=r"tokenizer\.json: no such tokenizer"):
        read_tokenizer(path, 300)
    path.write_text(bpe.json)
    needed = max(bpe.inner.get_vocab().values()) + 1
    read_tokenizer(path, needed)
    with pytest.raises(DataError, match=f"needs vocab_size {needed}, the spec says {needed - 1}$"):
        read_tokenizer(path, needed - 1)
    for content in (json.dumps({"model": 1}), "nonsense"):
        path.write_text(content)
        with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer\.json") as caught:
            read_tokenizer(path, 300)
        assert "\n" not in str(caught.value)


def test_signals_are_not_reported_as_errors_of_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str) -> None:
        raise Preempted("stopped by SIGTERM")

    monkeypatch.setattr(ours, "tokenizers", types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_str=told)))
    with pytest.raises(Preempted):
        JsonTokenizer("{}", 300, "x")


def test_a_tokenizer_is_parsed_once_for_the_check_and_for_the_text(bpe: JsonTokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(bpe.json)
    first, second = (read_tokenizer(tmp_path / "tokenizer.json", size) for size in (2**32, 300))
    assert first.inner is second.inner


def test_a_tokenizer_of_the_hub(bpe: JsonTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text(bpe.json)
    spec = HubTokenizer(name="some/model", revision="abc", vocab_size=300)
    hub = types.ModuleType("huggingface_hub")

    def download(name: str, file: str, revision: str | None) -> str:
        if (name, file, revision) != ("some/model", "tokenizer.json", "abc"):
            raise OSError(f"{name} is not there\nmore")
        return str(tmp_path / file)

    hub.hf_hub_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    ours._of_hub.cache_clear()
    assert make_tokenizer(spec, iter(())).json == bpe.json
    with pytest.raises(DataError, match=r"other: cannot get its tokenizer\.json from the hub \(other is not there\)$"):
        make_tokenizer(HubTokenizer(name="other", vocab_size=300), iter(()))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    ours._of_hub.cache_clear()
    with pytest.raises(DataError, match=r"need `pip install '\.\[hub\]'` in the clone"):
        make_tokenizer(spec, iter(()))
    monkeypatch.chdir(tmp_path)
    local = tmp_path / "some/model/tokenizer.json"
    local.parent.mkdir(parents=True)
    (tmp_path / "tokenizer.json").rename(local)
    named = HubTokenizer(name="some/model", vocab_size=300)
    assert make_tokenizer(named, iter(())).json == bpe.json, "without a network"
    with pytest.raises(DataError, match=r"some/model: tokenizers of the hub need"):
        make_tokenizer(spec, iter(()))  # nobody knows which revision the folder has


def test_errors_in_the_training_text_are_raised() -> None:
    def texts() -> object:
        yield TEXTS[0]
        raise DataError("x.jsonl:7: not JSON")

    with pytest.raises(DataError, match=r"x\.jsonl:7: not JSON"):
        make_tokenizer(BpeTokenizer(vocab_size=300), texts())  # type: ignore[arg-type]


def test_the_smallest_type_that_holds_the_vocabulary() -> None:
    sizes = {1: 1, 256: 1, 257: 2, 65_536: 2, 65_537: 4}
    assert {size: token_dtype(size).itemsize for size in sizes} == sizes
    assert ByteTokenizer().vocab_size == 256
