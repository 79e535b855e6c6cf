"""The spec of a data set on the Hugging Face hub as a corpus."""

from __future__ import annotations

from typing import Literal

from ssm.specs.corpora.base import Corpus


class HubCorpus(Corpus):
    """A data set on the Hugging Face hub, which is streamed. Needs the optional package `datasets`."""

    kind: Literal["hub"] = "hub"
    name: str
    config: str | None = None  # configuration of the data set, if it has several
    split: str = "train"  # split of the data set
    revision: str | None = None  # branch, tag or commit; without it, the newest
    text_key: str = "text"  # column with the text

    @property
    def words(self) -> str:
        return self.name
