"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        file: from the project's root.
        old: what stands there once.
        new: what stands there in the mutant.
        breaks: what is wrong with it, in a few words: its name.
        tests: test files from tests/, or tests in them, those that see it first. In brackets stand some of a test's
            parameters, in any order: those that run by default and have them all are meant.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
