"""Runs that take single layers of a trained run: which tensors are copied, and which layers fit which model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from small import make_task, model_spec, run_spec

from ssm.base.errors import ConfigError
from ssm.data.store import TokenStore
from ssm.models.backbone import build_model
from ssm.models.weights_file import load_tensors
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec, TrainingSpec
from ssm.training.lineage import starting_weights
from ssm.training.loop import train

CPU = torch.device("cpu")
HYBRID = {2: {"kind": "attention", "n_heads": 2}}


def taking(
    layer: int | Literal["own"] | None, parent: RunSpec | None, data: Any, model: ModelSpec | None = None
) -> RunSpec:
    recipe = TrainingSpec.parse({"context": 16, "batch_tokens": 64, "budget": {"steps": 0}}, "tests")
    model = model or model_spec()
    content = {"model": model, "data": data, "training": recipe, "seed": 8, "parent": parent, "layer": layer}
    return RunSpec.parse(content, "fig.yaml: arms.student")


@pytest.mark.parametrize("layer", [1, 3, "own"])
def test_only_the_layers_are_copied(store: TokenStore, tmp_path: Path, layer: int | Literal["own"]) -> None:
    """Bitwise, into a model of another size, on other data, with another seed."""
    teacher = run_spec(store.spec, budget={"steps": 2}).model_copy(update={"model": model_spec(n_layers=3)})
    train(teacher, store, tmp_path / "teacher", CPU)
    copies = make_task(tmp_path / "copies", task="copy", alphabet=5, mix=[{"shortest": 2, "longest": 3}])
    size = 3 if layer == "own" else 4
    student = taking(layer, teacher, copies.spec, model_spec(n_layers=size))
    record = train(student, copies, tmp_path / "student", CPU, parent=tmp_path / "teacher")
    assert (record["steps"], student.stage, student.origin) == (0, 1, teacher)

    given = load_tensors(tmp_path / "teacher" / "model.safetensors")[0]
    fresh = build_model(student.model, student.data.vocab_size, student.seed).state_dict()
    found = load_tensors(tmp_path / "student" / "model.safetensors")[0]
    assert found.keys() == fresh.keys()
    for name, tensor in found.items():
        place = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
        source = f"layers.{int(place[1]) if layer == 'own' else layer - 1}.{place[2]}" if place else None  # type: ignore[operator]
        torch.testing.assert_close(tensor, given[source] if source else fresh[name], rtol=0, atol=0)
        if source and "in_proj" in name:
            assert not torch.equal(tensor, fresh[name]), "the copied tensor differs from the fresh one"


def test_copies_of_one_layer_are_trained_separately(store: TokenStore, tmp_path: Path) -> None:
    teacher = run_spec(store.spec, budget={"steps": 1})
    train(teacher, store, tmp_path, CPU)
    first, second = starting_weights(taking(2, teacher, store.spec), tmp_path).layers
    held = {parameter.data_ptr() for parameter in first.parameters()}
    assert held.isdisjoint(parameter.data_ptr() for parameter in second.parameters())


@pytest.mark.parametrize(
    ("layer", "model", "says"),
    [
        (4, {}, "'tiny' has layers 1 to 3, not 4"),
        (0, {}, "layer: expected a layer's number (1, 2, ...) or 'own', got 0"),
        ("all", {}, "layer: expected a layer's number (1, 2, ...) or 'own', got 'all'"),
        ("own", {"n_layers": 2}, "'tiny' has 3 layers, 'tiny' 2; name one of them"),
        (1, {"d_model": 32}, "layer 1 of 'tiny' cannot be layer 1 of 'tiny': d_model 16 there, 32 here"),
        (3, {}, "layer 3 of 'tiny' cannot be layer 1 of 'tiny': mixer 'attention' there, 'mamba2' here"),
        ("own", {"n_layers": 3}, "cannot be layer 3 of 'tiny': mixer 'attention' there, 'mamba2' here"),
        (2, {"mixer": {"d_state": 16}}, "mixer.d_state 8 there, 16 here"),
        (2, {"mixer_at": {1: {"kind": "gru"}}}, "cannot be layer 2 of 'tiny': mixer 'mamba2' there, 'gru' here"),
        (1, {"ffn": {"kind": "mlp", "d_hidden": 8}}, "ffn None there, 'mlp' here"),
        (1, {"norm": "layer"}, "norm 'rms' there, 'layer' here"),
    ],
)  # fmt: skip
def test_layers_that_do_not_fit_are_refused_in_one_line(
    store: TokenStore, layer: Any, model: dict[str, Any], says: str
) -> None:
    teacher = run_spec(store.spec).model_copy(update={"model": model_spec(n_layers=3, mixer_at=HYBRID)})
    with pytest.raises(ConfigError) as error:
        taking(layer, teacher, store.spec, model_spec(**model))
    assert str(error.value).startswith("fig.yaml: arms.student: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_other_properties_of_the_model_may_differ(store: TokenStore) -> None:
    """Number of layers, embedding, head, learning rate, and the chunk size of a scan."""
    other = model_spec(n_layers=5, tie_embeddings=False, embedding_norm=True, peak_lr=1.0, mixer={"chunk": 4})
    assert taking(2, run_spec(store.spec), store.spec, other).taken == (2, 2, 2, 2, 2)


def test_layers_need_a_parent_and_older_ids_stay(store: TokenStore) -> None:
    base = run_spec(store.spec)
    with pytest.raises(ConfigError, match="layer: needs a parent"):
        taking(1, None, store.spec)
    with pytest.raises(ConfigError, match="a run of zero steps takes no parent"):
        taking(None, base, store.spec)
    assert "layer" not in base.content()
    child = run_spec(store.spec, parent=base)
    student = child.model_copy(update={"layer": 2})
    assert "layer" not in child.content()
    assert child.canonical_content() != student.canonical_content()
    assert "_layer-2_" in student.id
    assert "_layer-2-initialization_" in taking(2, base, store.spec).id
    passing = run_spec(store.spec, parent=base, initial_state={"policy": "state_passing"})
    assert "_layer-own-state-passing_" in passing.model_copy(update={"layer": "own"}).id
    assert RunSpec.parse(student.content(), "it was written") == student
