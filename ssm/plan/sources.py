"""The user's files that jobs read. When one of them changes, the workflow makes the result again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from ssm.base.errors import CheckpointError, DataError, MissingFilesError
from ssm.base.files import reading
from ssm.base.hub import HUB, is_name
from ssm.base.paths import home_expanded
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BytesTokenizer, Data, DataSpec

WEIGHT_PATTERNS = ("*.safetensors", "*.bin")  # in the folder of a config.json or a run.json
COMPRESSED = (".gz", ".zst", ".parquet")
EXPANSION = 3  # bytes of text in a byte of a compressed file, as in the files of the Pile


@reading(DataError)
def source_files(data: Data) -> tuple[Path, ...] | None:
    """The user's files that a token store is made from: corpora and tokenizers.

    Returns:
        Absolute paths. None: a file is missing. This is not an error here, because a finished store does not need its
        sources any more. `ssm tokenize` reports missing files.

    Raises:
        DataError: a file or folder cannot be read. Otherwise a change of the other files would not be noticed.
    """
    files: list[Path] = []
    for corpus in data.sources.corpora:
        from ssm.data.corpora import build_reader  # imports Arrow, which the rest of the plan does not need

        try:
            files += [path for _, path in build_reader(corpus).files()]
        except MissingFilesError:
            return None
    for tokenizer in data.sources.tokenizers:
        path = home_expanded(tokenizer.path)
        if not path.is_file():
            return None
        files.append(path.resolve())
    return tuple(files)


def rule_inputs(*parts: Iterable[Path] | None) -> tuple[Path, ...] | None:
    """All files without repetition, as the input of a rule; None if one of the parts is None.

    Raises:
        DataError: a path has a brace.
    """
    paths: dict[Path, None] = {}
    for part in parts:
        if part is None:
            return None
        paths |= dict.fromkeys(part)
    for path in paths:
        if set(str(path)) & set("{}"):
            raise DataError(f"{path}: Snakemake reads braces in a path as wildcards; rename it")
    return tuple(paths)


def sizes_of(files: Iterable[Path] | None) -> str:
    """A hash of the files' names and sizes; empty without files.

    Snakemake sees newer files, and compares the content of small ones. It misses an older file that takes the place of
    another, as after `mv` or `rsync -a`. Reading all content would take minutes for many files.
    """
    sizes = [(str(file), file.stat().st_size) for file in files or ()]
    return hashlib.sha256(json.dumps(sizes).encode()).hexdigest()[:8] if sizes else ""


def text_bytes(files: Iterable[Path]) -> int:
    """The bytes of the text in some files, estimated from the sizes of the files."""
    return sum(file.stat().st_size * (EXPANSION if file.suffix.lower() in COMPRESSED else 1) for file in files)


def text_files(paths: tuple[str, ...]) -> tuple[Path, ...] | None:
    """The files of texts that are given as files, folders or globs; None: a file is missing."""
    return source_files(DataSpec(name="text", corpus=FilesCorpus(paths=paths), tokenizer=BytesTokenizer()))


@reading(CheckpointError)
def weight_files(checkpoint: str) -> tuple[Path, ...] | None:
    """The files of a checkpoint's weights. Empty: it is on the Hugging Face Hub. None: a file is missing.

    Raises:
        CheckpointError: their folder cannot be read.
    """
    path = home_expanded(checkpoint)
    if path.is_file() and path.suffix != ".json":
        return (path.resolve(),)
    if not path.exists():
        return () if re.fullmatch(HUB, checkpoint) else None
    folder = path if path.is_dir() else path.parent  # a file: an index of shards
    return next(filter(None, (_files(folder, pattern) for pattern in WEIGHT_PATTERNS)), None)


def imported_files(checkpoint: str) -> tuple[Path, ...] | None:
    """The files that the import of a checkpoint reads: weights, and the JSON files next to them.

    Returns:
        None: the files are missing, or on the Hub. A finished import does not need them any more.

    Raises:
        CheckpointError: their folder cannot be read.
    """
    weights = weight_files(checkpoint)
    return tuple(dict.fromkeys((*weights, *settings_files(checkpoint)))) if weights else None


@reading(CheckpointError)
def settings_files(checkpoint: str) -> tuple[Path, ...]:
    """The JSON files next to the weights, which describe the model, its training run and its tokenizer.

    Raises:
        CheckpointError: their folder cannot be read.
    """
    path = home_expanded(checkpoint)
    return _files(path if path.is_dir() else path.parent, "*.json") if path.exists() else ()


@reading(DataError)
def tokenizer_files(tokenizer: str | None) -> tuple[Path, ...] | None:
    """The tokenizer.json file. Empty: bytes, or a name on the Hub. None: the file is missing.

    Raises:
        DataError: its folder cannot be read.
    """
    if tokenizer is None or tokenizer == "bytes":
        return ()
    path = home_expanded(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        return (file.resolve(),)
    return () if is_name(tokenizer) and not path.exists() else None


def _files(folder: Path, pattern: str) -> tuple[Path, ...]:
    return tuple(file.resolve() for file in sorted(folder.glob(pattern)) if file.is_file())
