"""A user's text and tokenizer are checked against the model; errors are one line."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssm.base.errors import DataError
from ssm.data import tokenizers
from ssm.data.batches import WindowBatches
from ssm.data.build import build_store
from ssm.data.own_text import (
    check_vocabulary,
    disjoint_windows,
    own_text,
    require_files,
    tokenizer_named,
    tokenizer_of,
    tokenizer_words,
)
from ssm.data.store import TokenSplit
from ssm.data.tokenizers import train_bpe
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BpeTokenizer, BytesTokenizer, DataSpec, FileTokenizer, HubTokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A folder with a tokenizer.json of 300 tokens."""
    words = b" ".join(f"w{i}x{i * i}".encode() for i in range(500))
    made = train_bpe(iter([words] * 3), 300)
    assert made.json is not None
    assert len(made.inner.get_vocab()) == 300
    (tmp_path / "tokenizer.json").write_text(made.json)
    return tmp_path


def refused(message: str, text: str, vocab_size: int) -> None:
    with pytest.raises(DataError, match=message) as caught:
        tokenizer_named(text, vocab_size)
    assert "\n" not in str(caught.value)


# --- tokenizers -------------------------------------------------------------------------------------------------------


def test_a_tokenizer_is_a_file_a_folder_or_bytes(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tokenizer)
    file = FileTokenizer(path=str(tokenizer / "tokenizer.json"), vocab_size=310)
    assert tokenizer_named("tokenizer.json", 310) == tokenizer_named(".", 310) == file
    assert tokenizer_named("bytes", 256) == BytesTokenizer()
    monkeypatch.setenv("HOME", str(tokenizer))
    assert tokenizer_named("~/tokenizer.json", 310) == file


def test_a_tokenizer_of_the_hub(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[Any] = []

    def download(name: str, file: str, revision: str | None) -> str:
        asked.append((name, file, revision))
        return str(tokenizer / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    tokenizers._of_hub.cache_clear()
    assert tokenizer_named("some/model@v2", 300) == HubTokenizer(name="some/model", revision="v2", vocab_size=300)
    assert tokenizer_named("some/model", 300) == HubTokenizer(name="some/model", vocab_size=300)
    assert asked == [("some/model", "tokenizer.json", "v2"), ("some/model", "tokenizer.json", None)]
    refused("^some/model: this tokenizer has another vocabulary", "some/model", 299)
    assert len(asked) == 2, "the hub is asked once for each"


@pytest.mark.parametrize(
    ("name", "vocab_size", "reason"),
    [
        ("tokenizer.json", 299, "needs 300 rows"),
        ("tokenizer.json", 300, None),
        ("tokenizer.json", 400, None),
        ("tokenizer.json", 401, "has 300 tokens"),
        ("bytes", 255, "needs 256 rows"),
        ("bytes", 256, None),
        ("bytes", 341, None),
        ("bytes", 342, "has 256 tokens"),
    ],
)
def test_a_tokenizer_must_fit_and_use_most_rows(
    name: str, vocab_size: int, reason: str | None, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tokenizer)
    if reason is None:
        assert tokenizer_named(name, vocab_size).kind == ("bytes" if name == "bytes" else "file")
        return
    rows = rf"\(it {reason}, the model's embedding has {vocab_size} rows\)"
    refused(
        rf"{name}: this tokenizer has another vocabulary {rows}; give the model's own one with --tokenizer$",
        name,
        vocab_size,
    )


def test_unused_numbers_between_tokens_need_rows_too() -> None:
    check_vocabulary(rows=100, tokens=76, vocab_size=100, source="x")
    with pytest.raises(DataError, match=r"it has 74 tokens, the model's embedding has 100 rows"):
        check_vocabulary(rows=100, tokens=74, vocab_size=100, source="x")
    with pytest.raises(DataError, match=r"it needs 50,280 rows, the model's embedding has 50,277 rows"):
        check_vocabulary(rows=50280, tokens=50000, vocab_size=50277, source="x")


def test_wrong_names_of_tokenizers(tmp_path: Path) -> None:
    refused(
        r"^byte: no such tokenizer.json or folder; give one, a name on the hub \(owner/model\) or bytes$", "byte", 9
    )
    refused("tokenizer.json: no such tokenizer$", str(tmp_path), 256)
    (tmp_path / "tokenizer.json").write_text("{}")
    refused(r"tokenizer.json: not a tokenizer.json \(", str(tmp_path), 256)


def test_a_tokenizer_whose_name_is_too_long() -> None:
    refused(r"^x+: cannot be read \(File name too long\)$", "x" * 260, 256)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mine/tokenzier", " (for the hub, write mine/tokenzier@main); did you mean 'tokenizer'?"),
        ("mine/tokenzier/tokenizer.json", "; did you mean 'tokenizer'?"),
        ("minne/deep/tokenizer", "; did you mean 'mine'?"),
        ("mine/q", " (for the hub, write mine/q@main); give one, a name on the hub (owner/model) or bytes"),
        ("./mien", "; did you mean 'mine'?"),
        ("../mien", "; give one, a name on the hub (owner/model) or bytes"),
        ("~/mien", "; did you mean 'mine'?"),
        ("~$x.json", "; give one, a name on the hub (owner/model) or bytes"),
    ],
)
def test_a_mistyped_path_is_no_name_of_the_hub(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking the hub takes half a minute without a network."""
    import huggingface_hub

    home = tmp_path / "home"
    (home / "mine" / "tokenizer").mkdir(parents=True)
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("the hub is asked"))
    with pytest.raises(DataError) as error:
        tokenizer_named(name, 300)
    assert str(error.value) == f"{name}: no such tokenizer.json or folder{hint}"


def opened(tokenizer: FileTokenizer | None, vocab_size: int, note: str | None = None) -> Any:
    return SimpleNamespace(
        name="their-model", tokenizer=tokenizer, note=note, run=None, model=SimpleNamespace(vocab_size=vocab_size)
    )


def test_the_models_own_tokenizer_unless_another_is_given(tokenizer: Path) -> None:
    own = FileTokenizer(path=str(tokenizer / "tokenizer.json"), vocab_size=300)
    assert tokenizer_of(opened(own, 300)) == own
    assert tokenizer_of(opened(own, 256), "bytes") == BytesTokenizer()
    assert tokenizer_of(opened(None, 300), str(tokenizer)) == own
    with pytest.raises(DataError, match=r"^their-model: no tokenizer.json lies beside it; name its .* --tokenizer \("):
        tokenizer_of(opened(None, 300, "no tokenizer.json lies beside it"))
    with pytest.raises(DataError, match=r"tokenizer.json: this tokenizer has another vocabulary \(it needs 300 rows"):
        tokenizer_of(opened(own.model_copy(update={"vocab_size": 290}), 290))


@pytest.mark.parametrize("name", ["tokenizer.json", "bytes"])
def test_a_run_of_ssm_can_have_any_larger_vocabulary(
    name: str, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tokenizer)
    own = BytesTokenizer(vocab_size=8192) if name == "bytes" else FileTokenizer(path=name, vocab_size=8192)
    run = opened(own, 8192)
    run.run = SimpleNamespace(data=SimpleNamespace(spelled_by=own))
    assert tokenizer_of(run) == own
    run.tokenizer = own if name == "bytes" else None  # the record of a bpe run names none
    assert tokenizer_of(run, name).vocab_size == 8192
    run.tokenizer = own
    if name != "bytes":
        with pytest.raises(DataError, match="has another vocabulary"):
            tokenizer_of(run, name)  # in place of the recorded one
    run.model.vocab_size = 255
    with pytest.raises(DataError, match=r"this tokenizer has another vocabulary \(it needs (300|256) rows"):
        tokenizer_of(run, name)


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_bytes(bytes([65 + number]) * 100)
    return folder


@pytest.mark.parametrize(("held_out", "name"), [(0.0, "train"), (1.0, "held_out")])
def test_the_whole_text_in_one_split(held_out: float, name: str, texts: Path, tmp_path: Path) -> None:
    store = own_text([str(texts)], BytesTokenizer(), tmp_path / "tokens", held_out)
    full, empty = (store.train, store.held_out) if name == "train" else (store.held_out, store.train)
    everything = b"".join(path.read_bytes() for path in sorted(texts.iterdir()))
    assert bytes(full.read(0, 4000).tolist()) == everything
    assert (full.n_tokens, len(full.documents)) == (4000, 40)
    assert (empty.n_tokens, len(empty.documents)) == (0, 0)
    assert full.name == str(texts)
    with pytest.raises(DataError, match="texts: 0 tokens, context 4 needs 5"):
        WindowBatches(empty, 4, 2, 0)


def test_the_words_of_a_tokenizer(tokenizer: Path, texts: Path) -> None:
    file = FileTokenizer(path=str(tokenizer / "tokenizer.json"), vocab_size=300)
    store = own_text([str(texts)], file, tokenizer / "tokens", 0.0)
    digest = hashlib.sha256((tokenizer / "tokens" / "tokenizer.json").read_bytes()).hexdigest()
    assert tokenizer_words(store) == f"{file.path} (SHA-256 {digest[:16]}…)"


def test_a_share_is_held_out_and_the_store_is_built_once(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = own_text(["texts"], BytesTokenizer(), tmp_path / "tokens", 0.3)
    assert store.train.n_tokens + store.held_out.n_tokens == 4000
    assert 0 < len(store.held_out.documents) < 25
    assert (store.train.name, store.held_out.name) == ("texts (training part)", "texts (held-out part)")
    made = (tmp_path / "tokens" / "manifest.json").stat().st_mtime_ns
    monkeypatch.chdir(texts)
    own_text(["../texts"], BytesTokenizer(), tmp_path / "tokens", 0.3)
    assert (tmp_path / "tokens" / "manifest.json").stat().st_mtime_ns == made


def test_missing_text_and_too_little_text(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        own_text(["nowhere"], BytesTokenizer(), tmp_path / "tokens", 1.0)
    with pytest.raises(DataError, match=r"00\.txt: the only document went to the split 'train', because it is "):
        own_text([str(texts / "00.txt")], BytesTokenizer(), tmp_path / "tokens", 0.1)


# --- windows ----------------------------------------------------------------------------------------------------------


def counting(n: int) -> TokenSplit:
    """Every token is its own position."""
    shards = [np.arange(n, dtype=np.uint32)] if n else []
    return TokenSplit("my.txt", shards, np.array([0]), n)


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**31))
def test_windows_share_no_token_and_fill_the_split(n: int, length: int, seed: int) -> None:
    if n < 4 * (length + 1):
        with pytest.raises(DataError):
            disjoint_windows(counting(n), length, seed, 4)
        return
    windows = disjoint_windows(counting(n), length, seed, 4)
    inputs, targets = windows.read(slice(None), 0, length)
    tokens = np.concatenate([inputs.numpy(), targets.numpy()[:, -1:]], 1)  # (windows, length + 1)
    assert len(np.unique(tokens)) == tokens.size
    assert (np.diff(tokens, axis=1) == 1).all()
    assert n - tokens.size < length + 1
    assert windows.length == length


def test_the_order_is_random_and_seeded() -> None:
    orders = [disjoint_windows(counting(5000), 9, seed, 4).positions.tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(0, 5000, 10))
    assert abs(np.corrcoef(orders[0], range(500))[0, 1]) < 0.2


@pytest.mark.parametrize(
    ("tokens", "length", "needs", "shorter"),
    [
        (91_204, 32_768, "131,076", 16384),
        (65_540, 32_768, "131,076", 16384),
        (65_539, 32_768, "131,076", 8192),
        (8, 64, "260", 1),
        (7, 64, "260", None),
        (0, 64, "260", None),
    ],
)
def test_too_little_text_is_one_line(tokens: int, length: int, needs: str, shorter: int | None) -> None:
    with pytest.raises(DataError) as caught:
        disjoint_windows(counting(tokens), length, 0, 4)
    hint = "" if shorter is None else f", or --length {shorter}"
    message = f"my.txt: {tokens:,} tokens; --length {length} needs at least {needs} (4 windows): give more text{hint}"
    assert str(caught.value) == message
    if shorter is not None:
        disjoint_windows(counting(tokens), shorter, 0, 4)
        with pytest.raises(DataError):
            disjoint_windows(counting(tokens), 2 * shorter, 0, 4)


def test_fewer_windows_can_be_enough() -> None:
    assert len(disjoint_windows(counting(20), 9, 0, at_least=2).positions) == 2


# --- encodings --------------------------------------------------------------------------------------------------------

ENCODED = {
    "UTF-16": ("the state of a model " * 50).encode("utf-16"),
    "Latin-1": ("für die Größe möchten wir " * 50).encode("latin-1"),
    "xz": lzma.compress(np.random.default_rng(0).bytes(4000)),
    "zeros": bytes(4000),
}


@pytest.mark.parametrize("name", ENCODED)
def test_a_text_in_another_encoding_is_refused(tokenizer: Path, tmp_path: Path, name: str) -> None:
    """Bytes that are no text are tokens only where the config says so."""
    (tmp_path / "text.txt").write_bytes(ENCODED[name])
    paths, spec = [str(tmp_path / "text.txt")], tokenizer_named(str(tokenizer / "tokenizer.json"), 310)
    with pytest.raises(DataError, match=r"text.txt: is not text in UTF-8 \(\d+% of the bytes of the text are not\)"):
        own_text(paths, spec, tmp_path / "tokens", 1.0)
    with pytest.raises(DataError, match=r"text.txt: is not text in UTF-8 \(\d+% of the bytes of the text are not\)"):
        own_text(paths, BytesTokenizer(), tmp_path / "bytes", 1.0)
    corpus = FilesCorpus(paths=tuple(paths))
    assert build_store(DataSpec(name="x", corpus=corpus, tokenizer=BytesTokenizer(), held_out=1.0), tmp_path / "bytes")
    with pytest.raises(DataError, match=r"text.txt: is not text in UTF-8"):
        build_store(DataSpec(name="x", corpus=corpus, tokenizer=BpeTokenizer(vocab_size=300)), tmp_path / "bpe")
    assert not (tmp_path / "bpe").exists()


def test_a_file_with_a_few_wrong_bytes_is_read(tokenizer: Path, tmp_path: Path) -> None:
    """And so is a small file in another encoding, among many."""
    (tmp_path / "small.txt").write_bytes("für".encode("latin-1"))
    (tmp_path / "text.txt").write_bytes("für die Größe möchten wir ".encode() * 50 + b"\xff\x00")
    store = own_text([str(tmp_path / "*.txt")], tokenizer_named(str(tokenizer), 310), tmp_path / "tokens", 1.0)
    text = store.tokenizer().decode(store.held_out.read(0, store.held_out.n_tokens))
    assert text.count("für die Größe möchten wir ") == 50
    assert "f\N{REPLACEMENT CHARACTER}r" in text, "the small file"


def test_a_large_binary_file_among_many_texts_is_refused(tokenizer: Path, tmp_path: Path) -> None:
    """Only the beginning of a file is read, so its size counts."""
    for number in range(120):
        (tmp_path / f"{number}.txt").write_bytes(b"the state of a model " * 3200)
    (tmp_path / "backup.bin").write_bytes(np.random.default_rng(0).bytes(2_000_000))
    spec = tokenizer_named(str(tokenizer / "tokenizer.json"), 310)
    with pytest.raises(DataError, match=r"backup.bin: is not text in UTF-8 \(\d+% of the bytes of the text are not\)"):
        own_text([str(tmp_path)], spec, tmp_path / "tokens", 1.0)


def test_json_lines_in_another_encoding_are_refused(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes('{"text": "Η κατάσταση ενός μοντέλου"}\n'.encode("iso-8859-7") * 50)
    spec = tokenizer_named(str(tokenizer / "tokenizer.json"), 310)
    with pytest.raises(DataError, match=r"rows.jsonl: is not text in UTF-8"):
        own_text([str(tmp_path / "rows.jsonl")], spec, tmp_path / "tokens", 1.0)


def test_json_files_with_texts_under_another_key_are_refused(tmp_path: Path) -> None:
    """They look like settings among source code, but no source code is there."""
    (tmp_path / "1.json").write_text('[{"content": "a", "n": 1},\n{"content": "b", "n": 2}]')
    (tmp_path / "2.json").write_text('{"content": "c", "url": "d"}\n{"content": "e"}')
    (tmp_path / "3.json").write_text('{"content": "f"}')
    says = r"1.json: row 0: no key 'text' \(give its name as --text-key, .*\); valid names: content$"
    for paths in ([str(tmp_path)], [f"{tmp_path}/*.json"], [f"{tmp_path}/[1].json"]):
        with pytest.raises(DataError, match=says):
            require_files(paths)
    require_files([str(tmp_path)], "content")
    with pytest.raises(DataError, match=r"^--text: expected files, folders or globs, got none$"):
        require_files([])
    require_files([f"{tmp_path}/[3].json"])
    (tmp_path / "0.json").write_text('{"name": "a package"}')
    require_files([str(tmp_path)])
    (tmp_path / "0.json").unlink()
    (tmp_path / "main.py").write_text("import json")
    require_files([str(tmp_path)])
