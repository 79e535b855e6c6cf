"""RWKV-4's time mixing against transformers; precision, and properties of its memory."""

from __future__ import annotations

import math

import pytest
import torch
from models.mixers import systems
from models.mixers.systems import inputs, move, parsed
from ssm_kernels.testing.numerics import normal, worst
from torch import Tensor, nn

from ssm.models.mixers import build_mixer
from ssm.models.mixers.rwkv4 import Rwkv4
from ssm.specs.initial_states.fitted_noise import FittedNoise
from ssm.training.distributed import SINGLE_PROCESS
from ssm.training.initial_states import build_policy

D = 8


pytestmark = pytest.mark.usefixtures("plain_backend")


def layer(number: int = 1, keys: float = 1.0) -> Rwkv4:
    """Layer `number` of three, with noise on every weight; `keys` scales the keys."""
    torch.manual_seed(0)
    mixer = build_mixer(parsed({"kind": "rwkv4"}), D, 3, number)
    assert isinstance(mixer, Rwkv4)
    move(mixer)
    mixer.key.weight.data *= keys
    return mixer.double()


def halves(memory: Tensor) -> tuple[Tensor, Tensor]:
    """Averages and logarithms of their weights, (B, D) each."""
    average, weight = memory.squeeze(-1).chunk(2, 1)
    return average, weight


def peer_of(mixer: Rwkv4) -> nn.Module:
    """transformers' time mixing of layer 1 with our weights."""
    from transformers import RwkvConfig
    from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

    peer: nn.Module = RwkvSelfAttention(RwkvConfig(hidden_size=D, num_hidden_layers=3), layer_id=1).double()
    names = {"mix_": "time_mix_", "out_proj": "output"}
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            for ours, theirs in names.items():
                name = name.replace(ours, theirs)
            target = peer.get_parameter(name)
            target.copy_(parameter.view_as(target))
    return peer


def their_state(mixer: Rwkv4, state: dict[str, Tensor]) -> list[Tensor]:
    """[ffn's shift, shift, num, den, max], each (B, D, layers), from our state. The maximum is arbitrary."""
    average, weight = halves(state["memory"])
    m = torch.full_like(average, 0.7)
    den = torch.expm1(weight) * torch.exp(-m)
    layers = torch.zeros(3, *average.shape, dtype=torch.float64)

    def placed(x: Tensor) -> Tensor:
        all_layers = layers.clone()
        all_layers[1] = x
        return all_layers.movedim(0, -1)

    return [placed(x) for x in (torch.zeros_like(average), state["shift"], average * den, den, m)]


def test_outputs_state_and_gradients() -> None:
    mixer = layer()
    peer, u = peer_of(mixer), inputs(0, 2, 19)
    y, _ = mixer(u)
    expected, _ = peer(u)
    weight = normal(1, tuple(y.shape))[0]
    names, parameters = zip(*mixer.named_parameters(), strict=True)
    theirs = [peer.get_parameter(n.replace("mix_", "time_mix_").replace("out_proj", "output")) for n in names]
    got = torch.autograd.grad((y * weight).sum(), parameters)
    wanted = torch.autograd.grad((expected * weight).sum(), theirs)
    # transformers computes in float32
    assert worst([y, *got], [expected, *(w.view_as(g) for w, g in zip(wanted, got, strict=True))]) < 1e-5


def test_from_a_state_to_a_state() -> None:
    mixer = layer()
    peer, u = peer_of(mixer), inputs(0, 2, 11)
    with torch.no_grad():
        state = mixer(inputs(1, 2, 6))[1]
        y, ended = mixer(u, state)
        expected, theirs = peer(u, state=their_state(mixer, state), use_cache=True)
        num, den, m = (theirs[i][:, :, 1] for i in (2, 3, 4))
        assert worst([y], [expected]) < 1e-5
        assert worst(halves(ended["memory"]), [num / den, torch.log1p(den * m.exp())]) < 1e-5
        assert torch.equal(ended["shift"], u[:, -1])
        one, _ = mixer.step(u[:, 0], state)
        assert worst([one], [expected[:, 0]]) < 1e-5


@pytest.mark.parametrize("keys", [1.0, 100.0])
def test_a_faded_state_has_smaller_weights(keys: float) -> None:
    """num and den are multiplied, also if e^k overflows: their ratio stays."""
    mixer = layer(keys=keys)
    with torch.no_grad():
        state = mixer(inputs(1, 2, 6))[1]
        faded = mixer.faded(state, 0.25)
        empty = mixer.faded({name: torch.zeros_like(x) for name, x in state.items()}, 0.25)
    average, weight = halves(state["memory"])
    assert torch.equal(halves(faded["memory"])[0], average)
    tiny = torch.finfo(torch.float64).tiny
    den, fading = (torch.log(torch.expm1(w).clamp_min(tiny)) for w in (weight, halves(faded["memory"])[1]))
    torch.testing.assert_close(fading, den + math.log(0.25))
    assert torch.equal(faded["shift"], state["shift"])
    assert all(not x.any() for x in empty.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keys", [1.0, 100.0])
def test_large_keys_neither_overflow_nor_lose_precision(keys: float, dtype: torch.dtype) -> None:
    """Weights e^k that overflow, against averages in float64 with one maximum for all tokens."""
    mixer = layer(keys=keys)
    u = inputs(2, 2, 40)
    with torch.no_grad():
        before = torch.cat([torch.zeros_like(u[:, :1]), u[:, :-1]], 1)
        r, k, v = mixer._project(u, before)
        assert (k.abs().max() > 150) == (keys == 100.0)
        w, bonus = mixer.time_decay.exp(), mixer.time_first
        lag = torch.arange(40)[:, None] - torch.arange(40) - 1.0  # (T, T): t - 1 - s
        logits = k[:, None] - lag[..., None] * w  # (B, T, T, D)
        logits = torch.where(
            lag[..., None] < 0, torch.where(lag[..., None] == -1, k[:, None] + bonus, -math.inf), logits
        )
        expected = mixer.out_proj(r * (logits.softmax(2) * v[:, None]).sum(2))
        got = mixer.to(dtype)(u.to(dtype))[0]
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5 * keys  # the keys themselves are rounded in float32
    assert worst([got], [expected]) < tolerance


def test_a_long_sequence_keeps_its_precision() -> None:
    mixer = layer()
    u = inputs(3, 1, 2000)
    with torch.no_grad():
        expected, ended = mixer(u)
        got, its_end = mixer.float()(u.float())
    assert worst([got, its_end["memory"]], [expected, ended["memory"]]) < 1e-5


def test_gradients_do_not_depend_on_the_maximum() -> None:
    """The maximum is detached. Gradients of outputs and final state equal finite differences."""
    mixer = layer().requires_grad_(False)
    u, start = inputs(4, 1, 5), mixer(inputs(5, 1, 3))[1]
    resets = torch.tensor([[False, False, False, True, False]])

    def run(u: Tensor, memory: Tensor, decay: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        weights = {"time_decay": decay, "time_first": first}
        y, ended = torch.func.functional_call(mixer, weights, (u, {"memory": memory, "shift": start["shift"]}, resets))
        return y, ended["memory"]

    leaves = [x.detach().clone().requires_grad_() for x in (u, start["memory"], mixer.time_decay, mixer.time_first)]
    assert torch.autograd.gradcheck(run, leaves)
    mixer_step = lambda u, memory: mixer.step(u[:, 0], {"memory": memory, "shift": start["shift"]})[1]["memory"]  # noqa: E731
    assert torch.autograd.gradcheck(mixer_step, leaves[:2])


def test_any_numbers_are_a_valid_memory() -> None:
    """Noise gives finite outputs. A weight of zero or less is the empty state, for every average."""
    mixer, u = layer().float(), inputs(6, 4, 7).float()
    noise = 30 * torch.randn(4, 2 * D, 1, generator=torch.Generator().manual_seed(0))
    state = {"memory": noise.requires_grad_(), "shift": torch.zeros(4, D)}
    y, ended = mixer(u, state)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert ended["memory"].isfinite().all()
    assert noise.grad is not None
    assert noise.grad.isfinite().all()
    empty = noise.detach().clone()
    empty[:, D:] = -empty[:, D:].abs()
    assert torch.equal(mixer(u, {**state, "memory": empty})[0], mixer(u)[0])


def test_noise_is_fitted_separately_to_averages_and_weights() -> None:
    """Fitted noise has a mean and a variance for each head. The two numbers of a channel are two heads."""
    mixer, u = layer(), inputs(8, 6, 20)
    ended = systems.whole([mixer(u)[1]]).detach()
    policy = build_policy(FittedNoise(p_zero=0.0), 0, SINGLE_PROCESS)
    policy.see(ended)
    policy.learn()
    start = policy.start(1, 4000, torch.device("cpu"))
    assert start is not None
    for drawn, true in zip(halves(start.recurrent_states()[0]), halves(ended.recurrent_states()[0]), strict=True):
        spread = true.std(0, correction=0)
        assert ((drawn.mean(0) - true.mean(0)).abs() < 0.1 * spread).all()
        assert ((drawn.std(0) / spread - 1).abs() < 0.1).all()
    average, weight = halves(ended.recurrent_states()[0])
    assert weight.mean() > 4 * average.abs().mean()  # one common mean would not fit


def test_the_memory_has_the_scale_of_values_and_keys() -> None:
    mixer, u = layer(keys=20.0), inputs(7, 1, 400)
    with torch.no_grad():
        average, weight = halves(mixer(u)[1]["memory"])
        _, k, v = mixer._project(u, torch.cat([torch.zeros_like(u[:, :1]), u[:, :-1]], 1))
    assert k.max() > 15  # the exponential is over a million
    assert average.abs().max() <= v.abs().max()
    assert weight.max() < k.max() + math.log(400)


def test_the_papers_initialization() -> None:
    """log w from -5 to 3, more unevenly in later layers; u a zigzag around log 0.3; zero keys, gates and outputs."""
    mixers = [build_mixer(parsed({"kind": "rwkv4"}), 10, 3, layer).requires_grad_(False) for layer in range(3)]
    for mixer in mixers:
        assert mixer.time_decay[0] == -5
        assert mixer.time_decay[-1] == 3
    assert (mixers[0].time_decay[1:-1] > mixers[2].time_decay[1:-1]).all()
    assert float(mixers[1].time_decay[3]) == pytest.approx(-5 + 8 * (3 / 9) ** 1.35)
    assert mixers[0].time_first[:3].tolist() == pytest.approx([math.log(0.3), math.log(0.3) + 0.5, math.log(0.3) - 0.5])
    assert mixers[1].mix_key[4] == pytest.approx(0.4 ** (2 / 3))
    assert mixers[1].mix_value[4] == pytest.approx(0.4 ** (2 / 3) + 0.15)
    assert mixers[1].mix_receptance[4] == pytest.approx(0.4 ** (1 / 3))
    assert mixers[0].key.weight.abs().max() == mixers[0].receptance.weight.abs().max() == 0
    assert mixers[0].out_proj.weight.abs().max() == 0
    value = mixers[0].value.weight
    assert torch.allclose(value @ value.T, torch.eye(10), atol=1e-6)
