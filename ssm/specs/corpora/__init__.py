"""Specs of the sources of text, one file for each. The reader is in ssm/data/corpora/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssm.specs.base import plugin_union
from ssm.specs.corpora.base import SPECS, Corpus

if TYPE_CHECKING:
    CorpusSpec = Corpus
else:
    CorpusSpec = plugin_union(SPECS, "ssm.data.corpora")
