"""English prose of the running Python's standard library: docstrings of its modules, and the topics of `help()`.

Files are parsed and never imported. A module is a document, and so is a topic. A line is a paragraph. Code examples,
tables, licenses and what is not English are left out. No two paragraphs have ten consecutive words in common. But a
paragraph of six to nine words can be part of a longer paragraph of another document, and so of another split.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from ssm.base.errors import DataError, first_line
from ssm.data.corpora.base import CorpusReader, Document
from ssm.data.corpora.stdlib import INSTALLED, library_files, library_folder
from ssm.specs.corpora.docstrings import DocstringsCorpus

TESTS = {"test", "tests"}
# Debian and others ship these separately. The text and its splits do not depend on whether they are installed.
SEPARATE = {"distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo", "venv"}
TOPICS = "pydoc_data/topics.py"

REPEATED = 10  # consecutive words that a text has only once
LEAST_WORDS = 6  # of a paragraph
LEAST_PLAIN = 0.8  # share of words that have only letters
LEAST_FUNCTION = 0.2  # share of function words; it is about 0.4 in English, and 0 in lists of names
FUNCTION_WORDS = re.compile(
    r"a|an|and|are|as|at|be|been|but|by|can|do|does|for|from|has|have|if|in|into|is|it|its|may|must|not|of|on|only|or|"
    r"other|should|so|such|than|that|the|their|then|there|these|they|this|to|use|used|was|when|where|which|will|with|"
    r"would|you"
)
LEGAL = re.compile(r"copyright|licen[cs]e|warrant|redistribut", re.IGNORECASE)
ITEM = re.compile(r"(?:[-*+]|\(?\d+[.)])\s+")
INTRODUCTION = re.compile(r"(?:^|(?<=[.!?])\s+)[^.!?]*:$")
TABLE = re.compile(r"\S {3,}\S")
PLAIN = re.compile(r"""["'(`*]*[A-Za-z]+(?:['/-][A-Za-z]+)*["')`*.,:;!?]*""")
ASCII = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "--", "…": "..."})


class DocstringsReader(CorpusReader, kind="docstrings"):
    """The prose of every module and topic, sorted by name. What an earlier document says is not repeated."""

    spec: DocstringsCorpus

    def documents(self) -> Iterator[Document]:
        root, seen, stored = library_folder(), set[tuple[str, ...]](), 0
        for file, size in _files(root):
            stored += size
            for name, texts in _texts(root, file):
                prose = [line for text in texts for line in paragraphs(text) if _is_new(line, seen)]
                if prose:
                    yield Document(name, "".join(f"{line}\n" for line in prose).encode("ascii"), stored)
                    stored = 0

    def stored_bytes(self) -> int:
        return sum(size for _, size in _files(library_folder()))


def paragraphs(text: str) -> list[str]:
    """The paragraphs of English prose in a docstring, each as one line of ASCII.

    A paragraph is left out if it is short, legal, part of an example or a table, or has few words of English. So is a
    last sentence that ends with a colon, because it introduces an example.
    """
    lines = (INTRODUCTION.sub("", line) for line in _joined(cleandoc(text.translate(ASCII))))
    return [line for line in lines if _is_prose(line)]


def _joined(text: str) -> Iterator[str]:
    """Paragraphs and list items as single lines, without the lines of doctests."""
    lines, doctest, before = list[str](), False, 0
    for raw in [*text.splitlines(), ""]:
        line, indent = raw.strip(), len(raw) - len(raw.lstrip())
        item = ITEM.match(line)
        words = line[item.end() :] if item else line
        doctest = bool(line) and (doctest or words.startswith(">>>"))
        deeper = indent > before and bool(lines) and lines[-1].endswith(":")
        underline = not any(letter.isalnum() for letter in line)  # also an empty line
        if lines and (doctest or underline or item or deeper or indent < before):
            yield " ".join(lines)
            lines = []
        if not doctest and not underline:
            lines.append(words)
        before = indent


def _is_prose(line: str) -> bool:
    words = line.split()
    if len(words) < LEAST_WORDS or LEGAL.search(line) or TABLE.search(line):
        return False
    if not (line.isascii() and line.isprintable()):
        return False
    plain = sum(PLAIN.fullmatch(word) is not None for word in words)
    function = sum(FUNCTION_WORDS.fullmatch(word) is not None for word in _letters(line))
    return plain >= LEAST_PLAIN * len(words) and function >= LEAST_FUNCTION * len(words)


def _is_new(line: str, seen: set[tuple[str, ...]]) -> bool:
    """Whether no REPEATED consecutive words were seen before (or all words of a shorter line); they are then added."""
    words = _letters(line)
    runs = {tuple(words[start : start + REPEATED]) for start in range(max(1, len(words) - REPEATED + 1))}
    new = seen.isdisjoint(runs)
    if new:
        seen |= runs
    return new


def _letters(line: str) -> list[str]:
    return re.findall("[a-z]+", line.lower())


def _files(root: Path) -> list[tuple[str, int]]:
    return library_files(root, without=INSTALLED | TESTS | SEPARATE)


def _texts(root: Path, file: str) -> Iterator[tuple[str, list[str]]]:
    """(name, docstrings) of the documents of a file: the module, or each topic."""
    tree = _parsed(root / file)
    if file == TOPICS:
        topics = next((node.value for node in tree.body if isinstance(node, ast.Assign)), None)
        found = ast.literal_eval(topics) if isinstance(topics, ast.Dict) else {}
        for name, text in sorted(found.items()):
            yield f"{file}:{name}", [text]
    else:
        yield file, list(_docstrings(tree))


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Docstrings in the order of the source."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node, clean=False)
        if text is not None:
            yield text
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):  # has no definitions, and is most of the tree
            yield from _docstrings(child)


def _parsed(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the syntax of files that are not ours
            return ast.parse(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{path}: this file of the standard library is not Python ({first_line(error)})") from error
