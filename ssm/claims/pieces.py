"""Quantities of a sample: its text, and where pieces stand in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import StringConstraints

from ssm.claims.estimate import UndecidableError
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import FigureQuantity
from ssm.specs.base import Spec

# Text that is looked for as it is; `{key}` in it is a number, the same one wherever it bears that name.
Piece = Annotated[str, StringConstraints(min_length=1)]
Span = tuple[int, int]  # from its first letter to behind its last
PLACEHOLDER = re.compile(r"\{(\w+)\}")


class SampleQuantity(FigureQuantity):
    """A number of the text of the figure's one sample."""

    def decided_by(self, measured: Sequence[Spec]) -> tuple[list[Any], list[Any]]:
        contents = [one.canonical_content() for one in measured]
        return [content.pop("task") for content in contents], contents

    def text(self, panel: PanelTables) -> str:
        """All of its pieces, one behind the other.

        Raises:
            UndecidableError: the figure has none, or several.
        """
        tables = list(self.tables(panel))
        if len(tables) != 1:
            raise UndecidableError(f"the figure has {len(tables)} samples, one is read")
        return "".join(tables[0].sort("place")["text"])


def find_pieces(pieces: Iterable[str], text: str) -> list[Span | None]:
    """Where each piece stands first behind those before it; None: nowhere, and the next may stand in its place.

    `{key}` in a piece is a number. It is the same wherever the name is.
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
    """A piece as a regular expression, with a group where a number is not known yet."""
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
