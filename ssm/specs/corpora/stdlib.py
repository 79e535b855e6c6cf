"""The spec of the standard library as a corpus."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.corpora.base import Corpus


class StdlibCorpus(Corpus):
    """The source text of the running Python's standard library: real, on every machine, no download."""

    library: ClassVar[bool] = True
    kind: Literal["stdlib"] = "stdlib"
    min_file_bytes: PositiveInt = 64
    max_file_bytes: PositiveInt = 400_000

    @property
    def words(self) -> str:
        return "the standard library"
