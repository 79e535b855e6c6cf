"""Passkey prompts: text, length, place of the key, and reading in segments."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from ssm.base.errors import ConfigError, DataError
from ssm.data.tasks.passkey import TEXT, PasskeyPieces, PasskeyPrompts
from ssm.data.tokenizers import ByteTokenizer, JsonTokenizer, Tokenizer, train_bpe
from ssm.evaluation.passkey import passkey_pieces
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.tasks.passkey import INSTRUCTION, QUESTION, least_bytes

ROUND = " " + " ".join(TEXT)
CORPUS = f"{INSTRUCTION}{ROUND} The pass key is 10. Remember it. 10 is the pass key. {QUESTION} 10"


def trained(texts: Iterator[bytes]) -> JsonTokenizer:
    """Byte-level BPE. Words include the space before them; the numbers 10 to 59 are single tokens."""
    return train_bpe(texts, 800)


def with_a_space_in_front(texts: Iterator[bytes]) -> JsonTokenizer:
    """Like Llama's tokenizer: it adds a space at the start of every text."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    spaces = [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    model.normalizer = tokenizers.normalizers.Sequence(spaces)
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split("▁", "merged_with_next")
    strip = [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 1, 0)]
    model.decoder = tokenizers.decoders.Sequence(strip)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, show_progress=False)
    model.train_from_iterator((text.decode() for text in texts), trainer)
    return JsonTokenizer(model.to_str(), 300, "test")


def corpus() -> Iterator[bytes]:
    return (CORPUS.replace("10", str(number)).encode() for number in range(10, 60))


TOKENIZERS: dict[str, Tokenizer] = {
    "bytes": ByteTokenizer(),
    "bpe": trained(corpus()),
    "with a space in front": with_a_space_in_front(corpus()),
}
SPEC = Passkey(lengths=(1,), depths=(0.0, 0.3, 0.5, 1.0), trials=3)


def whole(prompts: PasskeyPrompts, row: int) -> np.ndarray:
    """Prompt and key of one row without padding: (n,) tokens."""
    inputs, targets = prompts.read(np.array([row]), 0, prompts.length - 1)
    tokens = np.concatenate([inputs[0].numpy(), targets[0, -1:].numpy()])
    return tokens[: prompts.prompt_tokens + len(prompts.pieces.keys[row])]


@pytest.fixture(params=list(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]


@pytest.fixture
def pieces(tokenizer: Tokenizer) -> PasskeyPieces:
    return passkey_pieces(SPEC, tokenizer, seed=3)


@pytest.mark.parametrize("extra", [0, 1, 2, 17, 40, 400, 5001])
def test_a_prompt_has_the_papers_text(extra: int, pieces: PasskeyPieces, tokenizer: Tokenizer) -> None:
    length = pieces.shortest + extra
    prompts = PasskeyPrompts(pieces, length)
    assert len(prompts) == 12
    for row in range(12):
        tokens = whole(prompts, row)
        assert length - pieces.room == len(tokens) - len(pieces.keys[row])
        text = tokenizer.decode(tokens)
        found = re.fullmatch(
            re.escape(INSTRUCTION) + r"(.*) The pass key is (\d{5})\. Remember it\. \2 is the pass key\."
            r"(.*) What is the pass key\? The pass key is \2",
            text,
        )
        assert found, text
        before, _, behind = found.groups()
        assert (ROUND * (len(text) // len(ROUND) + 2)).count(before + behind)  # the sentences in order
        if len(before + behind) > len(ROUND):  # only the first sentence is cut
            assert (before + behind).endswith(TEXT[pieces.last[row]])
            assert not before or before.endswith(TEXT)


def test_a_prompt_has_the_tokens_of_its_text(pieces: PasskeyPieces, tokenizer: Tokenizer) -> None:
    """Parts are tokenized as in running text, so that only the key shows its place."""
    sizes = np.diff(pieces.wording.ends, prepend=0)
    for row in range(12):
        text = int(sizes[pieces.last[row]] + sizes[pieces.last[row] - 1])  # two whole sentences
        around = len(pieces.wording.instruction) + len(pieces.needles[row]) + len(pieces.wording.question) + pieces.room
        tokens = whole(PasskeyPrompts(pieces, around + text), row)
        (encoded,) = tokenizer.encode([tokenizer.decode(tokens).encode()])
        np.testing.assert_array_equal(tokens, encoded)


def test_the_key_is_at_the_sentence_nearest_to_its_depth(pieces: PasskeyPieces) -> None:
    prompts = PasskeyPrompts(pieces, 6000)
    sizes = np.diff(pieces.wording.ends, prepend=0)
    for row in range(12):
        tokens, needle, depth = whole(prompts, row).tolist(), pieces.needles[row].tolist(), pieces.depths[row]
        (place,) = (i for i in range(len(tokens)) if tokens[i : i + len(needle)] == needle)
        text = prompts.prompt_tokens - len(pieces.wording.instruction) - len(needle) - len(pieces.wording.question)
        before = place - len(pieces.wording.instruction)
        assert abs(before - depth * text) <= sizes.max() / 2
        if depth in (0, 1):
            assert before == depth * text
    assert pieces.depths.tolist() == [0.0] * 3 + [0.3] * 3 + [0.5] * 3 + [1.0] * 3


@given(data=st.data())
@settings(max_examples=50)
def test_prompts_can_be_read_in_segments(data: st.DataObject) -> None:
    pieces = passkey_pieces(SPEC, TOKENIZERS["bpe"], seed=3)
    length = pieces.shortest + data.draw(st.integers(0, 300))
    prompts = PasskeyPrompts(pieces, length)
    rows = np.array(data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=4)))
    inputs, targets = prompts.read(rows, 0, length - 1)
    np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])
    start = data.draw(st.integers(0, length - 1))
    stop = data.draw(st.integers(start, length - 1))
    part = prompts.read(rows, start, stop)
    np.testing.assert_array_equal(part[0], inputs[:, start:stop])
    np.testing.assert_array_equal(part[1], targets[:, start:stop])


def test_keys_depend_on_seeds_and_are_the_same_at_every_length() -> None:
    tokenizer = ByteTokenizer()
    keys = {
        (seed, run): [
            tokenizer.decode(key) for key in passkey_pieces(SPEC.model_copy(update={"seed": seed}), tokenizer, run).keys
        ]
        for seed in (1, 2)
        for run in (3, 4)
    }
    assert len({key for drawn in keys.values() for key in drawn}) == 4 * 12
    more = passkey_pieces(SPEC.model_copy(update={"seed": 1, "trials": 5}), tokenizer, 3)
    fewer = [tokenizer.decode(key) for row, key in enumerate(more.keys) if row % 5 < 3]
    assert fewer == keys[1, 3]
    assert len(set(more.last.tolist())) > 2


@pytest.mark.parametrize("digits", [1, 3, 18])
def test_keys_have_the_right_number_of_digits(digits: int) -> None:
    pieces = passkey_pieces(SPEC.model_copy(update={"digits": digits}), ByteTokenizer(), 3)
    assert all(re.fullmatch(rf" \d{{{digits}}}", ByteTokenizer().decode(key)) for key in pieces.keys)


def test_some_keys_of_bpe_are_shorter() -> None:
    """Otherwise the tests above would not check the padding of shorter keys."""
    assert len({len(key) for key in passkey_pieces(SPEC, TOKENIZERS["bpe"], 3).keys}) > 1


def test_a_length_without_room_is_refused(pieces: PasskeyPieces) -> None:
    with pytest.raises(DataError, match=f"^length {pieces.shortest - 1}: too short .* need {pieces.shortest} tokens$"):
        PasskeyPrompts(pieces, pieces.shortest - 1)


@pytest.mark.parametrize("instruction", [False, True])
@pytest.mark.parametrize("digits", [1, 5])
def test_the_plan_knows_the_shortest_prompt_in_bytes(digits: int, instruction: bool) -> None:
    spec = SPEC.model_copy(update={"digits": digits, "instruction": instruction})
    assert least_bytes(digits, instruction) == passkey_pieces(spec, ByteTokenizer(), 3).shortest


def test_a_tokenizer_without_digits_is_refused() -> None:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.train_from_iterator([f"{INSTRUCTION}{ROUND}"], tokenizers.trainers.BpeTrainer(show_progress=False))
    with pytest.raises(DataError, match=r"^the tokenizer cannot represent the key \d{5}: it gives '.*'$"):
        passkey_pieces(SPEC, JsonTokenizer(model.to_str(), 1000, "test"), 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"lengths": [512, 256]}, "lengths: must ascend"),
        ({"lengths": [256], "depths": [0.5, 0.5]}, "depths: must ascend"),
        ({"lengths": [256], "depths": [1.5]}, "depths.0: expected a number up to 1, got 1.5"),
        ({"lengths": []}, "lengths"),
    ],
)
def test_wrong_settings_are_named(content: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Passkey.parse(content, "test")
