"""Building a store: deterministic, complete or not at all, in bounded memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ssm.base.errors import ConfigError, DataError, OutputError
from ssm.base.files import name_lock
from ssm.data import build as build_module
from ssm.data import encoding
from ssm.data.build import build_store, split_of
from ssm.data.corpora import Document
from ssm.data.encoding import TextBatch, encode_in_order
from ssm.data.store import TokenStore
from ssm.data.tokenizers import ByteTokenizer, train_bpe
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BpeTokenizer, BytesTokenizer, DataSpec, TokenizerSpec

WORDS = ["state", "token", "length", "scan", "decay", "\n", "é", "0", " "]


def texts(n: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(1, 200))) for _ in range(n)]


def corpus(folder: Path, rows: list[str]) -> FilesCorpus:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    return FilesCorpus(paths=(str(path),))


def data(source: FilesCorpus, tokenizer: TokenizerSpec | None = None, **options: object) -> DataSpec:
    return DataSpec(name="x", corpus=source, tokenizer=tokenizer or BytesTokenizer(), **options)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def documents_of(store: TokenStore) -> dict[str, list[bytes]]:
    found = {}
    for name, split in (("train", store.train), ("held_out", store.held_out), ("choice", store.choice)):
        if name == "choice" and not len(split.documents):
            continue
        borders = [*split.documents.tolist(), split.n_tokens]
        found[name] = [bytes(split.read(start, stop - start).tolist()) for start, stop in pairwise(borders)]
    return found


@settings(max_examples=10)
@given(
    rows=st.lists(st.text(min_size=1, max_size=30), min_size=30, max_size=40),
    shard_tokens=st.integers(1, 200),
    seed=st.integers(0, 5),
)
def test_a_store_is_its_corpus_in_order_for_any_shard_size(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], shard_tokens: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("build")
    spec = data(corpus(folder, rows), held_out=0.5, held_out_seed=seed, shard_tokens=shard_tokens)
    assert build_store(spec, folder / "store")
    expected: dict[str, list[bytes]] = {"train": [], "held_out": []}
    for index, row in enumerate(rows):
        expected[split_of(spec, index)].append(row.encode("utf-8", errors="replace"))
    store = TokenStore.open(folder / "store")
    assert documents_of(store) == expected
    assert all(len(shard) == shard_tokens for shard in store.train.shards[:-1])


def test_the_manifest_describes_the_corpus(tmp_path: Path) -> None:
    rows = texts(50)
    spec = data(corpus(tmp_path, rows))
    build_store(spec, tmp_path / "store")
    manifest = TokenStore.open(tmp_path / "store").manifest
    assert manifest["spec"] == spec.content()
    assert manifest["corpus"]["documents"] == 50
    assert manifest["corpus"]["bytes"] == sum(len(row.encode()) for row in rows)
    splits = manifest["splits"]
    assert splits["train"]["documents"] + splits["held_out"]["documents"] == 50
    assert splits["train"]["tokens"] + splits["held_out"]["tokens"] == manifest["corpus"]["bytes"]
    assert {"code", "packages", "machine", "written"} <= manifest["provenance"].keys()


def test_the_corpus_hash_covers_names_and_contents(tmp_path: Path) -> None:
    rows = texts(50)
    variants = {
        "one": rows,
        "content": [*rows[:-1], rows[-1].swapcase()],
        "name": rows,
        "border": [rows[0] + "rows.jsonl:2" + rows[1], "", *rows[2:]],  # the same bytes in one document fewer
    }
    hashes = {}
    for variant, lines in variants.items():
        source = corpus(tmp_path, lines)
        if variant == "name":
            path = (tmp_path / "rows.jsonl").rename(tmp_path / "lines.jsonl")
            source = FilesCorpus(paths=(str(path),))
        build_store(data(source), tmp_path / variant)
        hashes[variant] = TokenStore.open(tmp_path / variant).manifest["corpus"]["sha256"]
    assert len(set(hashes.values())) == len(hashes)


def test_the_held_out_part_depends_only_on_seed_and_index(tmp_path: Path) -> None:
    rows = texts(200)
    short = data(corpus(tmp_path, rows), max_documents=100)
    build_store(short, tmp_path / "short")
    build_store(data(short.corpus), tmp_path / "long")
    kept = documents_of(TokenStore.open(tmp_path / "short"))
    longer = documents_of(TokenStore.open(tmp_path / "long"))
    for name, documents in kept.items():
        assert longer[name][: len(documents)] == documents
    assert sum(map(len, kept.values())) == 100

    members = {
        seed: [split_of(data(short.corpus, held_out_seed=seed), i) == "held_out" for i in range(4000)]
        for seed in (1, 2)
    }
    assert members[1] != members[2]
    for chosen in members.values():
        assert 0.08 < np.mean(chosen) < 0.12  # held_out is 0.1: four standard errors are 0.019


def test_a_part_for_choices_leaves_the_held_out_part_unchanged(tmp_path: Path) -> None:
    """A spec without this part has the same content as before."""
    plain = data(corpus(tmp_path, texts(200)))
    stores = []
    for name, spec in (("plain", plain), ("aside", data(plain.corpus, choice=0.2))):
        build_store(spec, tmp_path / name)
        stores.append(TokenStore.open(tmp_path / name))
    before, after = (documents_of(store) for store in stores)
    assert after["held_out"] == before["held_out"]
    assert 20 < len(after["choice"]) < 60
    assert sorted([*after["train"], *after["choice"]]) == sorted(before["train"])
    assert ("choice" in before, stores[0].choice.n_tokens) == (False, 0)
    assert "choice" not in plain.content()
    with pytest.raises(ConfigError, match=r"held_out 0.1 and choice 0.9 leave no document to train on"):
        DataSpec.parse(plain.content() | {"choice": 0.9}, "tests")
    with pytest.raises(DataError, match="the split 'choice' got no document"):
        build_store(data(plain.corpus, choice=1e-9), tmp_path / "none")


def test_processes_make_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = data(corpus(tmp_path, texts(300)), BpeTokenizer(vocab_size=320), shard_tokens=1000)
    monkeypatch.setattr(encoding, "BATCH_BYTES", 4096)
    monkeypatch.setattr(build_module, "BATCH_BYTES", 4096)
    build_store(spec, tmp_path / "serial", workers=1)
    monkeypatch.setattr(encoding, "PROCESSES_FROM", 1)
    build_store(spec, tmp_path / "parallel", workers=2)
    assert files_of(tmp_path / "serial") == files_of(tmp_path / "parallel")
    assert len(files_of(tmp_path / "serial")) > 10


def test_processes_read_ahead_only_as_far_as_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PROCESSES_FROM", 1)
    tokenizer = train_bpe(iter([b"a text of some words"] * 9), 270)
    read = 0

    def batches() -> object:
        nonlocal read
        for number in range(40):
            read += 1
            yield TextBatch([b"text %d" % number], ["train"], 7, 7)

    encoded = encode_in_order(tokenizer, batches(), workers=2)  # type: ignore[arg-type]
    for number, (batch, tokens) in enumerate(encoded):
        assert read - number <= 2 * encoding.AHEAD
        assert tokenizer.decode(tokens[0]) == batch.texts[0].decode() == f"text {number}"
        if number == 20:
            for child in multiprocessing.active_children():
                child.kill()
            break
    with pytest.raises(DataError, match=r"a tokenizing process was killed .*; fewer need less"):
        list(encoded)


def test_fewer_processes_are_not_advised_for_a_single_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PROCESSES_FROM", 1)

    def batches() -> Iterator[TextBatch]:
        yield TextBatch([b"a text"], ["train"], 6, 6)
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(DataError, match=r"killed \(out of memory\?\); it encoded a single document: divide it"):
        list(encode_in_order(train_bpe(iter([b"xx"]), 270), batches(), workers=2))


def test_a_pool_starts_no_process_after_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first one was killed meanwhile, Python 3.11 waits forever for the second, or raises OSError."""
    start = ProcessPoolExecutor._spawn_process  # type: ignore[attr-defined]

    def checked(pool: Any) -> None:
        assert not pool._processes
        start(pool)

    monkeypatch.setattr(ProcessPoolExecutor, "_spawn_process", checked)
    monkeypatch.setattr(encoding, "PROCESSES_FROM", 1)
    batches = [TextBatch([b"text"], ["train"], 4, 4) for _ in range(4)]
    assert len(list(encode_in_order(train_bpe(iter([b"xx"]), 270), batches, workers=2))) == 4


def test_small_corpora_and_bytes_start_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_in_processes", lambda *_: pytest.fail("a process was started"))
    batch = TextBatch([b"x" * 100], ["train"], 100, 100)
    list(encode_in_order(train_bpe(iter([b"xx"]), 270), [batch], workers=4))
    monkeypatch.setattr(encoding, "PROCESSES_FROM", 1)
    list(encode_in_order(ByteTokenizer(), [batch], workers=4))


def test_the_tokenizer_is_trained_only_on_training_documents(tmp_path: Path) -> None:
    plain = data(corpus(tmp_path, ["placeholder"]), BpeTokenizer(vocab_size=2000))
    rows = ["heldout" * 50 if split_of(plain, index) == "held_out" else "training" * 50 for index in range(60)]
    spec = data(corpus(tmp_path, rows), plain.tokenizer)
    build_store(spec, tmp_path / "store")
    vocabulary = TokenStore.open(tmp_path / "store").tokenizer().inner.get_vocab()  # type: ignore[attr-defined]
    assert any("training" in token for token in vocabulary)
    assert not any("held" in token for token in vocabulary)


def test_the_tokenizer_reads_at_most_train_bytes(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, ["a" * 100] * 50), BpeTokenizer(vocab_size=300, train_bytes=250))
    shown = list(build_module._tokenizer_training_texts(spec))
    assert [len(text) for text in shown] == [100, 100, 50]


@pytest.mark.parametrize("rows", [["only one"], ["a", "b"]])
def test_both_splits_need_a_document(tmp_path: Path, rows: list[str]) -> None:
    spec = data(corpus(tmp_path, rows), held_out=1e-6)
    who = "the only document" if len(rows) == 1 else f"all {len(rows)} documents"
    with pytest.raises(DataError, match=rf"{who} went to the split 'train'.*held_out_seed$"):
        build_store(spec, tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(("held_out", "name"), [(0.0, "train"), (1.0, "held_out")])
@pytest.mark.parametrize("documents", [1, 30])
def test_one_split_may_have_all_documents(tmp_path: Path, held_out: float, name: str, documents: int) -> None:
    rows = texts(documents)
    build_store(data(corpus(tmp_path, rows), held_out=held_out), tmp_path / "store")
    found = documents_of(TokenStore.open(tmp_path / "store"))
    assert found.pop(name) == [row.encode() for row in rows]
    assert list(found.values()) == [[]]


def test_held_out_is_a_share(tmp_path: Path) -> None:
    source = corpus(tmp_path, ["a"])
    for held_out in (-0.1, 1.1):
        with pytest.raises(ConfigError, match=r"held_out: expected a number (up to 1|from 0 on), got"):
            DataSpec.parse(data(source).content() | {"held_out": held_out}, "x")
    with pytest.raises(ConfigError, match="held_out 1 leaves no document to train the bpe tokenizer on"):
        DataSpec.parse(data(source, BpeTokenizer(vocab_size=300)).content() | {"held_out": 1.0}, "x")


def test_a_finished_store_is_not_changed(tmp_path: Path) -> None:
    source = corpus(tmp_path, texts(50))
    assert build_store(data(source), tmp_path / "store")
    before = (tmp_path / "store" / "manifest.json").stat().st_mtime_ns
    assert not build_store(data(source), tmp_path / "store")
    with pytest.raises(OutputError, match="store: holds the token store of another spec"):
        build_store(data(source, held_out=0.5), tmp_path / "store")
    assert (tmp_path / "store" / "manifest.json").stat().st_mtime_ns == before
    TokenStore.open(tmp_path / "store")


def test_a_finished_store_of_a_changed_text_is_refused(tmp_path: Path) -> None:
    spec = DataSpec(name="x", corpus=FilesCorpus(paths=(str(tmp_path / "texts"),)))
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number:02}.txt").write_text(f"document {number}\n" * 5)
    assert build_store(spec, tmp_path / "store")
    first, later = tmp_path / "texts" / "00.txt", time.time() + 60
    os.utime(first, (later, later))
    assert not build_store(spec, tmp_path / "store"), "a newer file with the same content"
    content = first.read_text()
    first.write_text(content.replace("document 0", "document X", 1))
    os.utime(first, (later, later))
    before = (tmp_path / "store" / "manifest.json").read_bytes()
    with pytest.raises(OutputError, match=r"store: the text has changed .*newest: .*/00\.txt\); delete"):
        build_store(spec, tmp_path / "store")
    assert (tmp_path / "store" / "manifest.json").read_bytes() == before
    first.write_text(content)
    added = tmp_path / "texts" / "added.txt"
    added.write_text("one more document\n")
    os.utime(added, (later, later))
    with pytest.raises(OutputError, match=r"added\.txt"):
        build_store(spec, tmp_path / "store")
    broken = tmp_path / "texts" / "broken.jsonl"
    broken.write_text("{oops\n")
    os.utime(broken, (later, later))
    with pytest.raises(DataError, match=r"broken\.jsonl:1: not JSON"):
        build_store(spec, tmp_path / "store")
    archive = tmp_path / "texts" / "more.zip"
    archive.touch()
    with pytest.raises(DataError, match=r"more\.zip: \.zip files cannot be read"):
        build_store(spec, tmp_path / "store")
    shutil.rmtree(tmp_path / "texts")
    assert not build_store(spec, tmp_path / "store"), "the tokens are complete without their text"


def test_other_files_with_old_times_are_noticed(tmp_path: Path) -> None:
    """As after `mv`, `cp -p` or `rsync -a`."""
    spec = DataSpec(name="x", corpus=FilesCorpus(paths=(str(tmp_path / "texts"),)))
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number:02}.txt").write_text(f"document {number}\n")
    manifest, (first, second) = tmp_path / "store" / "manifest.json", sorted((tmp_path / "texts").iterdir())[:2]
    assert build_store(spec, tmp_path / "store")
    for place in (tmp_path / "texts" / "renamed.txt", tmp_path / "removed.txt", second):
        text = second.read_text()
        first.rename(place)
        with pytest.raises(OutputError, match=r"store: the text has changed .* \(files were added, removed, renam"):
            build_store(spec, tmp_path / "store")
        place.rename(first)
        second.write_text(text)
        os.utime(second, (0, 0))
        assert not build_store(spec, tmp_path / "store")
    first.unlink()
    content = json.loads(manifest.read_text())
    del content["sizes"]
    manifest.write_text(json.dumps(content))
    assert not build_store(spec, tmp_path / "store"), "a store of an earlier version"


def test_a_source_that_cannot_be_read_does_not_blame_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/closed/tokenizer.json")

    monkeypatch.setattr("ssm.data.build.make_tokenizer", closed)
    with pytest.raises(PermissionError, match="/closed/tokenizer"):
        build_store(data(corpus(tmp_path, texts(50))), tmp_path / "store")
    assert not list(tmp_path.glob(".store*"))


def test_two_processes_do_not_build_the_same_store(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, texts(50)))
    with name_lock(tmp_path / "store"), pytest.raises(OutputError, match="store: another process is writing it"):
        build_store(spec, tmp_path / "store")


def test_the_store_of_a_process_that_ends_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk without locks, where two processes can build at the same time."""
    spec, build = data(corpus(tmp_path, texts(50))), build_module._build
    build_store(spec, tmp_path / "other")

    def second(*arguments: Any) -> None:
        build(*arguments)
        (tmp_path / "other").rename(tmp_path / "store")

    monkeypatch.setattr(build_module, "_build", second)
    (tmp_path / "store").mkdir()  # as Snakemake makes it
    first = (tmp_path / "other").stat().st_ino
    assert not build_store(spec, tmp_path / "store")
    assert (tmp_path / "store").stat().st_ino == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl", "store"]


def test_foreign_files_are_never_touched(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, texts(50)))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError, match=r"holds 'thesis\.tex', which is not part of a token store"):
        build_store(spec, tmp_path / "store")
    with pytest.raises(OutputError, match="is a file, expected a folder"):
        build_store(spec, tmp_path / "rows.jsonl")
    with pytest.raises(OutputError, match="expected the name of a new folder"):
        build_store(spec, "..")
    with pytest.raises(OutputError, match=r"rows\.jsonl/store: cannot be written"):
        build_store(spec, tmp_path / "rows.jsonl" / "store")
    with pytest.raises(ConfigError, match="workers: expected at least 1, got 0"):
        build_store(spec, tmp_path / "other", workers=0)
    assert (tmp_path / "store" / "thesis.tex").read_text() == "precious"


def test_a_link_to_an_empty_folder_stays_and_its_folder_is_filled(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, texts(50)))
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to("disk")
    assert build_store(spec, tmp_path / "store")
    assert not build_store(spec, tmp_path / "store")
    TokenStore.open(tmp_path / "disk")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "rows.jsonl", "store"]


def test_a_store_without_its_manifest_is_built_again(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, texts(50)), BpeTokenizer(vocab_size=300))
    build_store(spec, tmp_path / "store")
    (tmp_path / "store" / "manifest.json").unlink()
    (tmp_path / "store" / "train-00007.tokens").write_bytes(b"stale")
    assert build_store(spec, tmp_path / "store")
    assert "train-00007.tokens" not in files_of(tmp_path / "store")
    TokenStore.open(tmp_path / "store")


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, texts(50)))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write("{oops\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:51: not JSON"):
        build_store(spec, tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


KILLED = """
import os, signal, sys
from ssm.data import build, shards
from ssm.specs.data import DataSpec
add, calls = shards.SplitWriter.add, []
def killed(self, tokens):
    add(self, tokens)
    calls.append(1)
    if len(calls) == 30:
        os.kill(os.getpid(), signal.SIGKILL)
shards.SplitWriter.add = killed
build.build_store(DataSpec.load(sys.argv[1]), sys.argv[2])
"""


def test_a_killed_build_leaves_no_store_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    spec = data(corpus(tmp_path, texts(50)), shard_tokens=500)
    (tmp_path / "spec.json").write_text(json.dumps(spec.content()))
    command = [sys.executable, "-c", KILLED, str(tmp_path / "spec.json"), str(tmp_path / "store")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (leftover,) = tmp_path.glob(".store.*.tmp")
    assert list(leftover.glob("*.tokens"))
    for folder in (leftover, tmp_path / "store"):
        with pytest.raises(DataError):
            TokenStore.open(folder)
    assert build_store(spec, tmp_path / "store")
    assert not list(tmp_path.glob(".store*"))
    TokenStore.open(tmp_path / "store")


ORPHANED = """
from ssm.data import encoding
from ssm.data.tokenizers import train_bpe
if __name__ == "__main__":
    encoding.PROCESSES_FROM = 1
    batches = (encoding.TextBatch([b"x"], ["train"], 1, 1) for _ in range(9))
    for _ in encoding.encode_in_order(train_bpe(iter([b"xx"]), 270), batches, 2):
        print("working", flush=True)
        input()
"""


def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "orphaned.py").write_text(ORPHANED)
    command = [sys.executable, str(tmp_path / "orphaned.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"working\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.kill()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive


MEASURED = """
import resource, sys
from ssm.data.build import build_store
from ssm.specs.data import DataSpec
spec = DataSpec.load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
build_store(spec, sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", [pytest.param("jsonl.zst", marks=pytest.mark.exhaustive), "parquet"])
def test_the_corpus_is_never_in_memory(tmp_path: Path, kind: str) -> None:
    rows = [{"text": f"{number}" * 4000} for number in range(4000)]
    size = sum(len(row["text"]) for row in rows)
    path = tmp_path / f"big.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=400)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    (tmp_path / "spec.json").write_text(json.dumps(data(FilesCorpus(paths=(str(path),))).content()))
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "spec.json"), str(tmp_path / "store")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1024
    assert TokenStore.open(tmp_path / "store").manifest["corpus"]["bytes"] == size
    assert size > 50 * 2**20
    assert grown < size / 2


def test_documents_without_tokens_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stripping(ByteTokenizer):
        def encode(self, texts: list[bytes]) -> list[np.ndarray]:
            return [np.frombuffer(text.strip(b"_"), np.uint8) for text in texts]

    monkeypatch.setattr(build_module, "make_tokenizer", lambda *_: Stripping())
    stream = [Document(str(number), b"___" if number % 2 else b"text", 4) for number in range(60)]
    monkeypatch.setattr(build_module, "documents", lambda _: islice(stream, None))
    build_store(data(corpus(tmp_path, ["x"])), tmp_path / "store")
    store = TokenStore.open(tmp_path / "store")
    assert len(store.train.documents) + len(store.held_out.documents) == 30
    assert np.all(np.diff(store.train.documents) == 4)
