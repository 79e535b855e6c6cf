"""Where text comes from, one file for each kind of corpus.

A new one: its spec here, and its reader in ssm/data/corpora/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ssm.base.plugin_modules import check_files
from ssm.specs.corpora.base import SPECS, Corpus

SPECS.discover()
check_files(SPECS, "ssm.data.corpora")

if TYPE_CHECKING:
    CorpusSpec = Corpus
else:  # a union over what the folder holds
    CorpusSpec = Annotated[Union[tuple(SPECS.values())], Field(discriminator="kind")]  # noqa: UP007
