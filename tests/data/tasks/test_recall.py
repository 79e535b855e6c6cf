"""Recall in the format of Arora et al. (2023): a slow reader checks every example token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ssm.base.errors import ConfigError
from ssm.data.batches import IGNORE_INDEX
from ssm.data.tasks.base import Examples
from ssm.data.tasks.recall import Recall
from ssm.specs.tasks import parse_data


def made(count: int, seed: int = 0, **content: object) -> Examples:
    spec = parse_data({"name": "x", "task": "recall"} | content, "test")
    return Recall(spec, "train", seed, None).make(np.arange(count))  # type: ignore[arg-type]


def check(inputs: list[int], targets: list[int], vocabulary: int, length: int) -> list[tuple[int, int]]:
    """Check one example; returns (pairs, distance) of every question in order."""
    first_value, found = vocabulary // 2, []
    told: dict[int, tuple[int, int]] = {}
    place = 0
    while inputs[place] and inputs[place] not in told:  # pairs, up to a filler or a repeated key
        key, value = inputs[place], inputs[place + 1]
        assert 0 < key < first_value <= value < vocabulary
        assert targets[place : place + 2] == [IGNORE_INDEX] * 2
        assert value not in [one for one, _ in told.values()]
        told[key] = value, place
        place += 2
    start, open_keys = place, set(told)
    for place in range(start, len(inputs)):
        if not inputs[place]:
            assert targets[place] == IGNORE_INDEX
            continue
        assert (place - start) % 2 == 0
        assert place < length
        open_keys.remove(inputs[place])  # fails if a key is asked twice or was not given
        value, given = told[inputs[place]]
        assert targets[place] == value
        found.append((len(told), place - given))
    assert not open_keys
    return found


@settings(max_examples=40)
@given(st.data())
def test_every_key_is_asked_once_for_its_value(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    mix = [{"pairs": count, "length": 4 * count + 2 * data.draw(st.integers(0, 12))} for count in pairs]
    vocabulary = 2 * (max(pairs) + 1 + data.draw(st.integers(0, 30)))
    power = data.draw(st.sampled_from([0.01, 0.5, 1.0]))
    examples = made(15, data.draw(st.integers(0, 2**31)), mix=mix, vocabulary=vocabulary, power=power)
    assert examples.inputs.shape == (15, max(part["length"] for part in mix))
    answers, seen = examples.answers, 0
    for row in range(15):
        mine = answers.example == row
        (length,) = set(answers.length[mine].tolist())
        found = check(examples.inputs[row].tolist(), examples.targets[row].tolist(), vocabulary, length)
        assert {"pairs": len(found), "length": length} in mix
        assert answers.difficulty[mine].tolist() == [count for count, _ in found]
        assert answers.group[mine].tolist() == [int(4 * distance / length) for _, distance in found]
        assert answers.start[mine].tolist() == np.flatnonzero(examples.target_mask[row]).tolist()
        seen += len(found)
    assert len(answers.start) == seen
    assert (answers.stop == answers.start + 1).all()


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_places_follow_the_power_law(power: float) -> None:
    """Compared with numpy's draws without replacement. Keys and values are uniform."""
    count, pairs, length = 3000, 4, 40
    examples = made(count, mix=[{"pairs": pairs, "length": length}], vocabulary=22, power=power)
    places = np.bincount((examples.answers.start - 2 * pairs) // 2, minlength=16)
    likely = np.arange(1, 17) ** (power - 1.0)
    rng = np.random.default_rng(0)
    drawn = [rng.choice(16, pairs, replace=False, p=likely / likely.sum()) for _ in range(count)]
    assert stats.chi2_contingency([places, np.bincount(np.concatenate(drawn), minlength=16)]).pvalue > 1e-4
    for column, first in ((0, 1), (1, 11)):
        tokens = examples.inputs[:, column : 2 * pairs : 2] - first
        assert stats.chisquare(np.bincount(tokens[:, 0], minlength=10 + column)).pvalue > 1e-4
        assert len(np.unique(tokens)) == 10 + column
    asked = np.stack([examples.inputs[row][examples.target_mask[row]] for row in range(count)])  # in order of questions
    if power == 1.0:  # then all pairs are equally likely to be asked first
        first_pair = (examples.inputs[:, 0 : 2 * pairs : 2] == asked[:, :1]).argmax(1)
        assert stats.chisquare(np.bincount(first_pair, minlength=pairs)).pvalue > 1e-4


def zoology(count: int, pairs: int, length: int, vocabulary: int, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels (count, length), drawn one by one as in Arora et al. (2023) and their code.

    Keys are from the lower half without 0, values from the upper half, all different. Questions are at every second
    place after the pairs. Place i has a probability proportional to i^(a - 1), and keys take places in drawn order.
    """
    rng, half = np.random.default_rng(7), vocabulary // 2
    law = np.arange(1, (length - 2 * pairs) // 2 + 1) ** (power - 1.0)
    inputs, labels = np.zeros((count, length), np.int64), np.full((count, length), IGNORE_INDEX)
    for row in range(count):
        keys = rng.choice(np.arange(1, half), pairs, replace=False)
        values = rng.choice(np.arange(half, vocabulary), pairs, replace=False)
        inputs[row, : 2 * pairs] = np.column_stack([keys, values]).ravel()
        places = 2 * pairs + 2 * rng.choice(len(law), pairs, replace=False, p=law / law.sum())
        inputs[row, places], labels[row, places] = keys, values
    return inputs, labels


def distances(inputs: np.ndarray, pairs: int) -> np.ndarray:
    """(count, pairs): distance from each key to its question."""
    behind = inputs[:, None, 2 * pairs :] == inputs[:, : 2 * pairs : 2, None]  # (count, pairs, places)
    assert (behind.sum(2) == 1).all(), "every key is asked once"
    steps: np.ndarray = behind.argmax(2) + 2 * pairs - 2 * np.arange(pairs)
    return steps


def test_recall_has_the_distribution_of_zoology() -> None:
    """With zoology's 8,192 tokens and power: distances of questions, and no other tokens after the pairs."""
    count, pairs, length, vocabulary = 1000, 4, 40, 8192
    examples = made(count, mix=[{"pairs": pairs, "length": length}])  # the defaults
    inputs, labels = zoology(count, pairs, length, vocabulary, power=0.01)
    for read, asked in ((examples.inputs, examples.targets), (inputs, labels)):
        assert (read.shape, asked.shape) == ((count, length), (count, length))
        keys, values = read[:, : 2 * pairs : 2], read[:, 1 : 2 * pairs : 2]
        assert 0 < keys.min() <= keys.max() < 4096 <= values.min() <= values.max() < vocabulary
        assert (np.count_nonzero(read, 1) == 3 * pairs).all(), "only keys after the pairs"
        assert ((asked != IGNORE_INDEX).sum(1) == pairs).all()
        for side, first in ((keys, 1), (values, 4096)):
            assert stats.chisquare(np.bincount((side.ravel() - first) // 256, minlength=16)[:15]).pvalue > 1e-4
    ours, theirs = distances(examples.inputs, pairs), distances(inputs, pairs)
    for pair in range(pairs):  # the first pair has the smallest distances
        counts = [np.bincount(found[:, pair], minlength=length + 1) for found in (ours, theirs)]
        table = np.stack(counts)[:, np.sum(counts, 0) > 10]
        assert stats.chi2_contingency(table).pvalue > 1e-4
    first = np.bincount((ours[:, 0] - 2 * pairs) // 2, minlength=16)  # the first draw follows the law itself
    law = np.arange(1, 17) ** -0.99
    assert stats.chisquare(first, count * law / law.sum()).pvalue > 1e-4


def test_a_test_set_of_one_length_keeps_the_pairs() -> None:
    mix = [{"length": 20, "pairs": 5}, {"length": 32, "pairs": 2}]
    task = parse_data({"name": "x", "task": "recall", "vocabulary": 16, "mix": mix}, "test")
    examples = Recall(task.at(40), "test", 1, None).make(np.arange(30))  # type: ignore[attr-defined, arg-type]
    assert set(examples.answers.length) == {40}
    assert set(examples.answers.difficulty) == {2, 5}
    with pytest.raises(
        ConfigError, match=r"x at length 16: mix\.0: length 16: an even number is needed, and at least 20"
    ):
        task.at(16)  # type: ignore[attr-defined]
