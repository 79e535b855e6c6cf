"""The spec of Python's standard library as a corpus."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from ssm.specs.corpora.base import Corpus


class StdlibCorpus(Corpus):
    """The source code of Python's standard library. Every machine has it, and nothing is downloaded."""

    library: ClassVar[bool] = True
    words: ClassVar[str] = "the standard library"
    kind: Literal["stdlib"] = "stdlib"
    min_file_bytes: PositiveInt = 64  # leave out smaller files
    max_file_bytes: PositiveInt = 400_000  # leave out larger files
