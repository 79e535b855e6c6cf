"""Prose of Markdown files: its words, and the sentences that are too long to be read once.

    python tests/words.py README.md docs

prints the number of words and the share of sentences above 25 words, and names the longest sentences. Code blocks are
left out. A span of code counts as one word; a cell of a table, a list item and a heading each begin a new sentence.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

LONGEST = 25  # words of a sentence
BLOCK = re.compile(r"^( *)(```|~~~).*?^ *\2 *$", re.M | re.S)
COMMENT = re.compile(r"<!--.*?-->|<[^>\n]*>", re.S)
NEW = re.compile(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+")  # a list item, a heading or a quotation
END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[\W_]*[A-Z0-9`])")


def prose(markdown: str) -> list[str]:
    """The units of text in which sentences stand: paragraphs, list items, cells and headings."""
    text = COMMENT.sub("", BLOCK.sub("", markdown))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)  # the words of a link
    text = re.sub(r"`[^`]*`", "CODE", text)
    units: list[str] = []
    fresh = True
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            units += [cell for cell in cells if re.search(r"\w", cell)]
            fresh = True
        elif not line.strip():
            fresh = True
        elif fresh or NEW.match(line):
            units.append(NEW.sub("", line).strip())
            fresh = line.lstrip().startswith("#")
        else:
            units[-1] += f" {line.strip()}"
    return units


def sentences(markdown: str) -> list[str]:
    """All sentences of a Markdown text."""
    return [sentence for unit in prose(markdown) for sentence in END.split(unit) if re.search(r"\w", sentence)]


def words(sentence: str) -> int:
    """How many words a sentence has."""
    return len(re.findall(r"[^\W_][\w'’.,/%-]*", sentence))


def pages(paths: Iterable[Path]) -> list[Path]:
    """The Markdown files among the paths and in the folders among them."""
    return [page for path in paths for page in (sorted(path.rglob("*.md")) if path.is_dir() else [path])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="the longest sentences (default: 5)")
    args = parser.parse_args()
    found = [sentence for page in pages(args.paths) for sentence in sentences(page.read_text(encoding="utf-8"))]
    long = sorted((one for one in found if words(one) > LONGEST), key=words, reverse=True)
    share = len(long) / max(1, len(found))
    print(f"{sum(map(words, found)):,} words, {len(found):,} sentences, {share:.1%} above {LONGEST} words")
    for sentence in long[: args.show]:
        print(f"  {words(sentence)}: {sentence[:200]}")


if __name__ == "__main__":
    main()
