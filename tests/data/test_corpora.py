"""Corpora: every kind of source gives its documents in order, and every wrong source is one clear line."""

from __future__ import annotations

import gzip
import json
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from ssm.base.errors import DataError
from ssm.data.corpora import build_reader, documents
from ssm.data.corpora import files as reader
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.corpora.hub import HubCorpus
from ssm.specs.corpora.stdlib import StdlibCorpus

TEXTS = ["first\n", "zweite Zeile: äöü €", "x" * 5000, "last"]


def rows(key: str = "text") -> bytes:
    return b"".join(json.dumps({"n": n, key: text}).encode() + b"\n" for n, text in enumerate(TEXTS))


def files(*paths: Path, **options: str) -> FilesCorpus:
    return FilesCorpus(paths=tuple(str(path) for path in paths), **options)


def texts_of(spec: FilesCorpus) -> list[bytes]:
    return [document.text for document in documents(spec)]


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_every_format_gives_the_same_documents(tmp_path: Path) -> None:
    frame = zstandard.ZstdCompressor().compress
    half = len(rows().splitlines(keepends=True)[0])
    sources = [
        write(tmp_path / "a.jsonl", rows()),
        write(tmp_path / "b.ndjson", rows().replace(b"\n", b"\n\n")),  # blank lines are skipped
        write(tmp_path / "c.jsonl.gz", gzip.compress(rows())),
        write(tmp_path / "c4.json.gz", gzip.compress(b"\n" + rows())),  # as C4 names its lines
        write(tmp_path / "mark.jsonl", b"\xef\xbb\xbf" + rows()),  # with a byte-order mark, as on Windows
        write(tmp_path / "mark.json", b"\xef\xbb\xbf" + rows()),
        write(tmp_path / "UPPER.JSONL", rows()),
        write(tmp_path / "UPPER.JSONL.GZ", gzip.compress(rows())),
        write(tmp_path / "array.json", json.dumps([{"text": text} for text in TEXTS]).encode()),
        write(tmp_path / "indented.json", json.dumps([{"text": text} for text in TEXTS], indent=2).encode()),
        write(tmp_path / "lines.json", b"\xef\xbb\xbf[\n" + rows().strip().replace(b"\n", b",\n") + b"\n]\n"),
        write(tmp_path / "d.jsonl.zst", frame(rows()[:half]) + frame(rows()[half:])),  # two frames
    ]
    pq.write_table(pa.table({"text": TEXTS, "n": range(4)}), tmp_path / "e.parquet", row_group_size=3)
    sources.append(tmp_path / "e.parquet")
    for number, text in enumerate(TEXTS):
        write(tmp_path / "folder" / f"{number}.txt", text.encode())
    sources.append(tmp_path / "folder")
    for source in sources:
        assert texts_of(files(source)) == [text.encode() for text in TEXTS], source.name


@pytest.mark.parametrize("indent", [None, 2])
def test_json_with_long_texts(indent: int | None, tmp_path: Path) -> None:
    texts = ["x" * (reader.READ_BUFFER + 1), "y"]
    write(tmp_path / "array.json", json.dumps([{"text": text} for text in texts], indent=indent).encode())
    write(tmp_path / "object.json", json.dumps({"n": 1, "text": texts[0]}, indent=indent).encode())
    assert texts_of(files(tmp_path / "array.json")) == [text.encode() for text in texts]
    assert texts_of(files(tmp_path / "object.json")) == [texts[0].encode()]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" \n", b"a name: {}", b'"[a]"', b"12", b"[]", b"[1, 2]", b"[" * 100_000),
        *(b'{"name": "a package"}', b'{\n  "name": "a package"\n}', b'{\n  // settings\n  "text": "a"\n}'),
        *(
            b'[{"name": "a"}, {"text": "b"}]',
            b'[{"text": "a"',
            b'{\n  "text": {"color": "red"}\n}',
            b'{"a": 1}\n{"b": 2}',
        ),
    ],
)
def test_json_without_texts_is_text(content: bytes, tmp_path: Path) -> None:
    """Such as settings in a folder of source code."""
    write(tmp_path / "folder" / "1.json", content)
    write(tmp_path / "folder" / "2.txt", b"text")
    assert texts_of(files(tmp_path / "folder")) == [*[content] * bool(content), b"text"]


def test_json_with_texts_in_a_folder_has_rows(tmp_path: Path) -> None:
    write(tmp_path / "1.json", json.dumps([{"text": "a"}, {"text": "b"}], indent=2).encode())
    write(tmp_path / "2.json", b'{"text": "c"}\n{"text": "d"}')
    write(tmp_path / "3.json", b'[\n{"text": "e"}]')
    assert texts_of(files(tmp_path)) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_given_path_is_looked_up_once_for_each_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(tmp_path / f"{number}.json", b'{"text": "a"}') for number in range(10)]
    looked_up = []
    monkeypatch.setattr(reader, "home_expanded", lambda path: looked_up.append(path) or Path(path))
    assert len(texts_of(files(*paths))) == 10
    assert len(looked_up) <= 20, "for the list of files, and to tell which files are given themselves"


def test_json_is_text_if_the_spec_says_so(tmp_path: Path) -> None:
    content = json.dumps([{"text": "a"}], indent=2).encode()
    assert texts_of(files(write(tmp_path / "x.json", content), format="text")) == [content]


def test_documents_have_an_order_and_names_that_do_not_depend_on_the_machine(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/10.txt", "a.txt", ".hidden/x.txt", "b/.cache"):
        write(tmp_path / "corpus" / name, name.encode())
    write(tmp_path / "rows.jsonl", b'{"text": "one"}\n\n{"text": ""}\n{"text": null}\n{"text": "five"}\n')
    names = [document.name for document in documents(files(tmp_path / "corpus", tmp_path / "rows.jsonl"))]
    assert names == ["a.txt", "b/10.txt", "b/2.txt", "rows.jsonl:1", "rows.jsonl:5"]
    assert [d.name for d in documents(files(tmp_path / "corp*" / "**" / "*.txt"))] == [
        "corpus/a.txt",
        "corpus/b/10.txt",
        "corpus/b/2.txt",
    ]


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.txt", "inner/2.txt", ".hidden/3.txt"):
        write(tmp_path / name, b"text")
    monkeypatch.setattr(reader, "MOST_FILES", 2)
    assert texts_of(files(tmp_path)) == [b"text", b"text"]
    monkeypatch.setattr(reader, "MOST_FILES", 1)
    with pytest.raises(DataError, match="more than 1 files; give fewer, or JSON lines or Parquet"):
        texts_of(files(tmp_path))


def test_a_glob_that_goes_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.txt", "a/2.txt", "a/b/3.txt"):
        write(tmp_path / name, name.encode())
    assert texts_of(files(tmp_path / "*" / ".." / "*.txt")) == [b"1.txt"]
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert texts_of(files(Path("../*.txt"))) == [b"a/2.txt"]
    assert [document.name for document in documents(files(Path("../*/../*.txt")))] == ["2.txt"]


def test_a_file_found_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"a")
    write(tmp_path / "b.txt", b"b")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    assert texts_of(files(tmp_path / "b.txt", tmp_path, tmp_path / "*.txt")) == [b"b", b"a"]


def test_a_folder_that_is_a_link_is_read_once(tmp_path: Path) -> None:
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    write(corpus / "z" / "2.txt", b"two")
    write(elsewhere / "deep" / "1.txt", b"one")
    links = {corpus / "linked": elsewhere, corpus / "a": corpus / "z", corpus / "twice": elsewhere / "deep"}
    loops = {corpus / "z" / "up": corpus, corpus / "above": tmp_path, elsewhere / "deep" / "loop": elsewhere}
    for link, target in (links | loops).items():
        link.symlink_to(target)
    assert [document.name for document in documents(files(corpus))] == ["linked/deep/1.txt", "z/2.txt"]


def test_an_explicit_format_selects_the_files_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "README.md", b"not a row")
    write(tmp_path / "x.jsonl", rows())
    assert texts_of(files(tmp_path, format="jsonl")) == [text.encode() for text in TEXTS]
    assert len(texts_of(files(tmp_path / "README.md", tmp_path / "x.jsonl", format="text"))) == 2


def test_text_is_kept_as_bytes(tmp_path: Path) -> None:
    write(tmp_path / "latin.txt", b"caf\xe9")
    write(tmp_path / "bad.jsonl", b'{"text": "caf\xe9 \\ud800"}\n')
    assert texts_of(files(tmp_path / "latin.txt")) == [b"caf\xe9"]
    assert texts_of(files(tmp_path / "bad.jsonl")) == ["caf\ufffd ?".encode()]
    write(tmp_path / "bad.json", b"[" + (tmp_path / "bad.jsonl").read_bytes() + b"]")
    assert texts_of(files(tmp_path / "bad.json")) == ["caf\ufffd ?".encode()]


@pytest.mark.parametrize("name", ["folder", "x.jsonl", "x.jsonl.gz", "x.json", "x.parquet"])
def test_progress_adds_up_to_the_stored_bytes(tmp_path: Path, name: str) -> None:
    write(tmp_path / "folder" / "1.txt", b"abc")
    write(tmp_path / "folder" / "2.txt.gz", gzip.compress(b"abc" * 99))
    write(tmp_path / "x.jsonl", rows())
    write(tmp_path / "x.jsonl.gz", gzip.compress(rows()))
    write(tmp_path / "x.json", json.dumps([{"text": text} for text in TEXTS]).encode())
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "x.parquet")
    spec = files(tmp_path / name)
    assert sum(document.stored for document in documents(spec)) == build_reader(spec).stored_bytes()


def test_a_format_that_cannot_be_read_is_named_and_not_read_as_text(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"text")
    text, frame = "give its text, also as .gz or .zst", zstandard.ZstdCompressor().compress(b"content")
    for name, content, hint in (
        ("z.txt.XZ", b"content", text),
        ("z.tar.gz", gzip.compress(b"content"), text),
        ("z.tar.zst", frame, text),
        ("z.arrow", b"content", "give it as Parquet or"),
    ):
        path = write(tmp_path / name, content)
        with pytest.raises(DataError, match=rf"{name}: \.\w+ files cannot be read; {hint}.*, or leave it out"):
            next(documents(files(tmp_path)))
        assert texts_of(files(path, format="text")) == [b"content"]
        path.unlink()


def test_wrong_sources_are_one_clear_line(tmp_path: Path) -> None:
    truncated = gzip.compress(rows() * 50)[:-30]
    frame = zstandard.ZstdCompressor().compress(rows() * 50)[:-30]
    pq.write_table(pa.table({"content": TEXTS, "n": range(4)}), tmp_path / "x.parquet")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    cases = [
        (files(tmp_path / "nowhere"), "nowhere: no such file or folder"),
        (files(tmp_path / ("x" * 5000)), r"^'/[^\n]{,300}: cannot be read \(File name too long\)$"),
        (files(tmp_path / "*.tsv"), r"\*\.tsv: no file found here"),
        (files(tmp_path / "empty"), "empty: no file found here"),
        (files(tmp_path / "pip?"), r"pip\?: no file found here"),
        (files(tmp_path / "pipe"), "pipe: expected a file or a folder, got a pipe or a device"),
        (files(write(tmp_path / "odd" / "caf\udce9.txt", b"a").parent), r"caf\\udce9\.txt: its name is not in UTF-8"),
        (files(tmp_path / "empty", format="jsonl"), "empty: no jsonl file found here"),
        (files(write(tmp_path / "blank.txt", b"")), "blank.txt: the corpus has no text"),
        (files(write(tmp_path / "cut.jsonl.gz", truncated)), r"cut\.jsonl\.gz: cannot be read \(Truncated"),
        (files(write(tmp_path / "cut.jsonl.zst", frame)), r"cut\.jsonl\.zst: cannot be read \(Truncated"),
        (files(write(tmp_path / "no.jsonl.gz", b"plain")), r"no\.jsonl\.gz: cannot be read"),
        (files(write(tmp_path / "no.parquet", b"plain")), r"no\.parquet: cannot be read"),
        (files(write(tmp_path / "bad.jsonl", rows() + b"{oops\n")), r"bad\.jsonl:5: not JSON \(column 2: "),
        (files(write(tmp_path / "deep.jsonl", rows() + b"[" * 100_000)), r"deep\.jsonl:5: this JSON cannot be read"),
        (files(write(tmp_path / "long.jsonl", b'{"n": ' + b"9" * 6000 + b"}")), r"long\.jsonl:1: this JSON cannot be"),
        (files(write(tmp_path / "list.jsonl", b"[1]\n")), r"list\.jsonl:1: expected a JSON object, got list"),
        (files(write(tmp_path / "int.jsonl", b'{"text": 3}\n')), r"int\.jsonl:1: 'text' holds int, expected text"),
        (files(write(tmp_path / "key.jsonl", rows("texts"))), r"key\.jsonl:1: no key 'text' .*did you mean 'texts'\?"),
        (files(write(tmp_path / "row.json", b'[{"text": "a"}, {"texts": "b"}]')), r"row 1: no key 'text' .*'texts'\?"),
        (files(write(tmp_path / "two.json", b'[{"text": "a"},\n{"text": 3}]')), r"row 1: 'text' holds int"),
        (files(write(tmp_path / "a.json", b'[{"content": "a"}]')), r"a\.json: row 0: no key 'text' .*names: content$"),
        (
            files(write(tmp_path / "c.json", b'{"content": "a"}\n{"content": "b"}')),
            r"c\.json:1: no key 'text' .*: content$",
        ),
        (files(write(tmp_path / "end.json", b'[{"text": "a"},\n')), r"end\.json:2: not JSON \(column 1: "),
        (files(tmp_path / "x.parquet", text_key="contents"), r"no column 'contents' .*did you mean 'content'\?"),
        (files(tmp_path / "x.parquet", text_key="n"), "row 0 of column 'n' holds int, expected text"),
    ]
    for spec, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            list(documents(spec))
        assert "\n" not in str(caught.value)


def test_the_standard_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = {"b.py": 100, "a/z.py": 200, "a/tiny.py": 3, "huge.py": 900, "data.txt": 100}
    for name, size in sizes.items():
        write(tmp_path / name, b"#" * size)
    write(tmp_path / "site-packages" / "other.py", b"#" * 100)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    spec = StdlibCorpus(min_file_bytes=64, max_file_bytes=500)
    assert [(document.name, len(document.text)) for document in documents(spec)] == [("a/z.py", 200), ("b.py", 100)]
    assert build_reader(spec).stored_bytes() == 300
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "python.zip"))
    with pytest.raises(DataError, match="standard library is not a folder"):
        list(documents(spec))


def test_the_running_python_has_a_standard_library_to_train_on() -> None:
    assert build_reader(StdlibCorpus()).stored_bytes() > 5_000_000
    assert next(documents(StdlibCorpus())).name == "__future__.py"


def fake_datasets(load: object) -> types.ModuleType:
    module = types.ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    return module


def test_the_hub_streams_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def load(*args: object, **options: object) -> list[dict[str, object]]:
        asked.update(options, args=args)
        return [{"body": text} for text in TEXTS]

    monkeypatch.setitem(sys.modules, "datasets", fake_datasets(load))
    spec = HubCorpus(name="some/corpus", config="en", split="validation", revision="abc", text_key="body")
    assert [d.text.decode() for d in documents(spec)] == TEXTS
    assert asked == {"args": ("some/corpus", "en"), "split": "validation", "revision": "abc", "streaming": True}
    with pytest.raises(DataError, match=r"some/corpus \(train\): no column 'text' .*valid names: body"):
        list(documents(HubCorpus(name="some/corpus")))


def test_the_hub_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[dict[str, str]]:
        yield {"text": "fine"}
        raise ConnectionError("reset\nby peer")

    def absent(*args: object, **options: object) -> None:
        raise FileNotFoundError("no such data set\nmore")

    cases = (
        (None, r"need `pip install '\.\[hub\]'` in the clone"),
        (fake_datasets(absent), r"x \(train\): cannot be opened on the hub \(no such data set\)$"),
        (fake_datasets(lambda *args, **options: broken()), r"reading failed at row 1 \(reset\)$"),
    )
    for module, message in cases:
        monkeypatch.setitem(sys.modules, "datasets", module)
        with pytest.raises(DataError, match=message):
            list(documents(HubCorpus(name="x")))
