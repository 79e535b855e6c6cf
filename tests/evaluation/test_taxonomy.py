"""The taxonomy: the measured properties are those of the papers, and do not come from the specs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import model_spec

from ssm.evaluation import taxonomy as module
from ssm.evaluation.model_size import model_size
from ssm.evaluation.taxonomy import taxonomy
from ssm.plan.parameters import parameter_count
from ssm.specs.measurements.model_size import ModelSize
from ssm.specs.measurements.taxonomy import Taxonomy
from ssm.specs.mixers import SPECS
from ssm.specs.model import ModelSpec

# kind of mixer -> (the decay depends on the input, the recurrence is linear in its state), by the papers' definitions
PAPERS = {
    "s4d": (False, True),
    "dss": (False, True),
    "s5": (False, True),
    "h3": (False, True),
    "retnet": (False, True),
    "linear_attention": (False, True),
    "mamba1": (True, True),
    "mamba2": (True, True),
    "gla": (True, True),
    "rwkv4": (True, True),
    "rwkv6": (True, True),
    "rglru": (True, True),
    "gru": (True, False),
    "deltanet": (True, True),
    "gated_deltanet": (True, True),
    "kda": (True, True),
    "rwkv7": (True, True),
}


def model(kind: str) -> ModelSpec:
    return ModelSpec.parse(
        {"name": kind, "d_model": 64, "n_layers": 1, "mixer": {"kind": kind}, "peak_lr": 1e-3}, "tests"
    )


def row(kind: str) -> dict[str, Any]:
    frame = taxonomy(Taxonomy(models=(model(kind),), length=12))
    assert frame.schema == Taxonomy.table.columns
    return frame.row(0, named=True)


@pytest.mark.parametrize("kind", PAPERS)
def test_modules_have_the_properties_of_their_papers(kind: str) -> None:
    found = row(kind)
    assert (found["selective"], found["linear"]) == PAPERS[kind]
    assert found["identity"] == (kind == "linear_attention")  # A_t = I
    assert found["state_numbers"] == found["state_numbers_late"]


def test_every_recurrence_has_a_row() -> None:
    assert set(PAPERS) == {kind for kind, spec in SPECS.items() if spec.taxonomy.decay != "cache"}


def test_a_hybrid_is_represented_by_the_mixer_of_most_layers() -> None:
    """Also if this mixer is set by `mixer_at`."""
    mamba = {"kind": "mamba2", "d_state": 8, "head_dim": 8}
    hybrid = ModelSpec.parse(
        {
            "name": "hybrid", "d_model": 16, "n_layers": 3, "peak_lr": 1e-3,
            "mixer": {"kind": "s4d", "d_state": 4}, "mixer_at": {1: mamba, 2: mamba},
        },
        "tests",
    )  # fmt: skip
    found = taxonomy(Taxonomy(models=(hybrid,))).row(0, named=True)
    assert (found["mixer"], found["state_shape"], found["selective"]) == ("mamba2", "4 x 8 x 8", True)
    sizes = model_size(ModelSize(models=(hybrid,), vocab_size=10)).row(0, named=True)
    assert (sizes["mixer"], sizes["state_shape"]) == ("s4d+mamba2", "4 x 8 x 8")
    assert (sizes["parameters"], sizes["embedding_parameters"]) == (parameter_count(hybrid, 10), 10 * 16)


def test_a_cache_grows_and_has_no_measured_properties() -> None:
    found = row("attention")
    assert found["state_numbers_late"] == 12 * found["state_numbers"]
    assert found["selective"] is None
    assert found["linear"] is None
    assert found["identity"] is None


def test_a_mamba2_with_a_constant_step_size_is_not_selective(monkeypatch: pytest.MonkeyPatch) -> None:
    right = module.build_mixer

    def constant(*args: Any) -> torch.nn.Module:
        mixer = right(*args)
        mixer.register_forward_pre_hook(still)
        return mixer

    def still(mixer: torch.nn.Module, args: Any) -> None:
        mixer.in_proj.weight[-mixer.heads :] = 0.0  # the rows that make dt

    assert taxonomy(Taxonomy(models=(model_spec(),))).row(0, named=True)["selective"]
    monkeypatch.setattr(module, "build_mixer", constant)
    assert not taxonomy(Taxonomy(models=(model_spec(),))).row(0, named=True)["selective"]


def test_linear_attention_that_forgets_is_not_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decay does not depend on the input, but A_t is not I."""
    right = module.build_mixer

    def forgetting(*args: Any) -> torch.nn.Module:
        mixer = right(*args)
        forward = mixer.forward

        def forgets(u: torch.Tensor, state: Any = None) -> Any:
            before = None if state is None else {**state, "memory": state["memory"] * (1 - 1e-5)}
            return forward(u, before)

        monkeypatch.setattr(mixer, "forward", forgets)
        return mixer

    monkeypatch.setattr(module, "build_mixer", forgetting)
    found = row("linear_attention")
    assert (found["selective"], found["linear"], found["identity"]) == (False, True, False)
