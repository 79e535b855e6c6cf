"""The spec of the prose in Python's standard library as a corpus."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.specs.corpora.base import Corpus


class DocstringsCorpus(Corpus):
    """English prose of Python's standard library: docstrings and help topics, about 1 MB without their code. Every
    machine has it, and nothing is downloaded. Packages that some distributions leave out are not read.
    """

    library: ClassVar[bool] = True
    words: ClassVar[str] = "the docstrings of the standard library"
    kind: Literal["docstrings"] = "docstrings"
