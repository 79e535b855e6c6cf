"""Initial-state policies: the start of a batch, what is learned from its end, and how both resume."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from models import tiny
from torch import Tensor

from ssm.base.discovery import RegistryError
from ssm.models.state import State
from ssm.specs.initial_states import SPECS, InitialStateSpec
from ssm.specs.initial_states.fitted_noise import FittedNoise
from ssm.specs.initial_states.random_noise import RandomNoise
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.tbtt import Tbtt
from ssm.specs.initial_states.zero import ZeroState
from ssm.training.distributed import SINGLE_PROCESS
from ssm.training.initial_states import build_policy
from ssm.training.initial_states.base import Policy
from ssm.training.initial_states.fitted_noise import moments_of, pooled

CPU = torch.device("cpu")
NOISES = (RandomNoise(sigma=0.3, p_zero=0.2), FittedNoise(p_zero=0.2))
PASSING = (StatePassing(p_zero=0.2), Tbtt(p_zero=0.2))


def ended(seed: int = 0, batch: int = 6, heads: int = 3, elements: tuple[int, int] = (4, 5)) -> State:
    """A final state of two layers, whose heads differ in mean and variance."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for layer in range(2):
        scale = torch.arange(1.0, heads + 1).view(-1, 1, 1) * (layer + 1)
        memory = scale * (torch.randn(batch, heads, *elements, generator=generator) + 0.5)
        layers.append({"memory": memory, "conv": torch.randn(batch, 3, 7, generator=generator)})
    return State(tuple(layers))


def policy_after(spec: InitialStateSpec, *states: State, seed: int = 1) -> Policy:
    """A policy that has learned from these final states."""
    policy = build_policy(spec, seed, SINGLE_PROCESS)
    for state in states:
        learn(policy, state)
    return policy


def learn(policy: Policy, *parts: State) -> None:
    """Learn from a batch that ended in these states, one per micro-batch."""
    for part in parts:
        policy.see(part.detach())
    policy.learn()


def start(policy: Policy, step: int = 2, batch: int = 6) -> State:
    state = policy.start(step, batch, CPU)
    assert state is not None
    return state


def same(one: State, other: State) -> bool:
    pairs = zip(tiny.flat(one), tiny.flat(other), strict=True)
    return one.tensors().keys() == other.tensors().keys() and all(torch.equal(a, b) for a, b in pairs)


def zeroed(state: State) -> Tensor:
    """(B,) bool: rows in which all recurrent states are zero."""
    return torch.stack([tensor.flatten(1).abs().amax(1) == 0 for tensor in state.recurrent_states()]).all(0)


def test_zero_never_passes_a_state() -> None:
    policy = policy_after(ZeroState(), ended())
    assert policy.start(5, 6, CPU) is None
    assert policy.tensors() == {}


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
def test_the_first_batch_starts_from_zero(spec: InitialStateSpec) -> None:
    assert build_policy(spec, 1, SINGLE_PROCESS).start(1, 6, CPU) is None


# --- Noise ------------------------------------------------------------------------------------------------------------


def test_random_noise_has_mean_zero_and_its_sigma_everywhere() -> None:
    """lg Section 4.2: one N(0, sigma^2) for all layers and heads, independent of the final states."""
    state = start(policy_after(RandomNoise(sigma=0.3), ended(batch=2)), batch=4000)
    for memory in state.recurrent_states():
        n = memory[:, 0].numel()
        for head in memory.unbind(1):
            assert abs(float(head.mean())) < 5 * 0.3 / math.sqrt(n)
            assert float(head.std()) == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(2 * n))
        tails = (memory.abs() > 2 * 0.3).double().mean()
        assert float(tails) == pytest.approx(0.0455, abs=0.003)  # the tails of a normal distribution
        assert abs(float((memory[0::2] * memory[1::2]).mean())) < 0.001  # rows are independent


def test_random_noise_of_sigma_zero_is_the_zero_state() -> None:
    assert zeroed(start(policy_after(RandomNoise(sigma=0.0), ended()))).all()


def fitted(policy: Policy) -> list[list[list[float]]]:
    """For each layer, the means and the variances by head."""
    return [policy.tensors()[f"moments.{layer}"].tolist() for layer in range(2)]


def two_heads(first: list[float], second: list[float]) -> State:
    """Two layers, the second twice the first. A batch of two rows, each with two heads of one row of values."""
    values = torch.tensor([first, second])  # (B, H * elements)
    memory = values.view(2, 2, 1, -1)
    return State(({"memory": memory, "conv": torch.ones(2, 1, 1)}, {"memory": 2 * memory, "conv": torch.ones(2, 1, 1)}))


def test_fitted_noise_keeps_moving_moments_by_layer_and_head() -> None:
    """lg eq. 5 and 6, two batches computed by hand: new <- (1 - beta) batch + beta old, beta = 0.1."""
    policy = policy_after(FittedNoise(beta=0.1), two_heads([1.0, 3.0, 0.0, 4.0], [5.0, 7.0, 2.0, 2.0]))
    # head 0: 1, 3, 5, 7 has mean 4 and variance (9 + 1 + 1 + 9) / 4 = 5; head 1: 0, 4, 2, 2 has 2 and 2
    assert fitted(policy) == [[[4.0, 2.0], [5.0, 2.0]], [[8.0, 4.0], [20.0, 8.0]]]
    learn(policy, two_heads([10.0, 10.0, -1.0, 1.0], [10.0, 30.0, -1.0, 1.0]))
    # head 0: 10, 10, 10, 30 has mean 15 and variance (3 * 25 + 225) / 4 = 75; head 1: 0 and 1
    means, variances = [0.9 * 15 + 0.1 * 4, 0.9 * 0 + 0.1 * 2], [0.9 * 75 + 0.1 * 5, 0.9 * 1 + 0.1 * 2]
    for layer, factor in ((0, 1), (1, 2)):
        got_means, got_variances = fitted(policy)[layer]
        assert got_means == pytest.approx([factor * mean for mean in means])
        assert got_variances == pytest.approx([factor**2 * variance for variance in variances])


def test_pooled_moments_equal_those_of_the_whole_batch() -> None:
    """Parts of several sizes, with means far from each other and from zero: no precision is lost."""
    batch = ended(batch=6, heads=3).map(
        lambda tensor: tensor + 1000 + torch.arange(6.0).view(-1, *[1] * (tensor.dim() - 1))
    )
    parts = [batch.select(rows) for rows in torch.arange(6).split([1, 3, 2])]
    mean, variance = pooled(torch.stack([moments_of(part) for part in parts]), torch.tensor([1, 3, 2]))
    heads = torch.cat([memory.double().transpose(0, 1).flatten(1) for memory in batch.recurrent_states()])
    torch.testing.assert_close(mean.double(), heads.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), heads.var(1, correction=0), rtol=1e-3, atol=0)


def test_fitted_noise_draws_from_its_moments() -> None:
    policy = policy_after(FittedNoise(), ended(batch=50))
    state = start(policy, batch=4000)
    for memory, (means, variances) in zip(state.recurrent_states(), fitted(policy), strict=True):
        for head, mean, variance in zip(memory.unbind(1), means, variances, strict=True):
            n = head.numel()
            assert float(head.mean()) == pytest.approx(mean, abs=5 * math.sqrt(variance / n))
            assert float(head.var()) == pytest.approx(variance, rel=5 * math.sqrt(2 / n))
    assert len({round(mean, 3) for means, _ in fitted(policy) for mean in means}) == 6  # all heads differ


@pytest.mark.parametrize("spec", NOISES, ids=lambda spec: spec.policy)
def test_noise_affects_only_the_memory(spec: InitialStateSpec) -> None:
    state = start(policy_after(spec, ended()))
    assert all(layer["conv"].abs().max() == 0 for layer in state.layers)
    assert all(memory.abs().max() > 0 for memory in state.recurrent_states())


@pytest.mark.parametrize("spec", NOISES, ids=lambda spec: spec.policy)
def test_noise_takes_any_batch_size(spec: InitialStateSpec) -> None:
    state = start(policy_after(spec, ended(batch=6)), batch=11)
    assert [tuple(tensor.shape) for tensor in tiny.flat(state)] == [(11, 3, 7), (11, 3, 4, 5)] * 2


# --- Passing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [StatePassing(p_zero=0.0), Tbtt()], ids=lambda spec: spec.policy)
def test_passing_uses_the_whole_last_state(spec: InitialStateSpec) -> None:
    """Row by row, also the convolution's inputs, and only from the last batch."""
    policy = policy_after(spec, ended(0), ended(1))
    assert same(start(policy), ended(1))


def test_the_gradient_stops_at_the_border() -> None:
    """As in the training loop: detached final states of a model start the next batch."""
    model = tiny.model()
    policy = build_policy(StatePassing(p_zero=0.0), 1, SINGLE_PROCESS)
    _, final = model(tiny.tokens(0, 2, 5))
    learn(policy, final)
    passed = start(policy, batch=2)
    assert not any(tensor.requires_grad for tensor in tiny.flat(passed))
    assert same(passed, final)
    assert not torch.equal(model(tiny.tokens(1, 2, 5), passed)[0], model(tiny.tokens(1, 2, 5))[0])


# --- Rows that start from zero ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
def test_a_share_of_rows_starts_from_zero(spec: InitialStateSpec) -> None:
    n = 3000
    policy = policy_after(spec, ended(batch=n, elements=(1, 2)))
    state = start(policy, batch=n)
    rows = zeroed(state)
    assert float(rows.double().mean()) == pytest.approx(0.2, abs=5 * math.sqrt(0.2 * 0.8 / n))
    for tensor in tiny.flat(state):
        assert tensor[rows].abs().max() == 0  # every part of the state
    assert not torch.equal(rows, zeroed(start(policy, step=3, batch=n)))  # other rows at the next step


@pytest.mark.parametrize("spec", PASSING, ids=lambda spec: spec.policy)
def test_other_rows_are_not_changed(spec: InitialStateSpec) -> None:
    state = start(policy_after(spec, ended(batch=200)), batch=200)
    rows = zeroed(state)
    for got, expected in zip(tiny.flat(state), tiny.flat(ended(batch=200)), strict=True):
        assert torch.equal(got[~rows], expected[~rows])


@pytest.mark.parametrize("spec", PASSING, ids=lambda spec: spec.policy)
def test_a_zeroed_row_drops_even_nan(spec: InitialStateSpec) -> None:
    broken = ended(batch=100).map(lambda tensor: torch.full_like(tensor, math.nan))
    state = start(policy_after(spec, broken), batch=100)
    rows = zeroed(state)
    assert 0 < rows.sum() < 100
    assert all(tensor[rows].isfinite().all() and tensor[~rows].isnan().all() for tensor in tiny.flat(state))


# --- Randomness and resuming ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
def test_draws_are_a_function_of_seed_and_step(spec: InitialStateSpec) -> None:
    batch = 64

    def drawn(seed: int, step: int, global_seed: int = 0) -> State:
        torch.manual_seed(global_seed)
        return start(policy_after(spec, ended(batch=batch), seed=seed), step, batch)

    assert same(drawn(1, 2), drawn(1, 2, global_seed=9))
    assert not same(drawn(1, 2), drawn(1, 3))
    assert not same(drawn(1, 2), drawn(2, 2))


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
def test_global_random_numbers_are_not_used(spec: InitialStateSpec) -> None:
    policy = policy_after(spec, ended())
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    start(policy)
    learn(policy, ended(1))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
@pytest.mark.parametrize("learned", [0, 1, 2])
def test_a_resumed_policy_continues_identically(spec: InitialStateSpec, learned: int) -> None:
    """Saved and loaded as flat tensors, and continued for two more batches."""
    policy = policy_after(spec, *(ended(seed) for seed in range(learned)))
    resumed = build_policy(spec, 1, SINGLE_PROCESS)
    resumed.load({name: tensor.clone() for name, tensor in sorted(policy.tensors().items())})
    for step in (3, 4):
        one, other = policy.start(step, 6, CPU), resumed.start(step, 6, CPU)
        assert one is other is None or same(one, other)  # type: ignore[arg-type]
        learn(policy, ended(step))
        learn(resumed, ended(step))


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
def test_a_resumed_policy_continues_on_another_device(spec: InitialStateSpec) -> None:
    """A checkpoint is loaded onto the CPU, whatever device trains. "meta" plays that device here."""
    resumed = build_policy(spec, 1, SINGLE_PROCESS)
    resumed.load(policy_after(spec, ended()).tensors())
    learn(resumed, ended(1).map(lambda tensor: tensor.to("meta")))


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
@pytest.mark.parametrize("sizes", [[3, 3], [1, 3, 2], [1] * 6], ids=str)
def test_micro_batches_teach_the_same_as_their_batch(spec: InitialStateSpec, sizes: list[int]) -> None:
    """For any sizes of micro-batches."""
    whole, parts = policy_after(spec, ended(0), ended(1)), policy_after(spec)
    for seed in (0, 1):
        learn(parts, *(ended(seed).select(rows) for rows in torch.arange(6).split(sizes)))
    assert whole.tensors().keys() == parts.tensors().keys()
    for name, tensor in whole.tensors().items():
        torch.testing.assert_close(parts.tensors()[name], tensor, rtol=1e-5, atol=1e-6)
    assert spec.policy == "fitted_noise" or same(start(whole), start(parts))


@pytest.mark.parametrize("spec", [*NOISES, *PASSING], ids=lambda spec: spec.policy)
@pytest.mark.parametrize("learned", [0, 1])
def test_micro_batches_change_nothing_before_the_end_of_their_batch(spec: InitialStateSpec, learned: int) -> None:
    """A run may stop between two micro-batches. Its checkpoint is that of the step before."""
    policy, before = (policy_after(spec, *(ended(seed) for seed in range(learned))) for _ in range(2))
    policy.see(ended(9).select(torch.arange(2)))
    assert policy.tensors().keys() == before.tensors().keys()
    assert all(torch.equal(policy.tensors()[name], tensor) for name, tensor in before.tensors().items())


def test_unknown_needs_are_one_line_with_the_file() -> None:
    with pytest.raises(RegistryError, match=r"^training/.*\.py: unknown needs 'a recurrence'; did you mean "):
        type("Jitter", (RandomNoise,), {"needs": "a recurrence", "__module__": "training.jitter"})


def test_every_policy_of_the_specs_is_tested() -> None:
    specs: tuple[Any, ...] = (ZeroState(), *NOISES, *PASSING)
    assert [build_policy(spec, 0, SINGLE_PROCESS).spec for spec in specs] == list(specs)
    assert {type(spec) for spec in specs} == set(SPECS.values())
