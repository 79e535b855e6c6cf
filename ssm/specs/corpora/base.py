"""What the specs of all corpora share: what they are called, and whether they may change under the same spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ssm.base.discovery import Registry
from ssm.specs.base import Spec

SPECS: Registry[type[Corpus]] = Registry("ssm.specs.corpora")  # those that stand in this folder


class Corpus(Spec, ABC):
    """Where the documents of a text come from."""

    own_files: ClassVar[bool] = False  # whether it is files of the user's
    library: ClassVar[bool] = False  # whether it is files of the running Python
    kind: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        SPECS.add_spec(cls)

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, for the start of a message."""
