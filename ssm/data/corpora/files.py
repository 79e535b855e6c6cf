"""Files, folders and globs: text (a document for each file), JSONL, Parquet and JSON (one for each row)."""

from __future__ import annotations

import codecs
import glob
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ssm.base.errors import DataError, MissingFilesError, first_line, nearest, shown
from ssm.base.files import reading
from ssm.base.paths import before_wildcards, home_expanded, is_utf8
from ssm.data.corpora.base import CorpusReader, Document, as_text
from ssm.specs.corpora.files import FilesCorpus

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}  # by suffix; other files are text
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# Suffixes of files that cannot be read -> what the user can do. As text, they would be noise.
UNREADABLE = {
    **dict.fromkeys((".7z", ".bz2", ".lz4", ".tar", ".tgz", ".xz", ".zip"), "give its text, also as .gz or .zst"),
    **dict.fromkeys((".arrow", ".feather"), "give it as Parquet or JSON lines"),
    ".pdf": "give its text",
}
ROWS = 256  # Parquet rows in memory
READ_BUFFER = 2**20  # bytes
MOST_FILES = 200_000  # limit for a folder, so that nobody reads a whole disk by mistake
MOST_INVALID = 0.01  # share of a text that may be no UTF-8, or zero bytes
SAMPLE = 2**16  # bytes of a file that are checked
RENAME = "give its name as --text-key, or as text_key in data.yaml"


class FilesReader(CorpusReader, kind="files"):
    """Every document of every file: files in the order of `files`, rows in the order of their file."""

    spec: FilesCorpus

    def documents(self) -> Iterator[Document]:
        readers = {"text": _text, "jsonl": _jsonl, "parquet": _parquet, "json": _json}
        for name, path in self.files():
            try:
                reader = readers[self._found_format(path)]
                yield from reader(name, path, self.spec.text_key)
            except (OSError, pa.ArrowException) as error:
                reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
                raise DataError(f"{path}: cannot be read ({reason})") from error

    def _found_format(self, path: Path) -> str:
        """The format of the spec; if it is `auto`, that of the file.

        It is `format_of`, or jsonl or json for some .json files. These are JSON lines, as in C4, an array of objects,
        and one object, if they have texts. Other .json files are text, such as settings in a folder of source code. If
        the user named the file itself, rows without texts are an error.
        """
        if self.spec.format != "auto":
            return self.spec.format
        if _suffix(path) != ".json":
            return format_of(path)
        named, key = path in self._given, self.spec.text_key
        with _opened(path) as (stream, _):
            lines = filter(None, (line.removeprefix(codecs.BOM_UTF8).strip() for line in stream))
            first = next(lines, b"")
            if first.startswith(b"["):
                first = b"[" + (first[1:].lstrip() or next(lines, b""))
            if not first.startswith((b"{", b"[{")):
                return "text"
            if named and first.startswith(b"["):
                return "json"
            if first.startswith(b"{") and (rows := _objects(first)):
                return "jsonl" if _have_texts(rows, key) or (named and next(lines, b"")) else "text"
            return "json" if _have_texts(_objects(b"\n".join((first, *lines))), key) else "text"

    @cached_property
    def _given(self) -> set[Path]:
        """The files and folders that the user named, without links."""
        return {home_expanded(path).resolve() for path in self.spec.paths}

    @reading(DataError)
    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for _, path in self.files())

    @reading(DataError)
    def files(self) -> list[tuple[str, Path]]:
        """(name, path) of every file, in the order of the spec's paths, and sorted within a folder or glob.

        A name is the path relative to the given folder, or to the part of a glob before the first wildcard, so that
        it is the same on every machine. A file that is found twice counts once; a copy could otherwise be in both
        splits. Hidden files in folders and globs are skipped. With an explicit table format, files in folders with
        another suffix are skipped.

        Raises:
            MissingFilesError: a path does not exist, a glob matches nothing, or a folder has nothing to read.
            DataError: a path cannot be read, or a file's name is not in UTF-8 or has a suffix that cannot be read.
        """
        chosen: dict[Path, str] = {}
        for text in self.spec.paths:
            if not text:  # Path("") would be the current folder
                raise DataError("a path is '': expected the name of a file or a folder")
            given = home_expanded(text)
            try:
                there = given.exists()
            except OSError as error:  # the name is invalid
                raise DataError(f"{shown(text)}: cannot be read ({error.strerror or error})") from error
            if there and not _readable(given):
                raise DataError(f"{text}: expected a file or a folder, got a pipe or a device")
            if there:
                root, matches = (given if given.is_dir() else given.parent), [given]
            elif glob.has_magic(text):
                given = Path(os.path.normpath(given))  # ".." after a wildcard would count as a hidden folder
                root = before_wildcards(given)
                found = sorted(root.glob(str(given.relative_to(root))))
                matches = [path for path in found if _readable(path) and not _hidden(path, root)]
            else:
                raise MissingFilesError(f"{text}: no such file or folder")
            files = [file for match in matches for file in (_inside(match, self.spec) if match.is_dir() else [match])]
            if not files:
                kind = "" if self.spec.format == "auto" else f"{self.spec.format} "
                raise MissingFilesError(f"{text}: no {kind}file found here")
            for file in files:
                chosen.setdefault(file.resolve(), file.relative_to(root).as_posix())
        for path, name in chosen.items():
            if not (is_utf8(str(path)) and is_utf8(name)):  # Arrow, JSON and Snakemake need UTF-8
                raise DataError(f"{path}: its name is not in UTF-8 (or the locale is not); rename it, or leave it out")
            suffix = _suffix(path)
            if self.spec.format == "auto" and (hint := UNREADABLE.get(suffix)):
                raise DataError(f"{path}: {suffix} files cannot be read; {hint}, or leave it out")
        return [(name, path) for path, name in chosen.items()]

    def require_texts(self) -> None:
        """Check that .json files with texts under another key are not read as they are stored.

        `_found_format` takes them for text, because settings in a folder of source code look the same. So they are
        refused only if there are no other files.

        Raises:
            MissingFilesError, DataError: as in `files`. Or all files are .json files, and their rows share a key with
                texts, but none has the key of the spec.
        """
        key, first, shared, count = self.spec.text_key, "", set[str](), 0
        for _, path in self.files():
            try:
                rows = _rows(path) if _suffix(path) == ".json" else []
            except (OSError, pa.ArrowException):
                return  # the reader says so
            if not rows or not all(isinstance(row, dict) and key not in row for row in rows):
                return
            first = first or str(path)
            for row in rows:
                texts = {name for name, value in row.items() if isinstance(value, str)}
                shared = shared & texts if count else texts
                count += 1
            if not shared:
                return
        if count > 1:
            _text_of(dict.fromkeys(shared), key, f"{first}: row 0")

    def require_utf8(self) -> None:
        """Look at the beginning of each file. Zero bytes are in UTF-16 and binary files.

        A file counts by its size, so that one large binary file among many texts is found.

        Raises:
            DataError: too many bytes of all files together are not. The message names the worst file.
        """
        wrong: dict[Path, float] = {}  # bytes, if all of a file is like its beginning
        size = 0
        for _, path in self.files():
            try:
                if self._found_format(path) == "parquet":
                    continue
                with _opened(path) as (stream, _):
                    content = stream.read(SAMPLE)
                stored = path.stat().st_size
            except (OSError, pa.ArrowException):
                continue  # the reader says so
            if not content:
                continue
            valid = content.decode("utf-8", errors="ignore").replace("\0", "").encode("utf-8")
            wrong[path] = stored * (1 - len(valid) / len(content))
            size += stored
        total = sum(wrong.values())
        if total > MOST_INVALID * size:
            worst = max(wrong, key=lambda path: wrong[path])
            share = f"{total / size:.0%} of the bytes of the text are not"
            raise DataError(f"{worst}: is not text in UTF-8 ({share}); convert it to UTF-8, or leave it out")


def format_of(path: Path) -> str:
    """text, jsonl or parquet, by the suffix of the file name without the suffix of a compression."""
    return FORMATS.get(_suffix(path), "text")


def _suffix(path: Path) -> str:
    """The suffix of the file name without that of a compression, in lower case."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower()


def _objects(content: bytes) -> list[Any]:
    """The rows of a JSON text: an array, or one object. Empty: it is neither."""
    try:
        value = json.loads(content.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _rows(path: Path) -> list[Any]:
    """The rows of a .json file: an array, one object, or the first two JSON lines. Empty: it is none of these."""
    with _opened(path) as (stream, _):
        first = stream.readline().removeprefix(codecs.BOM_UTF8)
        return [*rows, *_objects(stream.readline())] if (rows := _objects(first)) else _objects(first + stream.read())


def _have_texts(rows: list[Any], key: str) -> bool:
    return bool(rows) and all(isinstance(row, dict) and isinstance(row.get(key), str) for row in rows)


def _inside(folder: Path, spec: FilesCorpus) -> list[Path]:
    """The files in a folder and its subfolders. Links to folders are searched last, and no folder twice."""
    paths, links = list[Path](), [folder]
    seen = {str(parent) for parent in folder.resolve().parents}  # a link to one of them leads out of the corpus
    while links:
        for place, folders, names in os.walk(links.pop(0)):
            real = os.path.realpath(place)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            links += [path for name in folders if (path := Path(place, name)).is_symlink()]
            for path in (Path(place, name) for name in names if not name.startswith(".")):
                wanted = spec.format in ("auto", "text", format_of(path))
                if wanted and os.path.isfile(path):  # noqa: PTH113 (Path.is_file raises without permission)
                    paths.append(path)
            if len(paths) > MOST_FILES:
                raise DataError(f"{folder}: more than {MOST_FILES:,} files; give fewer, or JSON lines or Parquet")
    return sorted(paths)


def _readable(path: Path) -> bool:
    """Whether a path is a folder or a regular file. A pipe has no end, or can be read only once."""
    return path.is_file() or path.is_dir()


def _hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(below).parts)


def _text(name: str, path: Path, _key: str) -> Iterator[Document]:
    with _opened(path) as (stream, _):
        yield Document(name, stream.read(), path.stat().st_size)


def _jsonl(name: str, path: Path, key: str) -> Iterator[Document]:
    with _opened(path) as (stream, position):
        before = 0
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            row = _parsed(line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace"), path, number)
            text = _text_of(row, key, f"{path}:{number}")
            after = position()
            yield Document(f"{name}:{number}", text, after - before)
            before = after


def _json(name: str, path: Path, key: str) -> Iterator[Document]:
    with _opened(path) as (stream, _):
        value = _parsed(stream.read().decode("utf-8-sig", errors="replace"), path, 1)
    rows = value if isinstance(value, list) else [value]
    size = path.stat().st_size
    for number, row in enumerate(rows):
        text = _text_of(row, key, f"{path}: row {number}")
        yield Document(f"{name}:{number}", text, _share(size, number, len(rows)))


def _parsed(content: str, path: Path, line: int) -> object:
    """The value of a JSON text that begins in this line of a file."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        number = line + error.lineno - 1
        raise DataError(f"{path}:{number}: not JSON (column {error.colno}: {error.msg.removesuffix(' at')})") from error
    except (ValueError, RecursionError) as error:  # thousands of digits or of brackets
        raise DataError(f"{path}:{line}: this JSON cannot be read ({first_line(error)})") from error


def _text_of(row: object, key: str, where: str) -> bytes:
    """The text of a JSON object."""
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object, got {type(row).__name__}")
    if key not in row:
        raise DataError(f"{where}: no key '{key}' ({RENAME}); {nearest(key, row)}")
    return as_text(row[key], f"{where}: '{key}'")


def _share(size: int, number: int, rows: int) -> int:
    """The stored bytes of a row, if each row counts an equal share."""
    return size * (number + 1) // rows - size * number // rows


def _parquet(name: str, path: Path, key: str) -> Iterator[Document]:
    with pq.ParquetFile(path) as table:
        if key not in table.schema_arrow.names:
            hint = nearest(key, table.schema_arrow.names)
            raise DataError(f"{path}: no column '{key}' ({RENAME}); {hint}")
        size, rows = path.stat().st_size, table.metadata.num_rows
        number = 0
        for batch in table.iter_batches(batch_size=ROWS, columns=[key]):
            for value in batch.column(0):
                text = as_text(value.as_py(), f"{path}: row {number} of column '{key}'")
                yield Document(f"{name}:{number}", text, _share(size, number, rows))
                number += 1


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, Callable[[], int]]]:
    """The file's content, decompressed by its suffix, and a function that returns the stored bytes read so far.

    Arrow reads all frames of a .zst file, and reports truncated files.
    """
    with pa.OSFile(str(path)) as file:
        compression = COMPRESSIONS.get(path.suffix.lower())
        stream = pa.CompressedInputStream(file, compression) if compression else file
        yield io.BufferedReader(stream, READ_BUFFER), file.tell
