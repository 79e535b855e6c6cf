"""The files that a token store, or an answer on a checkpoint, is made from: when they change, it is made anew."""

from __future__ import annotations

import re
from pathlib import Path

from ssm.base.errors import DataError
from ssm.base.names import HUB
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BytesTokenizer, Data, DataSpec

WEIGHTS = ("*.safetensors", "*.bin")  # beside a config.json or a run.json


def source_files(data: Data) -> tuple[Path, ...] | None:
    """The files of its corpora and its tokenizer, as absolute paths; empty where they are none of the user's files.

    Returns:
        None when one of them is not there. That is no error here, because a finished store does not need them: it is
        `ssm tokenize` that misses them.
    """
    found: list[Path] = []
    for corpus in data.sources.corpora:
        from ssm.data import corpora  # Arrow, which no other part of the plan needs

        try:
            found += [path for _, path in corpora.source_files(corpus)]
        except DataError:
            return None
    for tokenizer in data.sources.tokenizers:
        path = Path(tokenizer.path).expanduser()
        if not path.is_file():
            return None
        found.append(path.resolve())
    return tuple(found)


def text_files(paths: tuple[str, ...]) -> tuple[Path, ...] | None:
    """Those of texts that are given as files, folders or globs; None as of `source_files`."""
    return source_files(DataSpec(name="text", corpus=FilesCorpus(paths=paths), tokenizer=BytesTokenizer()))


def weight_files(checkpoint: str) -> tuple[Path, ...] | None:
    """The files that hold the weights of a checkpoint: none of a hub's; None as of `source_files`."""
    path = Path(checkpoint).expanduser()
    if path.is_file() and path.suffix != ".json":
        return (path.resolve(),)
    if not path.exists():
        return () if re.fullmatch(HUB, checkpoint) else None
    folder = path if path.is_dir() else path.parent  # a file: an index of shards
    return next(filter(None, (_inside(folder, pattern) for pattern in WEIGHTS)), None)


def imported_files(checkpoint: str) -> tuple[Path, ...] | None:
    """Those of the weights of a figure's arm, and what lies beside them.

    Returns:
        None when they are not there: gone, or the hub's. A finished import does not need them; `ssm import` does.
    """
    weights = weight_files(checkpoint)
    return tuple(dict.fromkeys((*weights, *settings_files(checkpoint)))) if weights else None


def settings_files(checkpoint: str) -> tuple[Path, ...]:
    """What lies beside the weights and says what the model, its run, and its tokenizer are."""
    path = Path(checkpoint).expanduser()
    return _inside(path if path.is_dir() else path.parent, "*.json") if path.exists() else ()


def tokenizer_files(tokenizer: str | None) -> tuple[Path, ...] | None:
    """The tokenizer.json that is named by its path; None as of `source_files`."""
    if tokenizer is None or tokenizer == "bytes":
        return ()
    path = Path(tokenizer).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        return (file.resolve(),)
    return () if re.fullmatch(HUB, tokenizer) and not path.exists() else None


def _inside(folder: Path, pattern: str) -> tuple[Path, ...]:
    return tuple(file.resolve() for file in sorted(folder.glob(pattern)) if file.is_file())
