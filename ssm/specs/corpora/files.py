"""The spec of your own files as a corpus."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.corpora.base import Corpus

Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class FilesCorpus(Corpus):
    """Your own files. Each text file is a document; in JSONL, JSON and Parquet files, each row is one."""

    own_files: ClassVar[bool] = True
    kind: Literal["files"] = "files"
    paths: Words  # files, folders (searched recursively) or globs
    # `auto`: by the file name; .zst and .gz also work. A .json file has rows if it holds objects with texts: JSON
    # lines, an array, or one object. Other .json files are text.
    format: Literal["auto", "text", "jsonl", "parquet"] = "auto"
    text_key: str = "text"  # JSON key or Parquet column with the text

    @property
    def words(self) -> str:
        return ", ".join(self.paths)
