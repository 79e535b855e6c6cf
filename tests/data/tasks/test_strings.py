"""String tasks in the format of Jelassi et al. (2024), checked from the tokens only, with the masks of their code."""

from __future__ import annotations

import re
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssm.data.tasks import build_generator
from ssm.data.tasks.base import Examples
from ssm.specs.tasks import parse_data

TASKS = ("copy", "stack_copy", "sort")
ANSWERS = {"copy": lambda read: read, "stack_copy": lambda read: read[::-1], "sort": lambda read: "".join(sorted(read))}


def made(count: int, task: str = "copy", seed: int = 0, **content: object) -> tuple[Examples, list[str]]:
    """Examples, and their tokens as text: letters, then $ | . * for the symbols."""
    alphabet = int(str(content.setdefault("alphabet", 26)))
    spec = parse_data({"name": "x", "task": task} | content, "test")
    examples = build_generator(spec, "train", seed, None).make(np.arange(count))  # type: ignore[arg-type]
    symbols = string.ascii_lowercase[:alphabet] + "$|.*"
    return examples, ["".join(symbols[token] for token in row) for row in examples.tokens.tolist()]


@settings(max_examples=60)
@given(st.sampled_from(TASKS), st.integers(1, 12), st.integers(0, 8), st.integers(1, 26), st.integers(0, 2**31))
def test_one_string_and_its_answer(task: str, shortest: int, more: int, alphabet: int, seed: int) -> None:
    mix = [{"shortest": shortest, "longest": shortest + more}]
    alphabet = max(alphabet, shortest + more) if task == "sort" else alphabet
    examples, texts = made(20, task, seed, alphabet=alphabet, mix=mix)
    for row, text in enumerate(texts):
        found = re.fullmatch(r"\$([a-z]+)\|([a-z]+)\.(\**)", text)
        assert found, text
        letters, answer = found[1], found[2]
        assert answer == ANSWERS[task](letters)
        assert task != "sort" or len(set(letters)) == len(letters), "all letters differ"
        assert shortest <= len(letters) <= shortest + more
        assert len(text) == 2 * (shortest + more) + 3
        asked = "".join(text[place + 1] for place in np.nonzero(examples.target_mask[row])[0])
        assert asked == answer + "."
        start, stop = examples.answers.start[row], examples.answers.stop[row]
        assert text[start + 1 : stop + 1] == answer
        assert text[start] == "|"
        assert examples.answers.length[row] == len(letters)
    if more and shortest > 1:
        assert len({text.index("|") for text in texts}) > 1
    if alphabet == 26 and shortest > 4:
        assert len(set(texts)) == len(texts)


def masks(text: str) -> list[int]:
    """Which tokens of a packed sequence count: those after the bar of every complete string."""
    found: list[int] = []
    for piece in re.findall(r"\$[^$]*", text):
        whole = piece.endswith(".")
        bar = piece.find("|")
        found += [int(whole and place > bar) for place in range(len(piece))]
    return found


@settings(max_examples=60)
@given(st.sampled_from(TASKS), st.integers(1, 9), st.integers(0, 5), st.integers(0, 40), st.integers(0, 2**31))
def test_packed_sequences_are_full_of_strings(task: str, shortest: int, more: int, room: int, seed: int) -> None:
    packed = 2 * (shortest + more) + 3 + room
    mix = [{"shortest": shortest, "longest": shortest + more}]
    examples, texts = made(12, task, seed, packed=packed, mix=mix)
    for row, text in enumerate(texts):
        assert len(text) == packed
        assert "*" not in text
        pieces = re.findall(r"\$([a-z]*)(\|?)([a-z]*)(\.?)", text)
        assert "".join(map("".join, (("$", *piece) for piece in pieces))) == text
        for letters, bar, answer, end in pieces[:-1]:
            assert (bar, answer, end) == ("|", ANSWERS[task](letters), ".")
        letters, _, answer, end = pieces[-1]
        assert ANSWERS[task](letters).startswith(answer)
        assert examples.target_mask[row].tolist() == masks(text)[1:]
        mine = examples.answers.example == row
        whole = [piece[2] for piece in pieces if piece[3]]
        starts, stops = examples.answers.start[mine], examples.answers.stop[mine]
        assert [text[a + 1 : b + 1] for a, b in zip(starts, stops, strict=True)] == whole


@pytest.mark.parametrize("task", TASKS)
def test_letters_may_start_at_any_token(task: str) -> None:
    """The same strings: from token 97 on they are the bytes a to z and { | } ~."""
    content = {"name": "x", "task": task, "alphabet": 26, "mix": [{"shortest": 3, "longest": 5}]}
    plain, text = (parse_data(content | more, "test") for more in ({}, {"first": 97, "rows": 256}))
    one, other = (build_generator(spec, "train", 1, None).make(np.arange(9)) for spec in (plain, text))  # type: ignore[arg-type]
    np.testing.assert_array_equal(other.tokens, one.tokens + 97)
    np.testing.assert_array_equal(other.target_mask, one.target_mask)
    assert re.fullmatch(r"\{([a-z]{3,5})\|([a-z]{3,5})\}~*", bytes(other.tokens[0].tolist()).decode())
    assert (text.vocab_size, parse_data(content | {"first": 97}, "test").vocab_size) == (256, 127)
    assert "first" not in plain.content()


def test_a_string_that_just_fits_counts() -> None:
    examples, texts = made(1, packed=18, mix=[{"shortest": 3, "longest": 3}])
    assert texts[0].count(".") == 2
    assert examples.target_mask.sum() == 8


@pytest.mark.parametrize(("task", "seen"), [("copy", 1 - np.exp(-1)), ("stack_copy", 1 - np.exp(-1)), ("sort", 0.634)])
def test_letters_of_large_alphabets(task: str, seen: float) -> None:
    """All letters are equally likely: 100 strings of 50 letters show the expected share of 5,000 letters."""
    spec = parse_data(
        {"name": "x", "task": task, "alphabet": 5000, "rows": 6000, "mix": [{"shortest": 50, "longest": 50}]}, "test"
    )
    assert spec.vocab_size == 6000
    tokens = build_generator(spec, "train", 0, None).make(np.arange(100)).tokens  # type: ignore[arg-type]
    read = tokens[:, 1:51]
    assert len(np.unique(read)) == pytest.approx(5000 * seen, rel=0.05)
    assert read[:, :25].mean() == pytest.approx(read[:, 25:].mean(), rel=0.1)
    assert tokens[0, [0, 51, 102]].tolist() == [5000, 5001, 5002]
