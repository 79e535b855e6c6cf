"""Passkeys as a task: the measurement's prompts, with a separate key and depth for every example, and a full stop."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from data.tasks.test_prompts import TOKENIZERS
from small import make_task

from ssm.base.errors import DataError
from ssm.data.store import TokenStore
from ssm.data.tasks.passkey import Passkey

MIX = [{"length": 330}, {"length": 300, "depths": [0.5, 0.5]}]


@pytest.fixture(params=list(TOKENIZERS))
def generator(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Passkey:
    store = make_task(tmp_path / "tokens", task="passkey", mix=MIX)
    tokenizer = TOKENIZERS[request.param]
    monkeypatch.setattr(TokenStore, "tokenizer", lambda store: tokenizer)
    return Passkey(store.spec, "train", 3, store)


def test_the_question_asks_for_the_key(generator: Passkey) -> None:
    examples = generator.make(np.arange(60))
    answers, decode = examples.answers, generator.wording.tokenizer.decode
    keys, depths = [], []
    for row in range(60):
        start, stop, length = answers.start[row], answers.stop[row], answers.length[row]
        asked = np.nonzero(examples.target_mask[row])[0]
        text = decode(examples.tokens[row, : asked[-1] + 2])
        found = re.fullmatch(
            r"There is an important info.*The pass key is (\d{5})\. Remember it\. \1 is the pass key\..*"
            r"What is the pass key\? The pass key is \1\.",
            text,
        )
        assert found, text
        keys.append(found[1])
        scored = decode(examples.tokens[row, start + 1 : stop + 1]).strip()
        assert scored == found[1] or (scored == f"{found[1]}." and stop == asked[-1] + 1), "one token may have both"
        assert decode(examples.tokens[row, asked + 1]).strip() == f"{found[1]}.", "the targets that count"
        assert start == length - generator.room - 1
        assert asked[-1] + 1 < length
        depths.append(float(answers.difficulty[row]))
    assert len(set(keys)) == 60
    half = answers.length == 300
    assert 10 < half.sum() < 50
    assert set(np.array(depths)[half]) == {0.5}
    free = np.array(depths)[~half]
    assert free.min() < 0.2
    assert free.max() > 0.8


def test_the_key_is_at_its_depth(generator: Passkey) -> None:
    deep, early = (
        Passkey(generator.spec.model_copy(update={"mix": (part,)}), "train", 3, generator.store).make(np.arange(5))
        for part in (replace_depths(generator, 1.0), replace_depths(generator, 0.0))
    )
    decode = generator.wording.tokenizer.decode
    for row in range(5):
        assert re.search(r"is the pass key\. What is", decode(deep.tokens[row]))
        assert re.search(r"information there\. The pass key", decode(early.tokens[row]))


def replace_depths(generator: Passkey, depth: float) -> object:
    return generator.spec.mix[0].model_copy(update={"depths": (depth, depth)})


def test_without_the_instruction_a_short_prompt_has_more_text(generator: Passkey) -> None:
    spec = generator.spec.model_copy(update={"instruction": False})
    short, decode = Passkey(spec, "train", 3, generator.store), generator.wording.tokenizer.decode
    for row in range(5):
        with_it, without = (dict(one.pieces(row)) for one in (generator, short))
        assert "instruction" not in without
        text, more = (
            sum(len(one.get(f"text {side}", ())) for side in ("before", "behind")) for one in (with_it, without)
        )
        assert more - text == len(with_it["instruction"])
        assert decode(without["needle"]) == decode(with_it["needle"])


def test_a_prompt_without_room_and_a_key_of_too_many_tokens_are_refused(generator: Passkey) -> None:
    short = generator.spec.model_copy(update={"mix": (generator.spec.mix[0].at(20),)})
    with pytest.raises(DataError, match=r"^length 20: too short for a passkey"):
        Passkey(short, "train", 3, generator.store).make(np.arange(1))
    generator.room = 2
    with pytest.raises(DataError, match=r"the tokenizer needs \d tokens for the key \d{5}"):
        generator.make(np.arange(1))
