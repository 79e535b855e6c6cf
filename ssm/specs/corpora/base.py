"""The base class for specs of text sources."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ssm.base.discovery import Registry
from ssm.specs.base import PluginSpec

SPECS: Registry[type[Corpus]] = Registry("ssm.specs.corpora")


class Corpus(PluginSpec):
    """The source of the documents of a text."""

    registry: ClassVar[Registry[Any]] = SPECS
    own_files: ClassVar[bool] = False  # whether the user's files are read
    library: ClassVar[bool] = False  # whether files of the running Python are read
    kind: str

    @property
    @abstractmethod
    def words(self) -> str:
        """A name for messages."""
