"""Needles: the question asks for a false statement, which is at its depth in a text of the right split."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from data.tasks.test_prompts import with_a_space_in_front
from small import make_task

from ssm.base.errors import ConfigError, DataError
from ssm.data.batches import IGNORE_INDEX
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator
from ssm.data.tasks.needle import Needle
from ssm.data.tasks.statements import FORMS, INSTRUCTION
from ssm.data.tokenizers import ByteTokenizer
from ssm.specs.tasks import parse_data
from ssm.specs.tasks.needle import LONGEST, RELATIONS

RELATED = {
    "capital": (r"The capital of (.+) is (\w+)\.", "What is the capital of {}? The capital of {} is"),
    "young": (
        r"The young of a (.+) is called a (\w+)\.",
        "What is the young of a {} called? The young of a {} is called a",
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Documents that repeat one word each, so that a text shows its document."""
    folder = tmp_path_factory.mktemp("needles")
    (folder / "texts").mkdir()
    for number in range(12):
        (folder / "texts" / f"{number:02}.txt").write_text(f"word{number:02} goes on. And on!\n" * 60)
    corpus = {"kind": "files", "paths": [str(folder / "texts")]}
    mix = [{"length": 420, "relations": ["capital", "young"]}]
    return make_task(folder / "tokens", task="needle", corpus=corpus, held_out=0.4, mix=mix)


def needles(store: TokenStore, split: str = "test", **changes: object) -> Needle:
    spec = store.spec
    task = parse_data(spec.content() | changes, "test")
    generator = build_generator(task, split, 3, store)  # type: ignore[arg-type]
    assert isinstance(generator, Needle)
    return generator


def at_depth(depth: float, length: int = 420, **changes: object) -> dict[str, object]:
    return {"mix": [{"length": length, "relations": ["capital", "young"], "depths": [depth, depth]}], **changes}


def test_generators_of_one_store_read_its_vocabulary_once(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, decoded, decode = TokenStore.open(store.folder), [], ByteTokenizer.decode

    def noted(self: ByteTokenizer, tokens: np.ndarray) -> str:
        if len(tokens) == 1:
            decoded.append(int(tokens[0]))
        return decode(self, tokens)

    monkeypatch.setattr(ByteTokenizer, "decode", noted)
    made = [needles(opened, **at_depth(depth)).make(np.arange(3)).inputs for depth in (0.0, 1.0)]
    assert decoded == list(range(256))
    assert (made[0] != made[1]).any()


def test_the_statement_is_false_and_the_question_asks_for_it(store: TokenStore) -> None:
    generator = needles(store)
    made = generator.make(np.arange(80))
    decode, pairs = generator.tokenizer.decode, set()
    for row in range(80):
        start, stop, group = (int(getattr(made.answers, name)[row]) for name in ("start", "stop", "group"))
        statement, asked = RELATED[RELATIONS[group]]
        text = decode(made.tokens[row, : stop + 1])
        told = re.findall(statement + r"\n", text)
        assert len(told) == 1, "once, on its own line"
        subject, answer = told[0]
        world = FORMS[RELATIONS[group]].objects
        assert answer != world[subject]
        assert answer in world.values()
        assert text.endswith(f" {INSTRUCTION} {asked.format(subject, subject)} {answer}.")
        assert decode(made.tokens[row, start + 1 : stop + 1]) == f" {answer}."
        assert start == 420 - generator.room - 1, "all prompts have the same length"
        others = [decode(one[one != IGNORE_INDEX]) for one in made.answers.alternatives[row]]
        assert others[0] == f" {world[subject]}.", "the first alternative is true"
        assert len({*others, f" {answer}."}) == 5
        assert {other.strip(" .") for other in others} <= set(world.values())
        pairs.add((subject, answer))
    assert len(pairs) > 50
    assert len({RELATIONS[group] for group in made.answers.group}) == 2


def test_all_wrong_objects_are_equally_frequent(store: TokenStore) -> None:
    """The subject does not predict the object: a model that knows only the lists is right once in eleven times."""
    generator = needles(store, mix=[{"length": 300, "relations": ["capital"]}], instruction=False)
    made = generator.make(np.arange(1500))
    texts = [generator.tokenizer.decode(tokens) for tokens in made.tokens]
    found = [re.search(r"capital of (\w+) is (\w+)\.\n", text) for text in texts]
    counts = np.unique([match[2] for match in found if match], return_counts=True)[1]
    assert len(counts) == 12
    assert counts.min() > 80
    of_france = {match[2] for match in found if match and match[1] == "France"}
    assert len(of_france) == 11
    assert "Paris" not in of_france


def test_the_statement_is_at_its_depth_between_two_sentences(store: TokenStore) -> None:
    for depth in (0.0, 0.3, 1.0):
        generator = needles(store, **at_depth(depth))
        for index in range(6):
            pieces = {name: generator.tokenizer.decode(piece) for name, piece in generator.pieces(index)}
            before, behind = (pieces.get(f"text {where}", "") for where in ("before", "behind"))
            text = before + behind
            borders = [0, *(match.end() for match in re.finditer(r"[.!](?=\s)|\n", text)), len(text)]
            assert abs(len(before) - depth * len(text)) == min(abs(border - depth * len(text)) for border in borders)
            assert not before or before[-1] in ".!\n"
            assert not behind or depth == 0 or behind[0] in " w\n"
            assert text[-1] in ".!\n", "only the beginning of the text is cut"
        assert generator.make(np.arange(3)).answers.difficulty.tolist() == [depth] * 3
        if depth in (0.0, 1.0):
            assert ("text before" in pieces, "text behind" in pieces) == (depth == 1, depth == 0)


def test_an_example_hides_the_same_statement_at_every_depth(store: TokenStore) -> None:
    """Depths and lengths can therefore be compared in pairs."""
    found = []
    for depth, length in ((0.0, 420), (1.0, 420), (1.0, 700)):
        pieces = needles(store, **at_depth(depth, length)).pieces(7)
        text = [token for name, piece in pieces if name.startswith("text") for token in piece]
        found.append((dict(pieces)["statement"].tolist(), text))
    assert found[0] == found[1]
    (told, short), (again, long) = found[1:]
    assert told == again
    assert any(long[at : at + 100] == short[40:140] for at in range(100)), "the same text, cut differently"


def test_text_comes_only_from_the_split(store: TokenStore) -> None:
    """Each word shows its document."""
    words = {}
    for split in ("train", "test"):
        generator = needles(store, split)
        texts = [generator.tokenizer.decode(tokens) for tokens in generator.make(np.arange(150)).tokens]
        words[split] = {word for text in texts for word in re.findall(r"word\d\d", text)}
    assert not words["train"] & words["test"]
    assert len(words["train"] | words["test"]) == 12


def test_every_statement_fits_into_the_shortest_prompt(store: TokenStore) -> None:
    for instruction in (True, False):
        shortest = needles(store, instruction=instruction).shortest
        needles(store, **at_depth(0.5, shortest, instruction=instruction)).make(np.arange(300))
        with pytest.raises(
            DataError, match=rf"^length {shortest - 1}: too short for a needle, which needs {shortest} "
        ):
            needles(store, **at_depth(0.5, shortest - 1, instruction=instruction))
    answers = [f" {one}." for form in FORMS.values() for one in form.objects.values()]
    assert max(map(len, answers)) == LONGEST


def test_all_objects_of_a_relation_differ() -> None:
    """Otherwise a statement about another subject could be true."""
    for form in FORMS.values():
        assert len(set(form.objects.values())) == len(form.objects)
        assert len(form.objects) > 10, "the most alternatives, and the true one"


def test_other_tokenizers(store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tokenizer adds a space at the start of every text; another one has no letters."""
    texts = ["word0123456789 goes on. And on!\n", INSTRUCTION]
    for form in FORMS.values():
        texts += [f"{form.question} {form.statement} {one}. {subject}" for subject, one in form.objects.items()]
    tokenizer = with_a_space_in_front(text.encode() for text in texts)
    (tmp_path / "tokenizer.json").write_text(tokenizer.json)
    spelled = {"kind": "file", "path": str(tmp_path / "tokenizer.json"), "vocab_size": tokenizer.vocab_size}
    content = store.spec.content() | {"tokenizer": spelled}
    generator = needles(make_task(tmp_path / "tokens", **{key: content[key] for key in content if key != "name"}))
    decode = generator.tokenizer.decode
    for index in range(10):
        pieces = dict(generator.pieces(index))
        text = decode(np.concatenate(list(pieces.values())))
        assert re.search(r" The (capital|young) of \D+ (is|called a) (\w+)\.\n.* \3\.$", text, re.DOTALL), text
        assert "  " not in text
    monkeypatch.setattr(TokenStore, "tokenizer", lambda store: with_a_space_in_front(iter([b"0123456789"])))
    with pytest.raises(DataError, match=r"^the tokenizer cannot represent the answer 'Paris\.': it gives"):
        needles(store)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"corpus": None}, "corpus: "),
        ({"alternatives": 11}, "alternatives: expected a number up to 10, got 11"),
        ({"mix": [{"length": 9, "relations": ["capitol"]}]}, "unknown name 'capitol'; did you mean 'capital'"),
        ({"mix": [{"length": 9, "depths": [1, 0]}]}, "depths must ascend"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, object], said: str, store: TokenStore) -> None:
    with pytest.raises(ConfigError, match=said):
        needles(store, **changes)
