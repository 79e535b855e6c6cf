"""The batches of a task: examples one after another, or a finite set in epochs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import make_task

from ssm.data.batches import IGNORE_INDEX, StreamBatches, WindowBatches
from ssm.data.store import TokenStore
from ssm.data.training_batches import TaskBatches, training_batches

MIX = [{"shortest": 6, "longest": 9}]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, TokenStore]:
    folder = tmp_path_factory.mktemp("copies")
    return {count: make_task(folder / str(count), task="copy", mix=MIX, examples=count) for count in (None, 1, 13)}


def batches_of(store: TokenStore, size: int, stream: bool = False, seed: int = 4) -> TaskBatches:
    batches = training_batches(store, 32, size, stream, seed)
    assert isinstance(batches, TaskBatches)
    return batches


def test_batches_of_text(store: TokenStore) -> None:
    assert isinstance(training_batches(store, 16, 4, False, 1), WindowBatches)
    assert isinstance(training_batches(store, 16, 4, True, 1), StreamBatches)
    batch = training_batches(store, 16, 4, False, 1).batch(0)
    assert not batch.answers
    assert batch.target_count == 64


def test_a_batch_holds_examples_and_padding(copies: dict[int | None, TokenStore]) -> None:
    batches = batches_of(copies[None], 5)
    batch, examples = batches.batch(3), batches.generator.make(np.arange(15, 20))
    width = examples.target_mask.shape[1]
    assert batch.inputs.shape == batch.targets.shape == (5, 32)
    np.testing.assert_array_equal(batch.inputs[:, :width], examples.inputs)
    np.testing.assert_array_equal(batch.targets[:, :width], examples.targets)
    assert (batch.inputs[:, width:] == 0).all()
    assert (batch.targets[:, width:] == IGNORE_INDEX).all()
    assert batch.answers
    assert batch.target_count == examples.target_mask.sum()
    assert batch.starts is None
    far = batches.batch(10**7)
    assert not torch.equal(far.inputs, batch.inputs)


def test_in_a_stream_every_example_is_a_start(copies: dict[int | None, TokenStore]) -> None:
    shuffled, stream = (batches_of(copies[None], 5, stream).batch(2) for stream in (False, True))
    assert torch.equal(shuffled.inputs, stream.inputs), "the order is the same"
    assert stream.starts is not None
    assert stream.starts[:, 0].all()
    assert not stream.starts[:, 1:].any()


@settings(max_examples=40)
@given(count=st.sampled_from([None, 1, 13]), size=st.integers(1, 30), step=st.integers(0, 20), data=st.data())
def test_some_rows_equal_those_of_the_batch(
    count: int | None, size: int, step: int, data: st.DataObject, copies: dict[int | None, TokenStore]
) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start + 1, size))
    batches = batches_of(copies[count], size)
    whole, part = batches.batch(step), batches.batch(step, slice(start, stop))
    assert torch.equal(part.inputs, whole.inputs[start:stop])
    assert torch.equal(part.targets, whole.targets[start:stop])


@settings(max_examples=40)
@given(size=st.integers(1, 30), seed=st.integers(0, 100))
def test_a_finite_set_is_read_in_epochs(size: int, seed: int, copies: dict[int | None, TokenStore]) -> None:
    batches = batches_of(copies[13], size, seed=seed)
    indices = batches.indices(np.arange(5 * 13)).reshape(5, 13)
    for epoch in indices:
        assert sorted(epoch) == list(range(13))
    assert len({tuple(epoch) for epoch in indices}) > 1, "epochs have different orders"
    read = np.concatenate([batches.batch(step).inputs.numpy() for step in range(-(-26 // size))])
    assert len(np.unique(read, axis=0)) == 13


def test_seeds_have_different_examples_and_orders(copies: dict[int | None, TokenStore]) -> None:
    one, other = (batches_of(copies[None], 8, seed=seed).batch(0).inputs for seed in (1, 2))
    assert not (one == other).all(1).any()
    first, second = (batches_of(copies[13], 8, seed=seed).indices(np.arange(13)).tolist() for seed in (1, 2))
    assert first != second


def test_the_store_of_a_task_is_a_manifest(copies: dict[int | None, TokenStore]) -> None:
    store = copies[None]
    assert [path.name for path in store.folder.iterdir()] == ["manifest.json"]
    assert (store.train.n_tokens, store.held_out.n_tokens) == (0, 0)
    assert store.spec.vocab_size == store.vocab_size == 30
