"""The source text of the running Python's standard library."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator, Set
from pathlib import Path

from ssm.base.errors import DataError
from ssm.data.corpora.base import CorpusReader, Document
from ssm.specs.corpora.stdlib import StdlibCorpus

INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages


class StdlibReader(CorpusReader, kind="stdlib"):
    """Every *.py file of the standard library within the spec's limits of size, sorted by relative path."""

    spec: StdlibCorpus

    def documents(self) -> Iterator[Document]:
        root = library_folder()
        for name, _ in self._sized():
            try:
                text = (root / name).read_bytes()
            except OSError as error:
                raise DataError(f"{root / name}: cannot be read ({error.strerror or error})") from error
            yield Document(name, text, len(text))

    def stored_bytes(self) -> int:
        return sum(size for _, size in self._sized())

    def _sized(self) -> list[tuple[str, int]]:
        limits = range(self.spec.min_file_bytes, self.spec.max_file_bytes + 1)
        return [(name, size) for name, size in library_files(library_folder()) if size in limits]


def library_files(root: Path, without: Set[str] = INSTALLED) -> list[tuple[str, int]]:
    """(relative path, bytes) of every *.py file below `root`, sorted. Folders named in `without` are not entered."""
    sized = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in without]
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            sized.append((path.relative_to(root).as_posix(), path.stat().st_size if path.is_file() else 0))
    return sorted(sized)


def library_folder() -> Path:
    """The folder of the running Python's standard library.

    Raises:
        DataError: this Python's library is not a folder of files (a frozen or zipped Python).
    """
    root = Path(sysconfig.get_path("stdlib"))
    if not root.is_dir():
        raise DataError(f"{root}: this Python's standard library is not a folder of files; use a 'files' corpus")
    return root
