"""Quantities of a sample: its text, and the positions of given pieces in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import StringConstraints

from ssm.claims.estimate import UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import FigureQuantity
from ssm.specs.base import Spec

# Text that is searched verbatim. `{key}` matches a number; the same name always matches the same number.
Piece = Annotated[str, StringConstraints(min_length=1)]
Span = tuple[int, int]  # start and end in the text, end excluded
PLACEHOLDER = re.compile(r"\{(\w+)\}")


class SampleQuantity(FigureQuantity):
    """A number that is computed from the text of the figure's only sample."""

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        contents = [one.canonical_content() for one in measured]
        return [content.pop("task") for content in contents], contents

    def text(self, panel: PanelTables) -> str:
        """The whole text of the sample.

        Raises:
            UndecidableError: the figure does not have exactly one sample.
        """
        tables = list(self.tables(panel))
        if len(tables) != 1:
            raise UndecidableError(f"the figure has {len(tables)} samples; exactly one is needed")
        return "".join(tables[0].sort("place")["text"])


def find_pieces(pieces: Iterable[str], text: str) -> list[Span | None]:
    """The first position of each piece after the piece before it.

    A missing piece gives None, and the search for the next piece starts at the same position. `{key}` in a piece
    matches a number; the same name always matches the same number.
    """
    found: list[Span | None] = []
    known: dict[str, str] = {}
    end = 0
    for piece in pieces:
        match = re.compile(_pattern(piece, known)).search(text, end)
        found.append(match.span() if match else None)
        if match:
            known |= match.groupdict()
            end = match.end()
    return found


def _pattern(piece: str, known: dict[str, str]) -> str:
    """A piece as a regular expression, with a group for each number that is not known yet."""
    pattern, named = "", dict(known)
    for number, part in enumerate(PLACEHOLDER.split(piece)):  # text, name, text, name ... text
        if number % 2 == 0:
            pattern += re.escape(part)
        elif part in named:
            pattern += named[part]
        else:
            pattern += rf"(?P<{part}>\d+)"
            named[part] = rf"(?P={part})"
    return pattern
