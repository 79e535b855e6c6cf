"""Prose: its words, and the sentences that are too long to be read once.

    python tests/words.py README.md docs ssm config/figures

prints the number of words and the share of sentences above 25 words, and names the longest sentences. It reads Markdown
without its code blocks; the docstrings, comments and messages of Python files; the texts and comments of YAML files. A
span of code counts as one word. A cell of a table, a list item and a heading each begin a new sentence. In a help text,
two spaces separate the cells of a table, and the indented lines below "examples:" are code.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path

import yaml

LONGEST = 25  # words of a sentence
KINDS = (".md", ".py", ".yaml")
BLOCK = re.compile(r"^( *)(```|~~~).*?^ *\2 *$", re.M | re.S)
EXAMPLES = re.compile(r"^( *)examples?:\n(?:\1 +.*(?:\n|\Z)|\s*\n)*", re.M)
CELLS = re.compile(r"(?<=\S) {2,}(?=\S)")
COMMENT = re.compile(r"<!--.*?-->|<[^>\n]*>", re.S)
NEW = re.compile(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+")  # a list item, a heading or a quotation
END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[\W_]*[A-Z0-9`])")

MESSAGE = re.compile(r"(?:[A-Za-z]{2,}[,;:]? ){3}")  # a string with three words in a row is meant for people
ARGUMENT = re.compile(r"^ *[\w *,]+: ", re.M)  # "name: what it is" in a docstring


def prose(markdown: str) -> list[str]:
    """The units of text in which sentences stand: paragraphs, list items, cells and headings."""
    text = COMMENT.sub("", EXAMPLES.sub("\n", BLOCK.sub("", markdown)))
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
        elif len(cells := CELLS.split(line.strip())) > 1:
            units += cells
            fresh = False
        elif fresh or NEW.match(line) or (units[-1].endswith(":") and line.startswith(" ")):
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


def markdown_of(path: Path) -> str:
    """What people read of a file, as Markdown: a paragraph for each docstring, block of comments, message and text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return "\n\n".join([*comments(path), *strings(ast.parse(text))])
    if path.suffix == ".yaml":
        values = [node.value for node in _scalars(yaml.compose(text)) if MESSAGE.search(node.value)]
        blocks = re.findall(r"^ *#.*(?:\n *#.*)*|(?<=\S) #.*", text, re.M)
        return "\n\n".join([*values, *(re.sub(r"^ *# ?", "", block, flags=re.M) for block in blocks)])
    return text


def comments(path: Path) -> Iterator[str]:
    """The comments of a Python file; those of consecutive lines are one."""
    with tokenize.open(path) as file:
        found = [one for one in tokenize.generate_tokens(file.readline) if one.type == tokenize.COMMENT]
    before = None
    lines: list[str] = []
    for one in found:
        alone = not one.line[: one.start[1]].strip()
        if lines and not (alone and before == (one.start[0] - 1, one.start[1])):
            yield " ".join(lines)
            lines = []
        lines.append(one.string.lstrip("# "))
        before = one.start
    if lines:
        yield " ".join(lines)


def strings(tree: ast.Module) -> Iterator[str]:
    """The docstrings and messages of a Python file."""
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            docstrings.add(node.body[0].value)  # type: ignore[attr-defined]
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if node in docstrings:
            yield ARGUMENT.sub("- ", cleandoc(node.value).replace("::\n", ":\n"))
        elif isinstance(node, ast.JoinedStr):
            text = "".join(one.value if isinstance(one, ast.Constant) else "X" for one in node.values)
            if MESSAGE.search(text):
                yield text
        elif isinstance(node, ast.Constant) and node not in inside and MESSAGE.search(str(node.value)):
            yield str(node.value)


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _scalars(one)
    elif isinstance(node, yaml.MappingNode):
        for _, one in node.value:
            yield from _scalars(one)


def pages(paths: Iterable[Path]) -> list[Path]:
    """The files that hold prose among the paths and in the folders among them."""
    return [
        page
        for path in paths
        for page in (sorted(one for kind in KINDS for one in path.rglob(f"*{kind}")) if path.is_dir() else [path])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="the longest sentences (default: 5)")
    args = parser.parse_args()
    found = [sentence for page in pages(args.paths) for sentence in sentences(markdown_of(page))]
    long = sorted((one for one in found if words(one) > LONGEST), key=words, reverse=True)
    share = len(long) / max(1, len(found))
    print(f"{sum(map(words, found)):,} words, {len(found):,} sentences, {share:.1%} above {LONGEST} words")
    for sentence in long[: args.show]:
        print(f"  {words(sentence)}: {sentence[:200]}")


if __name__ == "__main__":
    main()
