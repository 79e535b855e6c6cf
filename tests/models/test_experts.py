"""A mixture of experts, against one that computes all of them for every token."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from models import tiny
from torch import Tensor

from ssm.models.ffn.experts import ExpertsFfn
from ssm.specs.ffn import Experts

D, E, TOP, HIDDEN = 6, 5, 2, 4


def built(normalize: bool = True, top_k: int = TOP) -> ExpertsFfn:
    torch.manual_seed(0)
    spec = Experts(n_experts=E, top_k=top_k, d_hidden=HIDDEN, d_shared=3, normalize=normalize)
    return ExpertsFfn(spec, D, 2).double()


def oracle(ffn: ExpertsFfn, x: Tensor) -> Tensor:
    """y of x (N, D): all experts, whose weights are zero but for the k largest."""
    ups = ffn.up_proj.unflatten(0, (E, 2))  # (E, gate or up, hidden, D)
    gate, up = torch.einsum("nd,eahd->aneh", x, ups)  # (N, E, hidden)
    made = torch.einsum("neh,edh->ned", F.silu(gate) * up, ffn.down_proj)
    shares = torch.softmax(x @ ffn.router.weight.T, -1)  # (N, E)
    kept = torch.zeros_like(shares)
    for row in range(len(x)):
        largest = sorted(range(E), key=shares[row].tolist().__getitem__)[-ffn.spec.top_k :]
        kept[row, largest] = 1.0
    weights = shares * kept
    if ffn.spec.normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    gate, up = (x @ ffn.shared.up_proj.weight.T).chunk(2, -1)
    shared = (F.silu(gate) * up) @ ffn.shared.down_proj.weight.T
    return (weights.unsqueeze(-1) * made).sum(1) + torch.sigmoid(x @ ffn.shared_gate.weight.T) * shared


@pytest.mark.parametrize(("normalize", "top_k"), [(True, 2), (False, 2), (False, 1), (True, E)])
def test_outputs_and_gradients_are_those_of_all_experts_weighed(normalize: bool, top_k: int) -> None:
    ffn = built(normalize, top_k)
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
    assert all(gradient.abs().max() > 0 for gradient in ours), names


def test_an_expert_that_nobody_chose_gets_no_gradient() -> None:
    ffn = built()
    x = torch.randn(1, 1, D, dtype=torch.float64)
    _, chosen = ffn.routed(x.flatten(0, 1))
    ffn(x)[0].sum().backward()
    assert ffn.down_proj.grad is not None
    used = ffn.down_proj.grad.abs().amax((1, 2)).nonzero().flatten()
    assert used.tolist() == sorted(chosen.flatten().tolist())
    assert len(used) == TOP


def test_every_token_stands_alone() -> None:
    """Cut anywhere, in any order, one by one: the same numbers; and the same twice, bit for bit."""
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


def test_a_model_has_them_where_it_says() -> None:
    experts = {"kind": "experts", "n_experts": E, "top_k": TOP, "d_hidden": HIDDEN, "d_shared": 3}
    model = tiny.model(ffn={"kind": "mlp", "d_hidden": 8}, ffn_at={"1": experts})
    assert [layer.ffn.spec.kind for layer in model.layers] == ["mlp", "experts", *["mlp"] * (len(model.layers) - 2)]
    assert model.spec.block(2)["ffn.n_experts"] == E
    assert model.spec.block(1)["ffn"] == "mlp"
    assert "ffn_at" not in tiny.model(ffn={"kind": "mlp", "d_hidden": 8}).spec.content()
    with pytest.raises(ValueError, match=r"ffn_at\.9: layers are numbered 0 to"):
        tiny.spec(ffn_at={"9": experts})
