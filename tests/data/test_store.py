"""The token store as it is read: across shards, and refused if its files have changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssm.base.errors import DataError
from ssm.data import store as store_module
from ssm.data.build import build_store
from ssm.data.store import TokenSplit, TokenStore
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BytesTokenizer, DataSpec


@st.composite
def splits(draw: st.DrawFn) -> tuple[TokenSplit, np.ndarray, np.ndarray]:
    """A split with shards, all its tokens, and the starts of its documents."""
    n = draw(st.integers(1, 60))
    shard_tokens = draw(st.integers(1, 70))
    tokens = np.arange(n, dtype=np.uint8) * 4
    inner = draw(st.sets(st.integers(1, n - 1))) if n > 1 else set()
    documents = np.array([0, *sorted(inner)])
    shards = [tokens[start : start + shard_tokens] for start in range(0, n, shard_tokens)]
    return TokenSplit("split", shards, documents, 256), tokens, documents


@given(splits(), st.data())
def test_reading_across_shards(made: tuple[TokenSplit, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    split, tokens, documents = made
    assert (split.n_tokens, len(split.documents)) == (len(tokens), len(documents))
    start = data.draw(st.integers(0, len(tokens)))
    length = data.draw(st.integers(0, len(tokens) - start))
    read = split.read(start, length)
    assert read.dtype == np.int64
    np.testing.assert_array_equal(read, tokens[start : start + length])
    marks = split.document_starts(start, length)
    np.testing.assert_array_equal(marks, np.isin(np.arange(start, start + length), documents))


@given(splits(), st.integers(-70, 70), st.integers(0, 140))
def test_reads_outside_of_the_split_fail(
    made: tuple[TokenSplit, np.ndarray, np.ndarray], start: int, length: int
) -> None:
    split, tokens, _ = made
    if start < 0 or start + length > len(tokens):
        with pytest.raises(IndexError, match="split: tokens"):
            split.read(start, length)


@pytest.mark.parametrize(("starts", "size"), [([0], 10), ([0, 1, 2, 3, 4], 6), ([0, 1, 2, 3, 4, 6], 2)])
def test_half_of_the_tokens_are_in_documents_of_the_usual_size_or_less(starts: list[int], size: int) -> None:
    split = TokenSplit("split", [np.zeros(10, np.uint8)], np.array(starts), 256)
    assert split.usual_document == size


def test_an_empty_split() -> None:
    split = TokenSplit("split", [], np.empty(0, np.int64), 256)
    assert (split.n_tokens, len(split.documents)) == (0, 0)
    assert split.read(0, 0).shape == (0,)
    assert split.document_starts(0, 0).shape == (0,)
    with pytest.raises(IndexError, match="split: tokens 0 to 1 of 0"):
        split.read(0, 1)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(40):
        (folder / f"{number:02}.txt").write_bytes(bytes([number]) * (number + 1))
    spec = DataSpec(
        name="x",
        corpus=FilesCorpus(paths=(str(folder),)),
        tokenizer=BytesTokenizer(),
        held_out=0.3,
        shard_tokens=100,
    )
    build_store(spec, folder.parent / "store")
    return folder.parent / "store"


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "store")


def test_every_document_is_complete_in_one_split(built: Path) -> None:
    store = TokenStore.open(built)
    seen = []
    for split in (store.train, store.held_out):
        borders = [*split.documents.tolist(), split.n_tokens]
        for start, stop in pairwise(borders):
            tokens = split.read(start, stop - start)
            assert len(tokens) == tokens[0] + 1  # document n has n + 1 times the byte n
            assert len(set(tokens.tolist())) == 1
            seen.append(int(tokens[0]))
    assert sorted(seen) == list(range(40))
    assert len(store.train.shards) > 1
    assert store.vocab_size == store.train.vocab_size == store.held_out.vocab_size == 256
    assert store.tokenizer().decode(store.train.read(0, 3)) == bytes(store.train.read(0, 3).tolist()).decode()


def test_tokens_of_an_open_store_are_read_only(built: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        TokenStore.open(built).train.shards[0][:1][0] = 1


def test_a_shard_that_becomes_shorter_is_an_error_and_not_a_crash(built: Path, tmp_path: Path) -> None:
    store = TokenStore.open(shutil.copytree(built, tmp_path / "store"))
    path = tmp_path / "store" / "train-00000.tokens"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(DataError, match=r"train-00000.tokens: has become shorter since it was opened"):
        store.train.read(0, store.train.n_tokens)


def test_a_store_of_many_shards_has_few_open_files(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "OPEN_FILES", 2)
    before = len([*Path("/dev/fd").iterdir()])
    train = TokenStore.open(built).train
    whole = np.concatenate([np.fromfile(path, np.uint8) for path in sorted(built.glob("train-*.tokens"))])
    for _ in range(2):
        np.testing.assert_array_equal(train.read(0, train.n_tokens), whole)
    assert len(train.shards) > 4
    assert len([*Path("/dev/fd").iterdir()]) <= before + 4  # with the documents of both splits


def test_a_shard_that_is_replaced_while_the_store_is_read_is_an_error(copy: Path) -> None:
    train, (first, *_) = TokenStore.open(copy).train, sorted(copy.glob("train-*.tokens"))
    content = first.read_bytes()
    (copy / "new").write_bytes(content)
    (copy / "new").replace(first)
    with pytest.raises(DataError, match="was replaced since the store was opened; type the same command again"):
        train.read(0, 1)


def test_only_a_damaged_store_is_to_be_deleted(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(path: Path) -> str:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(store_module, "sha256_of", too_many)
    refuses(built, r"\.tokens: cannot be read \(Too many open files\)$")


def refuses(folder: Path, message: str, verify: bool | None = None) -> None:
    with pytest.raises(DataError, match=message) as caught:
        TokenStore.open(folder, verify)
    assert "\n" not in str(caught.value)


def test_a_missing_or_unfinished_store(copy: Path, tmp_path: Path) -> None:
    refuses(tmp_path / "nowhere", "nowhere: no such token store; run `ssm tokenize` to make it")
    (copy / "manifest.json").unlink()
    refuses(copy, "no finished token store here; run `ssm tokenize` to make it")


@pytest.mark.parametrize("verify", [True, False])
def test_sizes_are_always_checked(copy: Path, verify: bool) -> None:
    shard = copy / "train-00001.tokens"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    refuses(copy, r"train-00001\.tokens: truncated, 99 bytes of 100", verify)
    shard.write_bytes(content + b"x")
    refuses(copy, r"train-00001\.tokens: too long", verify)
    shard.unlink()
    refuses(copy, r"train-00001\.tokens: missing", verify)


@pytest.mark.parametrize("name", ["train-00000.tokens", "held_out.documents"])
def test_checksums_are_verified_on_request_and_by_default_for_small_stores(
    copy: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray((copy / name).read_bytes())
    content[5] ^= 1
    (copy / name).write_bytes(content)
    refuses(copy, f"{name}: its content has changed since it was written", True)
    refuses(copy, f"{name}: its content has changed since it was written")
    TokenStore.open(copy, verify=False)
    monkeypatch.setattr(store_module, "VERIFY_BELOW", 10)
    TokenStore.open(copy)


def test_wrong_manifests(copy: Path) -> None:
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    cases = [
        ("{", "not a readable manifest"),
        ("[]", "not the manifest of a token store"),
        (json.dumps(manifest | {"format": "x"}), "not the manifest of a token store"),
        (json.dumps(manifest | {"version": 99}), "format version 99, this code reads 1"),
        (
            json.dumps({key: manifest[key] for key in ("format", "version", "files")}),
            "damaged: spec: this key is required",
        ),
        (json.dumps(manifest | {"files": [1]}), "damaged"),
    ]
    for text, message in cases:
        path.write_text(text)
        refuses(copy, message)
