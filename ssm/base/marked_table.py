"""Replace a table between two marks of a Markdown file."""

from __future__ import annotations

from ssm.base.errors import TableError


def with_table(text: str, table: str, start: str, end: str, source: str) -> str:
    """The text with `table` between its marks.

    Args:
        start, end: the lines before and after the table. They stay.
        source: name of the file, for the error.

    Raises:
        TableError: the marks are missing or are not unique.
    """
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise TableError(f"{source}: expected one line '{start}' and after it one line '{end}'")
    return f"{text[: text.index(start)]}{start}\n\n{table}\n\n{text[text.index(end) :]}"
