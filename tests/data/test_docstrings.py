"""The prose of the standard library: it is English without code, and nothing is in it twice."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssm.base.errors import DataError
from ssm.data.build import split_of
from ssm.data.corpora import Document, build_reader, documents
from ssm.data.corpora.docstrings import REPEATED, paragraphs
from ssm.specs.corpora.docstrings import DocstringsCorpus
from ssm.specs.data import DataSpec

DOCSTRING = """Return the sum of all the numbers that are in the list.

    A second paragraph goes over
    two lines, and it says “nothing” of interest.  For example:

        total = add(1, 2) if ready else None

    >>> add([1, 2])
    this is the output of the example, and it is not prose of the text
    ...

    ======  =====
    name    the meaning of it in the table is this
    ======  =====

    * The first item of the list is
      continued on the next line.
    * And the second item is as long as it.
    numbers:
        The list of numbers that is to be added.

    This is free software under the terms of the MIT license, and it is for you.
    Diesen Absatz hat jemand auf Deutsch geschrieben, und so steht er hier.
    """
PROSE = [
    "Return the sum of all the numbers that are in the list.",
    'A second paragraph goes over two lines, and it says "nothing" of interest.',
    "The first item of the list is continued on the next line.",
    "And the second item is as long as it.",
    "The list of numbers that is to be added.",
]


def test_prose_of_a_docstring() -> None:
    assert paragraphs(DOCSTRING) == PROSE


@pytest.mark.parametrize(
    "left_out",
    [
        "Return it.",  # short
        "Return the list of all names that are in the following table:",  # introduces an example
        "Le résultat est the sum of all the numbers that are in the list.",  # not ASCII
        "for x in range(3): y = x[0] if x else the_value(a, b) and z.w()",
        "red green blue yellow black white orange purple",  # words, but no sentence
        "The name of it    and the value of it are in the table.",
        "Copyright of the text is with the authors of it, as it was.",
    ],
)
def test_what_is_no_prose(left_out: str) -> None:
    assert paragraphs(left_out) == []
    assert paragraphs(f"{PROSE[0]}\n\n{left_out}\n\n{PROSE[3]}") == [PROSE[0], PROSE[3]]


ENGLISH = ["the", "of", "is", "a", "and", "to", "value", "list", "Return", "result,", "name.", "it's", "(see)"]
WORDS = st.sampled_from([*ENGLISH, "x=1", ">>>", "...", "foo()", "|", "é", "1)", ":"])
INDENTS = st.sampled_from(["", "    ", "        "])
LINES = st.tuples(INDENTS, st.lists(WORDS, max_size=12).map(" ".join)).map("".join)


@example("0) >>> A A A A A a")  # a doctest in an item
@given(st.one_of(st.text(), st.lists(LINES, max_size=12).map("\n".join)))
def test_paragraphs_of_any_text(text: str) -> None:
    """They are lines of some printable words, in the order of the text; and what is prose stays so."""
    found = paragraphs(text)
    rest = iter(text.split())
    for line in found:
        assert line.isascii()
        assert line.isprintable()
        assert not line.startswith(">>>")
        assert len(line.split()) >= 6
        assert all(word in rest for word in line.split())  # `in` reads on
    if not any(re.match(r"(?:[-*+]|\(?\d+[.)])\s", line) for line in found):  # an item inside an item
        assert paragraphs("\n\n".join(found)) == found


def library(root: Path, sources: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> DocstringsCorpus:
    for name, source in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(root))
    return DocstringsCorpus()


def test_modules_and_topics_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is imported: the first module would end the process."""
    one, two, three, four, five = (f"This is the text of number {n}, and it is short." for n in "abcde")
    sources = {
        "b.py": f"'{one}'\nraise SystemExit\nclass C:\n    '{two}'\n    async def f():\n        '{three}'\n",
        "a/__init__.py": "x = 1\n",
        "pydoc_data/topics.py": f"topics = {{'z': '''{four}''', 'with': '{five} ' 'And so on.'}}\n",
        "test/test_b.py": '"""This text is not read, since it is in a test."""\n',
        "b/tests/more.py": '"""This text is not read, since it is in a test."""\n',
        "idlelib/run.py": '"""This text is not read, since it is often not installed."""\n',
    }
    spec = library(tmp_path, sources, monkeypatch)
    found = list(documents(spec))
    assert [(one.name, one.text.decode()) for one in found] == [
        ("b.py", f"{one}\n{two}\n{three}\n"),
        ("pydoc_data/topics.py:with", f"{five} And so on.\n"),
        ("pydoc_data/topics.py:z", f"{four}\n"),
    ]
    read = ("b.py", "a/__init__.py", "pydoc_data/topics.py")
    assert (
        sum(one.stored for one in found)
        == build_reader(spec).stored_bytes()
        == sum(len(sources[name]) for name in read)
    )


def test_a_short_paragraph_may_be_part_of_a_longer_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The description of the corpus says so. With ten words it is left out."""
    nine, ten = "This is the sum of all that it has.", "This is the sum of all that it now has."
    longer = [f"{start}: {text[:-1]}, and it is so." for start, text in (("It says", nine), ("So", ten))]
    sources = {"a.py": f'"""{longer[0]}"""', "b.py": f'"""{longer[1]}"""', "c.py": f'"""{nine}\n\n{ten}"""'}
    found = [one.text.decode() for one in documents(library(tmp_path, sources, monkeypatch))]
    assert found == [*(f"{one}\n" for one in longer), f"{nine}\n"]


def repeated(found: list[Document]) -> list[str]:
    """Paragraphs and runs of REPEATED words that more than one document has, in lower case."""
    owner, twice = dict[str, str](), []
    for document in found:
        for line in document.text.decode().lower().splitlines():
            words = re.sub("[^a-z]+", " ", line).split()
            for run in (words[at : at + REPEATED] for at in range(max(1, len(words) - REPEATED + 1))):
                if owner.setdefault(" ".join(run), document.name) != document.name:
                    twice.append(" ".join(run))
    return twice


POOL = [f"Return the {noun} of the value, if it is {adjective}." for noun in ("name", "size") for adjective in "abc"]
LONGER = [f"This is how the function that is called next will {verb} the rest of it." for verb in ("read", "write")]


@given(st.lists(st.lists(st.sampled_from(POOL + LONGER), min_size=1, max_size=4), min_size=1, max_size=5))
def test_nothing_is_in_two_documents(tmp_path_factory: pytest.TempPathFactory, modules: list[list[str]]) -> None:
    root = tmp_path_factory.mktemp("library")
    sources = {f"{n}.py": '"""' + "\n\n".join(texts) + '"""\n' for n, texts in enumerate(modules)}
    with pytest.MonkeyPatch.context() as patch:
        found = list(documents(library(root, sources, patch)))
    assert found[0].text.decode().startswith(modules[0][0])
    assert not repeated(found)
    assert {line for one in found for line in one.text.decode().splitlines()} <= {*POOL, *LONGER}


def test_a_file_that_is_not_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for source, said in (("x = (", "was never closed"), ("\0", "null bytes")):
        spec = library(tmp_path, {"a.py": source}, monkeypatch)
        with pytest.raises(
            DataError, match=rf"a\.py: this file of the standard library is not Python \(.*{said}"
        ) as caught:
            list(documents(spec))
        assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def running() -> list[Document]:
    """The corpus of the running Python."""
    return list(documents(DocstringsCorpus()))


def test_the_running_python_has_prose_to_train_on(running: list[Document]) -> None:
    assert [one.name for one in running] == sorted(one.name for one in running)
    assert {"argparse.py", "pydoc_data/topics.py:compound"} <= {one.name for one in running}
    text = b"".join(one.text for one in running)
    assert len(text) > 900_000
    words = re.findall(rb"\S+", text)
    letters = sum(
        re.fullmatch(rb"""["'(`*]*[A-Za-z]+(?:['/-][A-Za-z]+)*["')`*.,:;!?]*""", word) is not None for word in words
    )
    assert letters > 0.95 * len(words)
    assert 0.07 < sum(word in (b"the", b"The") for word in words) / len(words) < 0.12  # 6% in most English texts
    for code in (b">>>", b"\n    ", b"def ", b"import *", b"::="):
        assert text.count(code) < 30, code


def test_no_docstring_of_the_running_python_is_in_two_splits(running: list[Document]) -> None:
    data = DataSpec(name="prose", corpus=DocstringsCorpus(), held_out=0.2, choice=0.1)
    assert {split_of(data, index) for index in range(len(running))} == {"train", "held_out", "choice"}
    assert not repeated(running)
