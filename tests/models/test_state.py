"""The state: selection, resets and norms against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from models import tiny

from ssm.models.state import State, joined

NAN = math.nan


def hand_made() -> State:
    """Two sequences. One layer has two heads with one value, the other layer has one head with two values."""
    first = {
        "memory": torch.tensor([[[[1.0]], [[2.0]]], [[[0.0]], [[-2.0]]]]),
        "conv": torch.tensor([[[9.0]], [[7.0]]]),
    }
    second = {"memory": torch.tensor([[[[2.0, 4.0]]], [[[1.0, 4.0]]]])}
    return State((first, second))


def test_the_norm_includes_the_memories_of_all_layers() -> None:
    assert hand_made().norm().square().tolist() == pytest.approx([25.0, 21.0])  # 1 + 4 + 4 + 16, and 0 + 4 + 1 + 16


def test_the_norm_of_half_precision_is_float32() -> None:
    state = hand_made().map(lambda tensor: tensor.to(torch.float16) * 300)
    assert state.norm()[0] == 1500  # 300 squared overflows float16


def test_select_takes_rows_in_order() -> None:
    state = hand_made().select(torch.tensor([1, 1, 0]))
    assert state.batch_size == 3
    assert state.layers[0]["conv"].flatten().tolist() == [7.0, 7.0, 9.0]
    assert state.layers[1]["memory"][:, 0, 0].tolist() == [[1.0, 4.0], [1.0, 4.0], [2.0, 4.0]]


def test_joined_parts_of_a_batch() -> None:
    state = hand_made()
    first, second = (state.select(torch.tensor([row])) for row in (0, 1))
    for joint, rows in ((joined([first, second]), [0, 1]), (joined([second, first]), [1, 0]), (joined([first]), [0])):
        expected = state.select(torch.tensor(rows))
        assert [layer.keys() for layer in joint.layers] == [layer.keys() for layer in expected.layers]
        assert all(torch.equal(a, b) for a, b in zip(tiny.flat(joint), tiny.flat(expected), strict=True))


def test_all_tensors_move_to_a_device() -> None:
    assert {tensor.device.type for tensor in tiny.flat(hand_made().to("meta"))} == {"meta"}


def test_reset_zeroes_rows_that_are_not_finite() -> None:
    state = hand_made()
    state.layers[0]["memory"][1, 0] = NAN
    state.layers[0]["conv"][1] = math.inf
    after = state.reset(torch.tensor([False, True]))
    assert all(tensor[1].abs().max() == 0 for tensor in tiny.flat(after))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(tiny.flat(after), tiny.flat(hand_made()), strict=True))
    assert state.layers[0]["memory"][1, 0].isnan().all()  # the state itself does not change


def test_reset_of_layers() -> None:
    layers = [{"memory": torch.ones(2, 3, 4), "conv": torch.ones(2, 5)} for _ in range(2)]
    state = State((*layers, {"memory": torch.ones(2, 3, 7, 2, 4), "seen": torch.ones(2, 7, dtype=torch.bool)}))
    assert state.without(()) is state
    after = state.without((1, 2))
    assert after.layers[0] is layers[0]
    assert all(tensor.sum() == 0 for layer in after.layers[1:] for tensor in layer.values())
    assert [tuple(tensor.shape) for tensor in tiny.flat(after)[2:]] == [(2, 5), (2, 3, 4), (2, 3, 0, 2, 4), (2, 0)]
    assert after.norm().tolist() == pytest.approx([12**0.5] * 2)


def test_detach_keeps_the_values() -> None:
    state = hand_made().map(lambda tensor: tensor.clone().requires_grad_() * 2)
    cut = state.detach()
    for before, after in zip(tiny.flat(state), tiny.flat(cut), strict=True):
        assert before.requires_grad
        assert not after.requires_grad
        assert torch.equal(before, after)


def test_zeros_and_other_memories() -> None:
    state = hand_made()
    zeros = state.zeros(5)
    assert [tuple(tensor.shape) for tensor in tiny.flat(zeros)] == [(5, 1, 1), (5, 2, 1, 1), (5, 1, 1, 2)]
    assert all(tensor.abs().max() == 0 for tensor in tiny.flat(zeros))
    other = state.with_recurrent_states([memory + 1 for memory in state.recurrent_states()])
    assert other.layers[0]["memory"].flatten().tolist() == [2.0, 3.0, 1.0, -1.0]
    assert other.layers[0]["conv"].abs().max() == 0
    with pytest.raises(ValueError, match="shorter"):
        state.with_recurrent_states(state.recurrent_states()[:1])


def test_round_trip_of_flat_names() -> None:
    layers = [{"memory": torch.full((2, 1, 1), float(i)), "conv": torch.full((2, 3, 1), -i)} for i in range(12)]
    state = State(tuple(layers))  # "10." comes before "2." in a sorted file
    tensors = state.tensors("last.")
    assert {"last.0.memory", "last.0.conv", "last.11.memory"} <= set(tensors)
    shuffled = dict(sorted(tensors.items())) | {"moments.0": torch.zeros(2)}
    back = State.from_tensors(shuffled, "last.")
    assert len(back.layers) == 12
    for one, other in zip(state.layers, back.layers, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
