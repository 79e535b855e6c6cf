"""Model specs."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from small import model_spec

from ssm.base.discovery import RegistryError
from ssm.specs.mixers.gru import GruMixer


def test_the_mixers_of_a_model_are_made_once_and_are_no_field() -> None:
    """A serializer would take what is in __dict__ for a field, and warn."""
    model = model_spec()
    assert model.mixers() is model.mixers()
    assert model.__dict__.keys() == type(model).model_fields.keys()
    assert model == model_spec(), "before it has made them"
    assert len(model.model_copy(update={"n_layers": 5}).mixers()) == 5, "a copy makes its own"
    assert len(pickle.loads(pickle.dumps(model)).mixers()) == model.n_layers


def test_a_copy_has_a_hash_of_its_own() -> None:
    model = model_spec()
    first = model.content_hash
    assert model.content_hash == first
    assert model.__dict__.keys() == type(model).model_fields.keys()
    changed = model.model_copy(update={"d_model": 2 * model.d_model})
    assert changed.content_hash == model_spec(d_model=2 * model.d_model).content_hash != first
    assert pickle.loads(pickle.dumps(model)).content_hash == first


@pytest.mark.parametrize(("field", "hint"), [("scan", "did you mean 'gated_scan'"), ("decay", "valid names: ")])
def test_a_taxonomy_with_an_unknown_word_is_one_line(field: str, hint: str) -> None:
    taxonomy = model_spec().mixers()[0].taxonomy
    with pytest.raises(RegistryError, match=f"taxonomy of {taxonomy.system}: unknown {field} 'gatd_scan'; {hint}"):
        replace(taxonomy, **{field: "gatd_scan"})


def test_a_layer_with_a_cache_is_no_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The taxonomy says so, for attention and for a mixer that somebody adds."""
    model = model_spec(mixer_at={1: {"kind": "gru"}})
    assert (model.caches, model.recurrent) == ((), (0, 1))
    monkeypatch.setattr(GruMixer, "taxonomy", replace(GruMixer.taxonomy, decay="cache"))
    assert (model.caches, model.recurrent) == ((1,), (0,))
