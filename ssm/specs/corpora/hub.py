"""The spec of a data set of the Hugging Face hub as a corpus."""

from __future__ import annotations

from typing import Literal

from ssm.specs.corpora.base import Corpus


class HubCorpus(Corpus):
    """A data set of the Hugging Face hub by name, streamed through the optional package `datasets`."""

    kind: Literal["hub"] = "hub"
    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    text_key: str = "text"

    @property
    def words(self) -> str:
        return self.name
