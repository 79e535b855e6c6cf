"""Facts in a long text, by BABILong's rule, in the tokens of several tokenizers; and published prompts."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from data.tasks.examples import QUESTIONS
from data.tasks.test_stories import SAMPLE, Reader
from small import make_task

from ssm.base.errors import ConfigError, DataError
from ssm.data.store import TokenSplit, TokenStore
from ssm.data.tasks.facts import Facts
from ssm.data.tasks.published import read_babi
from ssm.data.tasks.sentences import Sentences
from ssm.data.tokenizers import ByteTokenizer
from ssm.plan.sources import source_files
from ssm.specs.tasks import parse_data
from ssm.specs.tasks.facts import FEWEST, published_name

FACT = r"(?:Mary|John|Sandra|Daniel) (?:went|went back|journeyed|travelled|moved) to the \w+\."
MIX = [{"length": 600, "questions": ["qa1"], "facts": [3, 5]}]


def sentence(document: int, number: int) -> str:
    return f"Of document {document:02} this is sentence {number:03}{'!' if number % 5 == 0 else '.'}"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of numbered sentences, separated by lines and short sentences."""
    folder = tmp_path_factory.mktemp("texts")
    for document in range(10):
        pieces = [
            sentence(document, number) + (" No. " if number % 3 == 0 else "\n" if number % 3 == 1 else " ")
            for number in range(60)
        ]
        (folder / f"{document}.txt").write_text("".join(pieces))
    return folder


def facts_store(texts: Path, folder: Path, **changes: object) -> TokenStore:
    corpus = {"kind": "files", "paths": [str(texts)]}
    return make_task(folder, **{"task": "facts", "corpus": corpus, "held_out": 0.3, "mix": MIX} | changes)


def prompts(store: TokenStore, count: int = 20, split: str = "train") -> list[str]:
    """The examples as text, up to the end of their answers."""
    generator = Facts(store.spec, split, 1, store)  # type: ignore[arg-type]
    examples = generator.make(np.arange(count))
    stops = examples.answers.stop
    return [store.tokenizer().decode(row[: stop + 1]) for row, stop in zip(examples.tokens, stops, strict=True)]


@pytest.mark.parametrize("tokenizer", [{"kind": "bytes"}, {"kind": "bpe", "vocab_size": 400}], ids=["bytes", "bpe"])
def test_the_facts_of_a_story_are_between_whole_sentences_in_order(
    tokenizer: dict[str, object], texts: Path, tmp_path: Path
) -> None:
    length = 600 if tokenizer["kind"] == "bytes" else 250
    mix, least = [MIX[0] | {"length": length}], 10 if tokenizer["kind"] == "bytes" else 5
    store = facts_store(texts, tmp_path / "x", tokenizer=tokenizer, mix=mix, least_sentence=least)
    generator = Facts(store.spec, "train", 1, store)
    examples = generator.make(np.arange(30))
    slots = Counter()
    for row, text in enumerate(prompts(store, 30)):
        told = re.findall(FACT, text)
        assert len(told) == examples.answers.difficulty[row]
        found = re.search(r" (Where is \w+\?) (\w+)\.$", text)
        assert found, text
        assert Reader(tuple(told)).answer(found[1]) == found[2]
        around = re.split(f" {FACT}", text[: found.start()])
        assert not re.search("No\\.$|^ No\\.", text), "short sentences are skipped"
        numbers = [(int(a), int(b)) for a, b in re.findall(r"document (\d+) this is sentence (\d+)[.!]", text)]
        assert len(numbers) >= 3
        for (document, number), (next_document, next_number) in pairwise(numbers):
            assert next_number == number + 1 or (next_document != document and next_number == 0)
        pieces = [piece.strip() for piece in around if piece.strip()]
        assert all(piece.endswith((".", "!")) for piece in pieces[:-1]), "only the last sentence is cut"
        start, stop = examples.answers.start[row], examples.answers.stop[row]
        assert start + 1 == length - generator.room, "the length is exact"
        assert store.tokenizer().decode(examples.tokens[row, start + 1 : stop + 1]) == f" {found[2]}."
        slots.update(round(match.start() / len(text), 1) for match in re.finditer(FACT, text))
    assert len(slots) >= 7, "everywhere in the text"


def test_several_facts_may_be_at_one_place(texts: Path, tmp_path: Path) -> None:
    store = facts_store(texts, tmp_path / "x", mix=[MIX[0] | {"length": 400, "facts": [5, 5]}])
    assert any(re.search(f"{FACT} {FACT}", text) for text in prompts(store))


def test_training_examples_use_training_documents_and_tests_held_out_ones(texts: Path, tmp_path: Path) -> None:
    store = facts_store(texts, tmp_path / "x")
    read = {
        split: {number for text in prompts(store, 40, split) for number in re.findall(r"document (\d\d) this", text)}
        for split in ("train", "test")
    }
    assert len(read["train"]) >= 4
    assert len(read["test"]) >= 2
    assert not read["train"] & read["test"]


def test_shots_are_solved_stories_at_the_start(texts: Path, tmp_path: Path) -> None:
    store = facts_store(texts, tmp_path / "x", shots=2)
    for text in prompts(store):
        shown = list(re.finditer(r"((?: " + FACT + r")+) (Where is \w+\?) (\w+)\.", text))
        assert len(shown) >= 2
        for found in shown[:2]:
            facts = tuple(re.findall(FACT, found[1]))
            assert Reader(facts).answer(found[2]) == found[3]
            assert len(facts) == MIX[0]["facts"][0], "the smallest number"
        assert shown[0].start() == 0
        assert shown[1].start() == shown[0].end()


def test_a_prompt_without_room_is_refused(texts: Path, tmp_path: Path) -> None:
    store = facts_store(texts, tmp_path / "x", mix=[MIX[0] | {"length": 60}])
    with pytest.raises(DataError, match=r"^length 60: too short for a story of qa1 and its question$"):
        prompts(store)


def test_a_question_has_at_least_the_sentences_that_it_needs(tmp_path: Path) -> None:
    mix = [{"length": 900, "questions": QUESTIONS, "facts": [2, 12]}]
    store = make_task(tmp_path / "x", task="facts", mix=mix)
    answers = Facts(store.spec, "train", 1, store).make(np.arange(2000)).answers
    for group, question in enumerate(QUESTIONS):
        counts = answers.difficulty[answers.group == group]
        most = 2 if question == "qa4" else 12
        assert set(counts) == set(range(max(2, FEWEST.get(question, 1)), most + 1)), question


def test_stories_from_babis_files(texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "en-10k"
    folder.mkdir()
    (folder / "qa2_two-supporting-facts_train.txt").write_text(SAMPLE)
    (folder / "qa2_two-supporting-facts_test.txt").write_text(SAMPLE.replace("pier", "quay"))
    store = facts_store(texts, tmp_path / "x", babi=str(folder), mix=[{"length": 400, "questions": ["qa2"]}])
    train, test = prompts(store, 20), prompts(store, 20, "test")
    assert {re.sub(r".*\? ", "", text) for text in train} == {"pier.", "hut.", "no."}
    assert any("quay" in text for text in test)
    assert not any("quay" in text for text in train)
    for text in train:
        if text.endswith("hut."):
            assert re.search(r"Ann went to the pier\..*Bob took the oar there\..*Bob moved to the hut\.", text, re.S)
            assert "Where is Ann" not in text
    assert {path.name for path in source_files(store.spec)} >= {"qa2_two-supporting-facts_train.txt", "0.txt"}
    with pytest.raises(DataError, match=r"holds no file of bAbI named qa1_\*_train.txt"):
        prompts(facts_store(texts, tmp_path / "y", babi=str(folder)))


def test_a_file_of_babi_that_cannot_be_read_is_one_line(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "en-10k" / "qa2_two-supporting-facts_train.txt"
    path.parent.mkdir()
    path.write_bytes(SAMPLE.replace("pier", "qu\xe4").encode("latin-1"))
    with pytest.raises(DataError, match=r"qa2_.*_train.txt: is not text in UTF-8 \(byte 20\); convert it to UTF-8$"):
        read_babi(str(path.parent), "qa2", "train")
    read = Path.read_bytes

    def closed(self: Path) -> bytes:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", closed)
    with pytest.raises(DataError, match=r"qa2_.*_train.txt: cannot be read \(Permission denied\)$"):
        facts_store(texts, tmp_path / "x", babi=str(path.parent), mix=[MIX[0] | {"questions": ["qa2"]}])


def test_prompts_from_babilongs_files(texts: Path, tmp_path: Path) -> None:
    entries = {
        "0k": [{"input": "Ann went to the pier.", "question": "Where is Ann? ", "target": "pier"}],
        "4k": [
            {"input": "A long tale. Bob moved to the hut. It goes on.", "question": "Where is Bob? ", "target": "hut"},
            {"input": "Another one. Ann took the oar.", "question": "Where is Ann? ", "target": "hut"},
        ],
    }
    for question in ("qa1", "qa2"):
        (tmp_path / "babilong" / question).mkdir(parents=True)
        for name, content in entries.items():
            (tmp_path / "babilong" / question / f"{name}.json").write_text(json.dumps(content))
    mix = [{"length": 4000, "questions": ["qa1", "qa2"]}]
    store = make_task(tmp_path / "tokens", task="facts", babilong=str(tmp_path / "babilong"), mix=mix)
    generator = Facts(store.spec, "test", 1, store)
    examples = generator.make(np.arange(4))
    asked = [
        store.tokenizer().decode(row[: stop + 1])
        for row, stop in zip(examples.tokens, examples.answers.stop, strict=True)
    ]
    one, other = (f"{e['input']} {e['question'].strip()} {e['target']}." for e in entries["4k"])
    assert asked == [one, one, other, other], "first prompts of all tasks, then second prompts"
    assert examples.answers.group.tolist() == [0, 1, 0, 1]
    assert set(examples.answers.length) == {4000}
    short = Facts(store.spec.at(1), "test", 1, store).make(np.arange(2))  # type: ignore[attr-defined]
    assert store.tokenizer().decode(short.tokens[0]).startswith("Ann went to the pier. Where is Ann? pier.")
    assert "pier" not in prompts(store)[0], "training stories are generated"
    with pytest.raises(DataError, match=r"qa1/8k.json: missing; BABILong has one file per task and length"):
        Facts(store.spec.at(8000), "test", 1, store)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"^length 5000: BABILong has prompts of 0k, 1k, .* 10M; 4k is 4,000 to"):
        store.spec.at(5000)  # type: ignore[attr-defined]
    own = store.spec.model_copy(update={"mix": (store.spec.mix[0].at(5000),)})  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"^length 5000: "):
        own.tested()  # type: ignore[attr-defined]
    (tmp_path / "babilong" / "qa1" / "4k.json").write_text('[{"input": 1}]')
    with pytest.raises(DataError, match=r"qa1/4k.json: 0.input: expected text, got 1"):
        Facts(store.spec, "test", 1, store)


def test_the_names_of_babilongs_files() -> None:
    names = {
        1: "0k",
        1000: "1k",
        1024: "1k",
        128_000: "128k",
        131_072: "128k",
        2049: "2k",
        262_144: "256k",
        524_288: "512k",
    }
    names |= {1_000_000: "1M", 1_048_576: "1M"}
    assert {length: published_name(length) for length in names} == names


def split_of(text: str) -> TokenSplit:
    tokens = np.frombuffer(text.encode(), np.uint8)
    return TokenSplit("text", [tokens], np.zeros(1, np.int64), 256)


def test_sentences_end_with_stops_and_lines_and_wrap_around() -> None:
    text = "The first is here. Two! x = self.value\n    and so on it goes? Last of all of them."
    sentences = Sentences(split_of(text), ByteTokenizer(), 10)
    taken = ["".join(map(chr, piece)) for piece in sentences.take(3, 150)]
    assert taken[:4] == [
        " x = self.value\n",
        "    and so on it goes?",
        " Last of all of them.The first is here.",
        " x = self.value\n",
    ]
    assert sum(map(len, taken)) == 150
    assert [len(piece) for piece in sentences.take(3, 20)] == [16, 4], "the last one is cut"
    assert sentences.take(3, 0) == []
    assert [len(piece) for piece in sentences.ending(3, 20)] == [20], "of two the first is dropped, the second cut"
    cut = ["".join(map(chr, piece)) for piece in sentences.ending(3, 30)]
    assert cut == ["f.value\n", "    and so on it goes?"]


def test_a_text_without_sentences_is_refused() -> None:
    for text in ("a. b. c. ", "no end"):
        with pytest.raises(DataError, match=r"^text: too few sentences of at least 10 tokens$"):
            Sentences(split_of(text), ByteTokenizer(), 10).take(0, 30)
    with pytest.raises(DataError, match=r"^text: the text is empty, but the task needs its sentences$"):
        Sentences(TokenSplit("text", [], np.empty(0, np.int64), 256), ByteTokenizer(), 10)


def test_a_task_with_another_corpus_is_another_task(texts: Path) -> None:
    content = {"name": "x", "task": "facts", "mix": MIX}
    one, other = (parse_data(content | more, "test") for more in ({}, {"corpus": {"kind": "stdlib"}}))
    assert one.id != other.id
    assert other.sources.library
