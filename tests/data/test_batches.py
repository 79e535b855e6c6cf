"""Batches: every window once per epoch, streams without gaps, everything as a function of (seed, step)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ssm.base.errors import DataError
from ssm.data.batches import Batch, ShuffledWindows, StreamBatches, WindowBatches, held_out_windows
from ssm.data.order import Permutation
from ssm.data.store import TokenSplit

SEEDS = st.integers(0, 2**31)


def counting(n: int, shard_tokens: int = 37, documents: tuple[int, ...] = (0,)) -> TokenSplit:
    """A split in which every token is its own position, over several shards."""
    tokens = np.arange(n, dtype=np.uint32)
    shards = [tokens[start : start + shard_tokens] for start in range(0, n, shard_tokens)]
    return TokenSplit("split", shards, np.array(documents), n)


def same(one: Batch, other: Batch) -> bool:
    pairs = zip((one.inputs, one.targets, one.starts), (other.inputs, other.targets, other.starts), strict=True)
    return all(a is b is None or torch.equal(a, b) for a, b in pairs)


@given(st.integers(1, 3000), SEEDS)
def test_a_permutation_has_every_element_once(n: int, seed: int) -> None:
    images = Permutation(n, np.random.default_rng(seed))(np.arange(n))
    assert sorted(images.tolist()) == list(range(n))


def test_a_large_permutation_looks_random() -> None:
    n, k = 10**12 + 39, 20_000
    permutation = Permutation(n, np.random.default_rng(0))
    images = permutation(np.arange(k))
    assert len(set(images.tolist())) == k
    assert images.min() >= 0
    assert images.max() < n
    uniform = np.sort(images / n)
    assert np.abs(uniform - np.arange(k) / k).max() < 1.95 / k**0.5  # Kolmogorov-Smirnov at 0.1%
    for values in (images, images % 1000, images % permutation.width):
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 4 / k**0.5
    small = np.stack([Permutation(50, np.random.default_rng(seed))(np.arange(50)) for seed in range(2000)])
    counts = np.stack([np.bincount(column, minlength=50) for column in small.T])  # element x image
    assert ((counts - 40) ** 2 / 40).sum() / (49 * 49) < 1.15  # chi-squared per degree of freedom; its error is 0.03


@settings(max_examples=60)
@given(st.integers(2, 400), st.integers(1, 20), st.integers(1, 9), SEEDS)
def test_an_epoch_has_every_window_once_and_no_window_leaves_the_split(n: int, context: int, size: int, seed: int):
    assume(n > context)
    batches = WindowBatches(counting(n), context, size, seed)
    steps = -(-3 * batches.windows // size)  # slightly more than three epochs
    windows = torch.cat([batches.batch(step).inputs for step in range(steps)])
    targets = torch.cat([batches.batch(step).targets for step in range(steps)])
    assert windows.shape[1] == context
    assert torch.equal(targets, windows + 1)  # tokens are positions, so targets are next tokens in the split
    assert torch.equal(windows, windows[:, :1] + torch.arange(context))
    assert batches.windows == max(1, (n - context) // context)
    for epoch in range(3):
        starts = windows[epoch * batches.windows : (epoch + 1) * batches.windows, 0]
        assert sorted((starts - starts.min()).tolist()) == [context * i for i in range(batches.windows)]
        assert starts.min() < context  # an epoch leaves out only the ends


def test_epochs_differ_in_order_and_offset() -> None:
    batches = WindowBatches(counting(5000), 16, 1, 0)
    epochs = np.array([batches.positions(step)[0] for step in range(4 * batches.windows)]).reshape(4, -1)
    assert len({int(epoch.min()) for epoch in epochs}) > 1
    orders = {tuple(epoch - epoch.min()) for epoch in epochs}
    assert len(orders) == 4


@pytest.mark.parametrize("block", [1, 3, 16])
def test_the_order_does_not_depend_on_the_block_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (WindowBatches(counting(997), 16, 5, 7) for _ in range(2))  # 61 windows per epoch
    expected = [one.positions(step) for step in range(40)]
    monkeypatch.setattr("ssm.data.batches.BLOCK", block)
    for step in [*range(40), 3, 20, 4, 39]:
        assert np.array_equal(other.positions(step), expected[step])


@settings(max_examples=60)
@given(st.integers(2, 300), st.integers(1, 30), st.integers(1, 9), SEEDS, st.data())
def test_streams_read_the_text_without_gaps(n: int, context: int, size: int, seed: int, data: st.DataObject) -> None:
    assume(n > context)
    documents = (0, *sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=9))))
    batches = StreamBatches(counting(n, documents=documents), context, size, seed)
    steps = -(-2 * n // context)  # every stream passes the end
    made = [batches.batch(step) for step in range(steps)]
    inputs = torch.cat([batch.inputs for batch in made], 1)  # (B, steps * T)
    targets = torch.cat([batch.targets for batch in made], 1)
    starts = torch.cat([batch.starts for batch in made if batch.starts is not None], 1)
    assert torch.equal(inputs, (inputs[:, :1] + torch.arange(inputs.shape[1])) % n)
    assert torch.equal(targets, (inputs + 1) % n)
    assert torch.equal(starts, torch.isin(inputs, torch.tensor(documents)))


@given(st.integers(1, 12), SEEDS)
def test_streams_start_evenly_spread_and_read_an_epoch_together(size: int, seed: int) -> None:
    n = 20 * size
    batches = StreamBatches(counting(n), 5, size, seed)
    origins = np.sort(batches.origins)
    assert np.all(np.diff(origins) == 20)
    epoch = torch.cat([batches.batch(step).inputs for step in range(4)], 1)
    assert sorted(epoch.flatten().tolist()) == list(range(n))


@pytest.mark.parametrize("kind", [WindowBatches, StreamBatches])
def test_a_batch_is_a_function_of_seed_and_step(kind: type[WindowBatches] | type[StreamBatches]) -> None:
    split = counting(997, documents=(0, 100, 500))
    one = kind(split, 16, 4, 7)
    walked = [one.batch(step) for step in range(300)]  # five epochs
    for step in (299, 0, 150, 61, 62, 63):
        assert same(kind(split, 16, 4, 7).batch(step), walked[step])
        assert same(one.batch(step), walked[step])
    assert not any(same(kind(split, 16, 4, 8).batch(step), walked[step]) for step in range(20))


def test_the_order_of_a_text_stays_as_it_was() -> None:
    """Another order would change the results of every run, which could then not be repeated."""
    windows = WindowBatches(counting(5000), 16, 4, 7)
    assert [windows.positions(step).tolist() for step in (0, 100)] == [[2389, 997, 3253, 2421], [1130, 3834, 282, 3130]]
    assert StreamBatches(counting(240), 5, 6, 7).origins.tolist() == [185, 225, 145, 25, 65, 105]
    assert held_out_windows(counting(5000), 4, 64, 7).positions.tolist() == [817, 899, 4276, 493]


@pytest.mark.parametrize("kind", [WindowBatches, StreamBatches])
def test_batches_are_contiguous_integers(kind: type[WindowBatches] | type[StreamBatches]) -> None:
    batch = kind(counting(500), 8, 4, 0).batch(3)
    for tensor in (batch.inputs, batch.targets):
        assert tensor.shape == (4, 8)
        assert tensor.dtype == torch.int64
        assert tensor.is_contiguous()
    assert (batch.starts is None) == (kind is WindowBatches)


@settings(max_examples=60)
@given(st.integers(2, 300), st.data(), SEEDS)
def test_held_out_windows_can_be_read_in_any_segments(n: int, data: st.DataObject, seed: int) -> None:
    length = data.draw(st.integers(1, n - 1))
    windows = held_out_windows(counting(n), 6, length, seed)
    inputs, targets = windows.read(slice(None), 0, length)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(length))
    assert torch.equal(targets, inputs + 1)
    cut = data.draw(st.integers(0, length))
    parts = [windows.read(slice(None), 0, cut), windows.read(slice(None), cut, length)]
    assert torch.equal(torch.cat([part[0] for part in parts], 1), inputs)
    assert torch.equal(torch.cat([part[1] for part in parts], 1), targets)
    assert torch.equal(windows.read(np.array([4, 1]), 0, cut)[0], inputs[[4, 1], :cut])
    fewer = held_out_windows(counting(n), 3, length, seed)
    assert np.array_equal(fewer.positions, windows.positions[:3])
    with pytest.raises(IndexError, match="segment"):
        windows.read(slice(None), 0, length + 1)


@given(st.integers(2, 9), st.integers(1, 40), st.integers(1, 12), st.data(), SEEDS)
def test_shuffled_windows_exchange_their_chunks(
    sequences: int, length: int, chunk: int, data: st.DataObject, seed: int
) -> None:
    """Every chunk is read once at its own place. A sequence repeats a window only after all others."""
    plain = held_out_windows(counting(100), sequences, length, seed)
    shuffled = ShuffledWindows(plain.split, plain.positions, length, chunk)
    rows, positions = np.arange(sequences), np.arange(length)
    windows = shuffled.windows_at(rows, positions)  # (sequences, length)
    assert (np.sort(windows, axis=0) == rows[:, None]).all()
    of_chunks = windows[:, ::chunk]
    assert np.array_equal(of_chunks.repeat(chunk, axis=1)[:, :length], windows)
    for place in range(of_chunks.shape[1]):
        recent = of_chunks[:, max(0, place - sequences + 1) : place]
        assert not (recent == of_chunks[:, [place]]).any()
    assert np.array_equal(of_chunks[:, 0], rows)
    cut = data.draw(st.integers(0, length))
    some = data.draw(st.lists(st.integers(0, sequences - 1), min_size=1, unique=True))
    parts = [shuffled.read(np.array(some), *ends) for ends in ((0, cut), (cut, length))]
    inputs, targets = (torch.cat(pair, 1) for pair in zip(*parts, strict=True))
    expected = torch.from_numpy(plain.positions[windows[some]] + positions)  # a token is its own position
    assert torch.equal(inputs, expected)
    assert torch.equal(targets, expected + 1)


def test_every_position_of_a_held_out_window_is_drawn() -> None:
    positions = held_out_windows(counting(20), 2000, 15, 0).positions
    assert positions.max() == 4
    assert np.bincount(positions).min() > 300  # 5 positions with 400 draws each, standard deviation 18


def test_a_million_tokens_are_read_in_segments(tmp_path: Path) -> None:
    n, length = 1_500_000, 1_000_000
    np.arange(n, dtype="<u4").tofile(tmp_path / "tokens")
    mapped = np.asarray(np.memmap(tmp_path / "tokens", "<u4", mode="r"))

    class Watched(TokenSplit):
        largest = 0

        def rows(self, starts: np.ndarray, length: int) -> np.ndarray:
            self.largest = max(self.largest, len(starts) * length)
            return super().rows(starts, length)

    split = Watched("split", [mapped], np.array([0]), n)
    windows = held_out_windows(split, 2, length, 0)
    for start in range(0, length, 2**16):
        stop = min(start + 2**16, length)
        inputs, _ = windows.read(slice(0, 2), start, stop)
        assert inputs[:, 0].tolist() == (windows.positions + start).tolist()
    assert split.largest == 2 * (2**16 + 1)


def test_a_split_that_is_too_short_is_one_clear_line() -> None:
    split = counting(20)
    for make in (WindowBatches, StreamBatches):
        make(split, 19, 2, 0).batch(0)
        with pytest.raises(DataError) as error:
            make(split, 20, 2, 0)
        assert str(error.value) == (
            "split: 20 tokens, context 20 needs 21; "
            "give a larger corpus, another 'held_out' share, or a context of at most 19"
        )
    with pytest.raises(DataError, match=r"split: 20 tokens, length 64 needs 65; .* length of at most 19$"):
        held_out_windows(split, 2, 64, 0)


def test_a_split_without_tokens_is_told_no_length() -> None:
    with pytest.raises(DataError, match=r"0 tokens, length 8 needs 9; give a larger corpus, another 'held_out' share$"):
        held_out_windows(counting(0), 2, 8, 0)
