"""RULER's tasks: prompts have the text of the published templates, with needles where the rules say."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from data.tasks.test_prompts import with_a_space_in_front
from small import make_task

from ssm.base.errors import ConfigError, DataError
from ssm.data.store import TokenStore
from ssm.data.tasks import build_generator
from ssm.data.tasks.ruler import Ruler
from ssm.data.tasks.words import ADJECTIVES, NOUNS
from ssm.data.tokenizers import train_bpe
from ssm.specs.tasks import parse_data

# NVIDIA/RULER (Apache-2.0), scripts/data/synthetic: constants.py, and needle and noise of niah.py.
PUBLISHED = {
    "niah": (
        "Some special magic {type_needle_v} are hidden within the following text. Make sure to memorize it. I will "
        "quiz you about the {type_needle_v} afterwards.\n{context}\nWhat are all the special magic {type_needle_v} for "
        "{query} mentioned in the provided text?"
        " The special magic {type_needle_v} for {query} mentioned in the provided text are"
    ),
    "vt": (
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\nQuestion: "
        "Find all variables that are assigned the value {query} in the text above."
        " Answer: According to the chain(s) of variable assignment in the text above, {num_v} variables are assigned "
        "the value {query}, they are: "
    ),
}
NEEDLE = "One of the special magic {type_needle_v} for {key} is: {value}."
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def single(template: str) -> str:
    """Change the template for one number, as niah.py does."""
    return template.replace("Some", "A").replace("are all", "is").replace("are", "is").replace("answers", "answer")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return make_task(tmp_path_factory.mktemp("ruler") / "tokens", task="ruler", mix=[{"length": 2400}])


def generator(store: TokenStore, split: str = "test", seed: int = 3, **part: object) -> Ruler:
    task = parse_data(store.spec.content() | {"mix": [{"length": 2400, **part}]}, "test")
    made = build_generator(task, split, seed, store)  # type: ignore[arg-type]
    assert isinstance(made, Ruler)
    return made


def texts(ruler: Ruler, count: int) -> list[tuple[str, str, float]]:
    """Prompt, answer and depth of the first examples."""
    made, decode = ruler.make(np.arange(count)), ruler.tokenizer.decode
    answers = made.answers
    found = []
    for row in range(count):
        start, stop = int(answers.start[row]) + 1, int(answers.stop[row]) + 1
        tokens = made.tokens[row]
        assert made.target_mask[row].nonzero()[0].tolist() == list(range(start - 1, stop - 1))
        assert not tokens[stop:].any()
        found.append((decode(tokens[:start]), decode(tokens[start:stop]), float(answers.difficulty[row])))
    return found


def told(line: str) -> tuple[str, str] | None:
    """Key and number of a needle."""
    form = re.escape(NEEDLE).replace(r"\{type_needle_v\}", "numbers").replace(r"\{key\}", "(.+)")
    found = re.fullmatch(form.replace(r"\{value\}", r"(\d+)"), line)
    return (found[1], found[2]) if found else None


@pytest.mark.parametrize("task", ["niah_single_1", "niah_multikey_2"])
def test_a_prompt_with_a_number_and_a_key_has_the_published_text(task: str, store: TokenStore) -> None:
    places, keys = [], set()
    for prompt, answer, depth in texts(generator(store, tasks=[task]), 60):
        query = re.search(r"What is the special magic number for (\S+) mentioned", prompt)
        assert query is not None
        lines = prompt.split("\n")
        context = lines[1:-1]
        expected = single(PUBLISHED["niah"]).format(type_needle_v="number", query=query[1], context="\n".join(context))
        assert prompt == expected
        (place,) = (number for number, line in enumerate(context) if (told(line) or ("", ""))[0] == query[1])
        found = told(context[place])
        assert found is not None
        assert answer == f" {found[1]}"
        assert len(found[1]) == 7
        assert found[1][0] != "0"
        adjective, noun = query[1].split("-")
        assert adjective in ADJECTIVES
        assert noun in NOUNS
        others = context[:place] + context[place + 1 :]
        if task == "niah_single_1":
            assert set(others) == {NOISE}
        else:
            assert all(len((told(line) or ("", ""))[1]) == 7 for line in others)
        assert depth == place / len(others)
        assert place < len(context) - 1, "before another line"
        places.append(depth)
        keys.add(query[1])
    assert min(places) < 0.1
    assert max(places) > 0.85
    assert len(keys) > 55


def test_variable_tracking_has_the_published_text_after_its_example(store: TokenStore) -> None:
    for prompt, answer, depth in texts(generator(store, tasks=["vt"]), 20):
        example, asked = prompt.split("\n\nMemorize")
        for text, letters, given in ((example, 3, None), (f"Memorize{asked}", 5, answer)):
            head, _, rest = text.partition("\n\n")
            context, _, question = rest.rpartition("\nQuestion:")
            value = re.search(r"assigned the value (\d{5}) in the text above", question)
            assert value is not None
            expected = PUBLISHED["vt"].format(query=value[1], context=context, num_v=5)
            lines = context.split("\n")
            chain = [line for line in lines if line != NOISE]
            first = re.fullmatch(rf"VAR ([A-Z]{{{letters}}}) = {value[1]}", chain[0])
            assert first is not None
            names = [first[1]]
            for line in chain[1:]:
                taken = re.fullmatch(rf"VAR ([A-Z]{{{letters}}}) = VAR {names[-1]} ", line)
                assert taken is not None, line
                names.append(taken[1])
            assert len(set(names)) == 5
            assert head.startswith("Memorize and track")
            assert all(NOISE in pair for pair in [*pairwise(lines), lines[-1:]]), "each needle is before another line"
            if given is None:
                assert text == f"{expected} {' '.join(names)}", "the example ends with its answer"
                assert lines.count(NOISE) == 5, "500 tokens hold no more than its chain needs"
            else:
                assert text == expected
                assert given == f" {' '.join(names)}"
                assert depth == lines.index(chain[0]) / lines.count(NOISE)


def test_a_prompt_has_as_many_lines_as_fit(store: TokenStore) -> None:
    ruler = generator(store, length=1900)
    for row, made in enumerate(ruler._prompts(np.arange(40))):
        line = {"niah_single_1": 90, "niah_multikey_2": 75, "vt": 90}[made.task]
        assert 1900 - 2 * line < made.size <= 1900, row


def test_needles_depend_on_split_and_seed_but_not_on_the_length(store: TokenStore) -> None:
    def asked(**changes: object) -> list[str]:
        found = texts(generator(store, tasks=["niah_single_1"], **changes), 12)  # type: ignore[arg-type]
        return [answer for _, answer, _ in found]

    assert asked() == asked(length=900)
    assert not set(asked()) & set(asked(split="train"))
    assert not set(asked()) & set(asked(seed=4))


def test_the_three_tasks_are_equally_frequent(store: TokenStore) -> None:
    groups = generator(store).make(np.arange(240)).answers.group
    assert (np.bincount(groups) > 60).all()


def test_every_prompt_of_the_shortest_length_fits(store: TokenStore) -> None:
    for task in ("niah_single_1", "niah_multikey_2", "vt"):
        shortest = generator(store).shortest(task)
        generator(store, length=shortest, tasks=[task]).make(np.arange(100))
        with pytest.raises(
            DataError, match=rf"^length {shortest - 1}: too short for {task}, which needs {shortest} tokens$"
        ):
            generator(store, length=shortest - 1, tasks=[task])


@pytest.mark.parametrize("in_front", [False, True])
def test_other_tokenizers_represent_the_same_text(in_front: bool, store: TokenStore, tmp_path: Path) -> None:
    """Prompt and answer are the tokens of their text. Words include the space before them, or texts get one."""
    corpus = [prompt + answer for prompt, answer, _ in texts(generator(store), 12)]
    trained = (text.encode() for text in corpus)
    tokenizer = with_a_space_in_front(trained) if in_front else train_bpe(trained, 500)
    assert tokenizer.json is not None
    (tmp_path / "tokenizer.json").write_text(tokenizer.json)
    spelled = {"kind": "file", "path": str(tmp_path / "tokenizer.json"), "vocab_size": tokenizer.vocab_size}
    other = make_task(tmp_path / "tokens", task="ruler", tokenizer=spelled, mix=[{"length": 1500}])
    ruler = generator(other, length=1500)
    for made in ruler._prompts(np.arange(6)):
        whole = np.concatenate([made.prompt, made.answer])
        text = tokenizer.decode(whole)
        assert re.search(r"(are: | is)( \d{7}| [A-Z]{5}( [A-Z]{5}){4})$", text), text[-80:]
        (encoded,) = tokenizer.encode([text.encode()])
        np.testing.assert_array_equal(whole, encoded)


def test_the_example_of_variable_tracking_has_500_tokens_if_more_lines_fit(store: TokenStore, tmp_path: Path) -> None:
    corpus = [prompt.encode() for prompt, _, _ in texts(generator(store), 12)]
    tokenizer = train_bpe(iter(corpus), 900)
    assert tokenizer.json is not None
    (tmp_path / "tokenizer.json").write_text(tokenizer.json)
    spelled = {"kind": "file", "path": str(tmp_path / "tokenizer.json"), "vocab_size": 900}
    ruler = generator(make_task(tmp_path / "tokens", task="ruler", tokenizer=spelled, mix=[{"length": 2400}]))
    assert ruler.example_lines() > 5
    prompt = texts(generator(ruler.store, tasks=["vt"]), 1)[0][0]
    (example,) = tokenizer.encode([prompt.split("\n\nMemorize")[0].encode()])
    assert 450 < len(example) <= 515


def test_a_tokenizer_without_digits_is_refused(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenStore, "tokenizer", lambda store: with_a_space_in_front(iter([b"The grass is green."])))
    with pytest.raises(DataError, match=r"^the tokenizer cannot represent the answer '\d{7}': it gives"):
        generator(store, tasks=["niah_single_1"])


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"tasks": ["niah_single_3"]}, "unknown name 'niah_single_3'; did you mean 'niah_single_1'"),
        ({"tasks": ["vt", "vt"]}, "tasks"),
    ],
)
def test_wrong_settings_are_named(part: dict[str, object], said: str, store: TokenStore) -> None:
    with pytest.raises(ConfigError, match=said):
        generator(store, **part)  # type: ignore[arg-type]
