"""Common properties of all tasks: examples are a function of (spec, seed, split, index) only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data.tasks import cost
from data.tasks.examples import GOLDEN, HELD, TASKS, task_store
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.mini import write_config

from ssm.base.discovery import RegistryError
from ssm.base.errors import ConfigError
from ssm.data.batches import IGNORE_INDEX
from ssm.data.store import TokenStore
from ssm.data.tasks import GENERATORS, build_generator
from ssm.data.tasks.base import Examples, TestSet
from ssm.data.training_batches import TaskBatches
from ssm.specs.tasks import SPECS, parse_data
from ssm.specs.tasks.base import Split, Task

INDICES = st.lists(st.integers(0, 10**7), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokenStore]:
    return {name: task_store(name, tmp_path_factory.mktemp("task")) for name in TASKS}


@pytest.fixture(params=[name for name in TASKS if name not in HELD])
def store(request: pytest.FixtureRequest, stores: dict[str, TokenStore]) -> TokenStore:
    return stores[request.param]


def task_of(store: TokenStore) -> Task:
    assert isinstance(store.spec, Task)
    return store.spec


def made(store: TokenStore, indices: list[int], seed: int = 1, split: Split = "train") -> Examples:
    numbers = np.array(indices) % HELD.get(task_of(store).task, 10**9)
    return build_generator(task_of(store), split, seed, store).make(numbers)


def test_every_task_is_tested_here() -> None:
    assert {content["task"] for content in TASKS.values()} == set(GENERATORS) == set(SPECS)


@pytest.mark.parametrize("name", TASKS)
def test_examples_have_not_changed(name: str, stores: dict[str, TokenStore]) -> None:
    examples = made(stores[name], [0, 1, 2, 10**7])
    read = b"" if examples.values is None else examples.values.astype("<f4").tobytes()
    labels = read if examples.labels is None else examples.labels.astype("<i4").tobytes()
    digest = hashlib.sha256(
        examples.tokens.astype("<i4").tobytes() + examples.target_mask.tobytes() + labels
    ).hexdigest()
    assert GOLDEN.get(name) == digest[:16]


@settings(max_examples=15)
@given(indices=INDICES, seed=st.integers(0, 2**31), split=st.sampled_from(["train", "test"]))
def test_an_example_does_not_depend_on_the_others_of_its_batch(
    indices: list[int], seed: int, split: Split, stores: dict[str, TokenStore]
) -> None:
    for store in stores.values():
        task = task_of(store)
        together = made(store, indices, seed, split)
        assert together.tokens.shape[1] - 1 <= task.least_context
        assert together.tokens.min() >= 0
        assert together.tokens.max() < task.vocab_size
        assert together.target_mask.any(1).all()
        for row, index in enumerate(indices):
            alone = made(store, [index], seed, split)
            size = int(alone.target_mask[0].nonzero()[0][-1]) + 2  # tokens up to the last one that counts
            np.testing.assert_array_equal(alone.tokens[0, :size], together.tokens[row, :size])
            np.testing.assert_array_equal(alone.targets[0, : size - 1], together.targets[row, : size - 1])
            assert not together.target_mask[row, size - 1 :].any()


@settings(max_examples=15)
@given(indices=INDICES)
def test_the_targets_of_answers_count(indices: list[int], stores: dict[str, TokenStore]) -> None:
    for store in stores.values():
        examples = made(store, indices)
        answers, task = examples.answers, task_of(store)
        assert set(answers.example) == set(range(len(indices)))
        assert (np.diff(answers.example) >= 0).all()
        assert (answers.start < answers.stop).all()
        assert (answers.group < len(task.groups)).all()
        for example, start, stop in zip(answers.example, answers.start, answers.stop, strict=True):
            assert examples.target_mask[example, start:stop].all()
            assert not examples.target_mask[example, start - 1], "an answer begins with the first target that counts"
        targets = examples.targets
        assert ((targets == IGNORE_INDEX) == ~examples.target_mask).all()
        np.testing.assert_array_equal(targets[examples.target_mask], examples.following[examples.target_mask])


def test_training_and_test_examples_differ(store: TokenStore) -> None:
    """Two seeds differ too: splits and seeds have different random streams."""
    sets = [
        {tuple(row) for row in made(store, list(range(60)), seed, split).tokens.tolist()}
        for seed in (1, 2)
        for split in ("train", "test")
    ]
    assert all(len(examples) > 55 for examples in sets)
    for number, examples in enumerate(sets):
        for other in sets[:number]:
            assert len(examples & other) <= 2  # short strings or stories may be equal by chance


def test_parts_have_their_shares(stores: dict[str, TokenStore]) -> None:
    answers = made(stores["copy"], list(range(4000))).answers
    assert np.mean(answers.length == 12) == pytest.approx(0.25, abs=0.03)
    assert set(answers.length) == {5, 6, 7, 8, 9, 12}


def test_a_test_set_is_read_in_segments(store: TokenStore) -> None:
    generator = build_generator(task_of(store).tested(), "test", 5, store)
    test, rows = TestSet(generator, 40), np.array([3, 1, 39])
    made_at_once = generator.make(rows)
    whole, following = made_at_once.tokens, made_at_once.following
    for start, stop in ((0, 4), (4, 20), (1, whole.shape[1] + 6)):
        inputs, targets = test.read(rows, start, stop)
        padded, below = np.pad(whole, ((0, 0), (0, 8))), np.pad(following, ((0, 0), (0, 8)))
        np.testing.assert_array_equal(inputs, padded[:, start:stop])
        np.testing.assert_array_equal(targets, below[:, start:stop])
    answers, together = test.answers(), generator.make(np.arange(40)).answers
    for name, column in vars(together).items():
        np.testing.assert_array_equal(getattr(answers, name), column)


def test_pieces_join_to_the_example(stores: dict[str, TokenStore]) -> None:
    """They hold all tokens up to the last one that counts. Answers are separate pieces."""
    for name, store in stores.items():
        generator = build_generator(task_of(store), "train", 3, store)
        for index in range(6):
            pieces, example = generator.pieces(index), generator.make(np.array([index]))
            size = int(example.target_mask[0].nonzero()[0][-1]) + 2
            np.testing.assert_array_equal(np.concatenate([tokens for _, tokens in pieces]), example.tokens[0, :size])
            asked = np.concatenate([np.full(len(tokens), piece in ("answer", "key")) for piece, tokens in pieces])
            np.testing.assert_array_equal(asked[1:], example.target_mask[0, : size - 1], err_msg=name)


def test_test_sets_of_one_length(stores: dict[str, TokenStore]) -> None:
    for name, length in (
        ("copy", 30),
        ("copy, packed", 30),
        ("stack_copy", 30),
        ("sort", 30),
        ("passkey", 400),
        ("facts", 3000),
        ("facts, hidden", 500),
    ):
        store = stores[name]
        examples = build_generator(task_of(store).at(length), "test", 1, store).make(np.arange(20))
        assert set(examples.answers.length) == {length}
        assert examples.answers.example.tolist() == list(range(20)), "one answer per example"
    with pytest.raises(ConfigError, match=r"at length 0: mix\.0\.shortest: expected a number above 0, got 0"):
        task_of(stores["copy"]).at(0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"task": "cpoy"}, "unknown name 'cpoy'; did you mean 'copy'"),
        ({"task": "copy", "mix": []}, "mix: expected at least 1 entry"),
        ({"task": "copy", "mix": [{"shortest": 3, "longest": 2}]}, "mix.0: shortest 3 is above longest 2"),
        ({"task": "copy", "mix": [{"shortest": 3, "longest": 3}], "packed": 8}, "a string of 3 letters takes 9 tokens"),
        ({"task": "copy", "mix": [{"shortest": 3, "longest": 3}], "rows": 29}, "26 letters and 4 symbols need 30"),
        (
            {"task": "copy", "mix": [{"shortest": 3, "longest": 3}], "rows": 40, "first": 11},
            "26 letters and 4 symbols from token 11 on need 41",
        ),
        ({"task": "copy", "mix": [{"shortest": 3, "longest": 3}], "letters": 5}, "unknown key 'letters'"),
        (
            {"task": "sort", "alphabet": 8, "mix": [{"shortest": 3, "longest": 9}]},
            "alphabet 8: 9 different letters are needed",
        ),
        ({"task": "passkey", "mix": [{"length": 300, "depths": [1, 0]}]}, "depths must ascend"),
        (
            {"task": "recall", "mix": [{"length": 15, "pairs": 4}]},
            "length 15: an even number is needed, and at least 16",
        ),
        ({"task": "recall", "vocabulary": 8, "mix": [{"length": 16, "pairs": 4}]}, "has 3 keys, 4 pairs need 10"),
        ({"task": "recall", "mix": [{"length": 16, "pairs": 4}], "power": 2}, "power: "),
        ({"task": "facts", "mix": [{"length": 300, "facts": [4, 2]}]}, "facts must ascend"),
        (
            {"task": "facts", "mix": [{"length": 300, "questions": ["qa1", "qa3"], "facts": [1, 2]}]},
            r"facts \[1, 2\]: a story with qa3 needs 3 sentences",
        ),
        ({"task": "facts", "mix": [{"length": 300, "questions": ["qa11"]}]}, "unknown name 'qa11'"),
        (
            {"task": "facts", "mix": [{"length": 300}], "tokenizer": {"kind": "bpe", "vocab_size": 300}},
            "a bpe tokenizer is trained on text: name the corpus",
        ),
        ({"task": "facts", "mix": [{"length": 300}], "babilong": "x", "shots": 2}, "come without shots"),
    ],
)
def test_wrong_settings_are_named(content: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^data.yaml: x: .*{said}"):
        parse_data({"name": "x"} | content, "data.yaml: x")


def test_the_cost_of_every_task_that_has_values_at_this_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "config")
    (config / "models.yaml").write_text((config / "models.yaml").read_text().replace("tiny", "mamba2-slow"))
    with (config / "data.yaml").open("a") as file:
        file.write("late: {task: passkey, mix: [{length: {paper: 256}}]}\n")
    changed: dict[str, object] = {"ROOT": tmp_path, "BATCH": 2, "REPEATS": 1}
    changed["prepare_device"] = lambda *_: torch.device("cpu")  # without a change of this process
    for name, value in changed.items():
        monkeypatch.setattr(cost, name, value)
    cost.main()
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["keys", "256"], ["digits", "96"]]


def test_properties_of_texts_and_tasks(stores: dict[str, TokenStore], tmp_path: Path) -> None:
    copy, facts = task_of(stores["copy"]), task_of(stores["facts, hidden"])
    assert (copy.vocab_size, copy.least_context, copy.spelled_by, copy.text) == (30, 26, None, None)
    assert copy.stored_tokens(1000) == 0
    assert facts.stored_tokens(1000) == 1000
    assert copy.capped(3) == copy
    assert facts.capped(3).text.max_documents == 3
    assert [corpus.paths for corpus in facts.sources.corpora] == [facts.text.corpus.paths]
    text = parse_data({"name": "x", "corpus": {"kind": "stdlib"}}, "test")
    assert (text.answers, text.least_context, text.sources.library, text.text) == (False, 1, True, text)
    assert copy.words == "task copy, vocabulary 30"


MISTAKES: dict[str, tuple[Callable[[Examples], Examples], str]] = {
    "token": (lambda made: replace(made, tokens=made.tokens + 300), r"token 3\d\d, expected 0 to \d+"),
    "negative": (lambda made: replace(made, tokens=made.tokens - 1), "token -1, expected 0 to"),
    "label": (lambda made: replace(made, labels=made.tokens[:, 1:] + 300), r"target 3\d\d, expected 0 to \d+"),
    "float": (lambda made: replace(made, tokens=made.tokens / 1), "a token is float64, expected an integer"),
    "short": (lambda made: replace(made, tokens=made.tokens[:, 1:]), "tokens have the shape"),
    "nothing counts": (lambda made: replace(made, target_mask=made.target_mask & False), "no target counts"),
    "group": (
        lambda made: replace(made, answers=replace(made.answers, group=made.answers.group + 9)),
        r"an answer of group \d+, the spec has",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_a_generator_is_one_line_with_its_file(
    name: str, stores: dict[str, TokenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, said = MISTAKES[name]
    made = GENERATORS["recall"].make
    monkeypatch.setattr(GENERATORS["recall"], "make", lambda self, indices: mistake(made(self, indices)))
    generator = build_generator(task_of(stores["recall"]), "test", 1, stores["recall"])
    batches = TaskBatches(generator, generator.spec.least_context, 4, starts=False)
    test = TestSet(generator, 3)
    for read in (lambda: batches.batch(0), lambda: test.read(np.arange(3), 0, 5), lambda: generator.pieces(0)):
        with pytest.raises(RegistryError, match=f"^ssm/data/tasks/recall.py: {said}"):
            read()
