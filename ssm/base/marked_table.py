"""A table in a Markdown file, between two marks."""

from __future__ import annotations

from ssm.base.errors import TableError


def with_table(text: str, table: str, start: str, end: str, source: str) -> str:
    """A file's text with the table between its marks.

    Args:
        start, end: the lines before and behind the table; they stay.
        source: the file, for the error.

    Raises:
        TableError: the text has no such place, or several.
    """
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise TableError(f"{source}: expected one line '{start}' and after it one line '{end}'")
    return f"{text[: text.index(start)]}{start}\n\n{table}\n\n{text[text.index(end) :]}"
