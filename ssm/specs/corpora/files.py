"""The spec of files as a corpus."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ssm.specs.corpora.base import Corpus

Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class FilesCorpus(Corpus):
    """Files, folders (searched recursively) or globs. A text file is a document; so is a JSONL or Parquet row."""

    own_files: ClassVar[bool] = True
    kind: Literal["files"] = "files"
    paths: Words
    format: Literal["auto", "text", "jsonl", "parquet"] = "auto"  # auto: by the file's ending; .zst and .gz are opened
    text_key: str = "text"  # the JSONL key or the Parquet column that holds the text

    @property
    def words(self) -> str:
        return ", ".join(self.paths)
