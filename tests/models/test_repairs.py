"""Repairs: scaled and clipped coefficients; other ways of reading against simple loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models.tiny import model, spec, tokens
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.readable import Readable
from ssm.models.repairs import repaired
from ssm.models.state import State
from ssm.specs.repairs import SPECS
from ssm.specs.repairs.base import OfLayers, Point
from ssm.specs.repairs.clip_dt import ClipDt
from ssm.specs.repairs.reset_state import ResetState
from ssm.specs.repairs.restarts import Restarts
from ssm.specs.repairs.scale_a import ScaleA

MIXERS: dict[str, dict[str, Any]] = {
    "mamba1": {"kind": "mamba1", "d_state": 6},
    "mamba2": {"kind": "mamba2", "d_state": 6, "head_dim": 4},
    "mimetic": {"kind": "mamba2", "d_state": 6, "head_dim": 4, "mimetic": {"a": 8, "dt": False, "bc": False}},
}
READINGS: dict[str, tuple[Any, Point]] = {
    "reset": (ResetState(), (7.0, 0.0)),
    "fade": (ResetState(keeps=(0.5,)), (7.0, 0.5)),
    "restarts": (Restarts(states=4, window=3), (9.0,)),
}


def hybrid() -> LanguageModel:
    """Three layers. The second has neither A nor a limit of dt."""
    content = spec().model_dump() | {"mixer_at": {1: {"kind": "gla", "n_heads": 2}}}
    return build_model(type(spec()).model_validate(content), 29, 0)


@pytest.mark.parametrize("kind", MIXERS)
def test_a_is_scaled_layer_by_layer(kind: str) -> None:
    own = model(mixer=MIXERS[kind])
    before = [layer.mixer.continuous_decay().clone() for layer in own.layers]  # type: ignore[operator, union-attr]
    rest = {name: tensor.clone() for name, tensor in own.state_dict().items() if not name.endswith("A_log")}
    assert repaired(own, ScaleA(by="layer"), (4.0, None, 0.5)) is own
    for factor, layer, was in zip((4.0, 1.0, 0.5), own.layers, before, strict=True):
        torch.testing.assert_close(layer.mixer.continuous_decay(), factor * was)  # type: ignore[operator, union-attr]
    assert all(torch.equal(tensor, own.state_dict()[name]) for name, tensor in rest.items())


@pytest.mark.parametrize("kind", ["gated_deltanet", "kda"])
@torch.no_grad()
def test_the_decay_of_a_delta_rule_is_scaled(kind: str) -> None:
    own = model(mixer={"kind": kind, "n_heads": 2, "key_dim": 4})
    mixers: list[Any] = [layer.mixer for layer in own.layers]
    x = torch.randn(5, own.spec.mixer.extra(16)[0], generator=torch.Generator().manual_seed(1))  # type: ignore[attr-defined]
    before = [mixer._log_decay(x) for mixer in mixers]
    repaired(own, ScaleA(by="layer"), (4.0, None, 0.5))
    for factor, mixer, was in zip((4.0, 1.0, 0.5), mixers, before, strict=True):
        torch.testing.assert_close(mixer._log_decay(x), factor * was)


@torch.no_grad()
def test_dt_is_clipped_layer_by_layer() -> None:
    """In both forms. A limit never becomes wider."""
    own = model(dt_limit=(0.01, 0.3))
    repaired(own, ClipDt(by="layer"), (0.05, None, 0.8))
    u = 3 * torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(1))
    for limit, layer in zip((0.05, 0.3, 0.3), own.layers, strict=True):
        mixer: Any = layer.mixer
        dt = mixer.project(u, None, None)[4]  # (B, T, H)
        assert dt.min() >= 0.01
        assert float(dt.max()) == pytest.approx(limit)
        alone, _ = mixer.step(u[:, 0])
        torch.testing.assert_close(mixer(u[:, :1])[0][:, 0], alone)
    assert own.spec == spec(dt_limit=(0.01, 0.3)), "the spec of the trained model does not change"


@pytest.mark.parametrize("repair", [ScaleA(by="layer"), ClipDt(by="layer")])
def test_layers_that_cannot_be_repaired_have_no_number(repair: OfLayers) -> None:
    own = hybrid()
    assert repair.layers(own.spec) == (0, 2)
    assert [axis.name for axis in repair.axes(own.spec, 8)] == ["all layers", "layer 0", "layer 2"]
    assert repair.start(own.spec) == (None, None)
    repaired(own, repair, (None, 0.25))


@pytest.mark.parametrize("of", SPECS.values())
def test_the_start_changes_nothing(of: Any) -> None:
    own, text = model(), tokens(1, 2, 40)
    plain = own.hidden(text)[0]
    point = of().start(own.spec)
    assert torch.equal(repaired(own, of(), point).hidden(text)[0], plain)


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("sizes", [[1] * 40, [3, 30, 7], [40], [7, 7, 26]])
@torch.no_grad()
def test_a_split_changes_nothing(name: str, sizes: list[int]) -> None:
    own, text = model(), tokens(2, 3, 40)
    read = repaired(own.double(), *READINGS[name])
    whole, ended = read.hidden(text)
    state, parts = None, []
    for piece in text.split(sizes, 1):
        part, state = read.hidden(piece, state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    for one, other in zip(state.recurrent_states(), ended.recurrent_states(), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(one, other)
    assert state.nbytes == ended.nbytes > 0  # type: ignore[union-attr]
    assert (read.vocab_size, read.hidden_size, read.parameters_count) == (29, 16, own.parameters_count)
    assert torch.equal(read.logits(whole), own.logits(whole))


@torch.no_grad()
def test_a_reset_is_a_restart() -> None:
    own, text = model().double(), tokens(3, 2, 40)
    found = repaired(own, *READINGS["reset"]).hidden(text)[0]
    alone = [own.hidden(piece)[0] for piece in text.split(7, 1)]
    torch.testing.assert_close(found, torch.cat(alone, 1))


@pytest.mark.parametrize(
    ("second", "halved"),
    [
        ({"kind": "mamba2", "d_state": 6, "head_dim": 4}, ["memory"]),
        ({"kind": "linear_attention", "n_heads": 2}, ["memory", "normalizer"]),
        ({"kind": "attention", "n_heads": 2, "window": 5}, []),
        ({"kind": "attention", "n_heads": 2}, []),
    ],
)
@torch.no_grad()
def test_a_fading_state_keeps_its_share(second: dict[str, Any], halved: list[str]) -> None:
    """Token by token: every seventh token halves the memories, but not the inputs of convolutions and the caches."""
    own, text = model(mixer_at={1: second}).double(), tokens(4, 2, 40)
    state: State | None = None
    parts = []
    for at, token in enumerate(text.unbind(1)):
        if state is not None and at % 7 == 0:
            names = [["memory"], halved, ["memory"]]
            layers = zip(names, state.layers, strict=True)
            state = State(tuple(layer | {name: layer[name] / 2 for name in own_names} for own_names, layer in layers))
        logits, state = own.step(token, state)
        parts.append(logits)
    read = repaired(own, *READINGS["fade"])
    torch.testing.assert_close(read.logits(read.hidden(text)[0]), torch.stack(parts, 1))


def by_hand(own: LanguageModel, text: Tensor, states: int, every: int, window: int) -> tuple[Tensor, list[list[int]]]:
    """The activations of the chosen state for every token, and the chosen states. Each state is read from its start."""
    B, T = text.shape
    chosen = torch.empty(B, T, 16, dtype=torch.float64)
    who = [[0] * T for _ in range(B)]

    def began(number: int, at: int) -> int:
        phase = None if number == 0 else round((number - 1) * every / (states - 1))
        return 0 if phase is None else max([0, *(p for p in range(phase, at + 1, every))])

    def loss(row: int, first: int, at: int) -> float:  # of the token after `at`
        hidden = own.hidden(text[row : row + 1, first : at + 1])[0][:, -1]
        return float(F.cross_entropy(own.logits(hidden), text[row, at + 1 : at + 2]))

    for row in range(B):
        for at in range(T):
            scores = {0: float("inf")}
            for number in range(states):
                first = began(number, at)
                if at - first >= window:
                    scores[number] = sum(loss(row, first, s) for s in range(at - window, at)) / window
            who[row][at] = min(scores, key=lambda number: (scores[number], number))
            first = began(who[row][at], at)
            chosen[row, at] = own.hidden(text[row : row + 1, first : at + 1])[0][0, -1]
    return chosen, who


@torch.no_grad()
def test_the_state_with_the_lowest_recent_loss_predicts() -> None:
    own, text = model().double(), tokens(5, 1, 26)
    found = repaired(own, *READINGS["restarts"]).hidden(text)[0]
    wanted, who = by_hand(own, text, states=4, every=9, window=3)
    torch.testing.assert_close(found, wanted)
    assert {number for row in who for number in row} == {0, 1, 2, 3}, "every state is chosen at some token"


@pytest.mark.parametrize("name", READINGS)
@torch.no_grad()
def test_later_tokens_change_nothing(name: str) -> None:
    """In particular, the choice of a state does not depend on the predicted token."""
    read: Readable = repaired(model().double(), *READINGS[name])
    text = tokens(6, 4, 30)
    other = text.clone()
    other[:, 20:] = (other[:, 20:] + 7) % 29
    torch.testing.assert_close(read.hidden(text)[0][:, :20], read.hidden(other)[0][:, :20])


def test_models_that_cannot_be_repaired_are_refused() -> None:
    own = spec(mixer={"kind": "gla", "n_heads": 2})
    for repair in (ScaleA(), ClipDt()):
        with pytest.raises(ValueError, match=rf"repair '{repair.kind}': no layer of 'tiny' \(gla\) can be repaired"):
            repair.check(own)
    deltanet = spec(mixer={"kind": "gated_deltanet", "n_heads": 2, "key_dim": 4, "decay": "none"})
    assert ScaleA().layers(deltanet) == ()
    for window in (None, 5):
        attention = spec(mixer={"kind": "attention", "n_heads": 2, "window": window})
        ResetState().check(attention)
        with pytest.raises(ValueError, match="no layer of 'tiny' has a recurrent state that can fade"):
            ResetState(keeps=(0.0, 0.5)).check(attention)
