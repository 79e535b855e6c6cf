"""The files that a token store is made from: for the workflow, which makes a store anew when they change."""

from __future__ import annotations

from pathlib import Path

from ssm.base.errors import DataError
from ssm.specs.data import DataSpec, FilesCorpus, FileTokenizer


def source_files(data: DataSpec) -> tuple[Path, ...] | None:
    """The files of its corpus and its tokenizer, as absolute paths; empty where both are none of the user's files.

    Returns:
        None when one of them is not there. That is no error here, because a finished store does not need them: it is
        `ssm tokenize` that misses them.
    """
    found: list[Path] = []
    if isinstance(data.corpus, FilesCorpus):
        from ssm.data.corpora import files  # Arrow, which no other part of the plan needs

        try:
            found += [path for _, path in files.source_files(data.corpus)]
        except DataError:
            return None
    if isinstance(data.tokenizer, FileTokenizer):
        path = Path(data.tokenizer.path).expanduser()
        if not path.is_file():
            return None
        found.append(path.resolve())
    return tuple(found)
