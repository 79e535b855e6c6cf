"""A mixture of experts, against a computation of all experts for every token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import tiny
from torch import Tensor

from ssm.models.ffn.experts import ExpertsFfn
from ssm.specs.ffn.experts import Experts

D, E, TOP, HIDDEN = 6, 5, 2, 4


def built(**options: Any) -> ExpertsFfn:
    torch.manual_seed(0)
    spec = Experts(**{"n_experts": E, "top_k": TOP, "d_hidden": HIDDEN, "d_shared": 3} | options)
    ffn = ExpertsFfn(spec, D, 2).double()
    if spec.scores == "sigmoid":
        ffn.choice_bias.copy_(torch.linspace(-0.3, 0.3, E))
    return ffn


def oracle(ffn: ExpertsFfn, x: Tensor) -> Tensor:
    """y of x (N, D): all experts, with weight zero except for the k largest."""
    ups = ffn.up_proj.unflatten(0, (E, 2))  # (E, gate or up, hidden, D)
    gate, up = torch.einsum("nd,eahd->aneh", x, ups)  # (N, E, hidden)
    made = torch.einsum("neh,edh->ned", F.silu(gate) * up, ffn.down_proj)
    shares = x @ ffn.router.weight.T  # (N, E)
    shares = torch.sigmoid(shares) if ffn.spec.scores == "sigmoid" else torch.softmax(shares, -1)
    judged = shares + ffn.choice_bias if ffn.spec.scores == "sigmoid" else shares
    kept = torch.zeros_like(shares)
    for row in range(len(x)):
        largest = sorted(range(E), key=judged[row].tolist().__getitem__)[-ffn.spec.top_k :]
        kept[row, largest] = 1.0
    weights = shares * kept
    if ffn.spec.normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    gate, up = (x @ ffn.shared.up_proj.weight.T).chunk(2, -1)
    shared = (F.silu(gate) * up) @ ffn.shared.down_proj.weight.T
    if ffn.spec.shared_gate:
        shared = torch.sigmoid(x @ ffn.shared_gate.weight.T) * shared
    return ffn.spec.scale * (weights.unsqueeze(-1) * made).sum(1) + shared


DEEPSEEK = {"scores": "sigmoid", "shared_gate": False, "scale": 2.5}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"normalize": False},
    {"normalize": False, "top_k": 1},
    {"top_k": E},
    DEEPSEEK,
    DEEPSEEK | {"normalize": False, "top_k": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_outputs_and_gradients(options: dict[str, Any]) -> None:
    ffn = built(**options)
    x = torch.randn(3, 7, D, dtype=torch.float64, requires_grad=True)
    inputs = [x, *ffn.parameters()]
    direction = torch.randn(3, 7, D, dtype=torch.float64)
    y = ffn(x)[0]
    wanted = oracle(ffn, x.flatten(0, 1)).view_as(x)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad((y * direction).sum(), inputs)
    theirs = torch.autograd.grad((wanted * direction).sum(), inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    names = ["x", *(name for name, _ in ffn.named_parameters())]
    assert not [name for name, gradient in zip(names, ours, strict=True) if gradient.abs().max() == 0]


def test_tokens_are_independent() -> None:
    """Splits, another order and single steps give equal outputs. A second call gives equal bits."""
    ffn = built()
    x = torch.randn(2, 9, D, dtype=torch.float64)
    with torch.no_grad():
        whole = ffn(x)[0]
        assert torch.equal(whole, ffn(x)[0])
        cut = torch.cat([ffn(x[:, :4])[0], ffn(x[:, 4:])[0]], 1)
        steps = torch.stack([ffn.step(x[:, t])[0] for t in range(9)], 1)
        turned = ffn(x.flip(1))[0].flip(1)
    for other in (cut, steps, turned):
        torch.testing.assert_close(other, whole, rtol=1e-13, atol=1e-14)


def test_experts_in_chosen_layers() -> None:
    experts = {"kind": "experts", "n_experts": E, "top_k": TOP, "d_hidden": HIDDEN, "d_shared": 3}
    model = tiny.model(ffn={"kind": "mlp", "d_hidden": 8}, ffn_at={"1": experts})
    assert [layer.ffn.spec.kind for layer in model.layers] == ["mlp", "experts", *["mlp"] * (len(model.layers) - 2)]
    assert model.spec.block(2)["ffn.n_experts"] == E
    assert model.spec.block(1)["ffn"] == "mlp"
    assert "ffn_at" not in tiny.model(ffn={"kind": "mlp", "d_hidden": 8}).spec.content()
    with pytest.raises(ValueError, match=r"ffn_at\.9: layers are numbered 0 to"):
        tiny.spec(ffn_at={"9": experts})
