"""Models of transformers: training from states, and export with the original names and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats.folders import as_bin, one_shard, reconfigure, rewrite
from models.formats.round_trip import assert_bitwise, weights
from models.test_foreign import ATTENTION, HYBRID, made, tokens
from safetensors.torch import load_file
from small import content
from torch import Tensor

from ssm.base.errors import CheckpointError
from ssm.models.foreign import ForeignModel, build_foreign, check_unchanged, export_foreign, load_foreign
from ssm.models.foreign.cache import OLDEST_TRANSFORMERS
from ssm.models.foreign.kernels import without_kernels
from ssm.models.formats.source import find_source
from ssm.models.load import load_any_model
from ssm.models.state import State
from ssm.models.weights_file import load_weights
from ssm.specs.foreign import ForeignSpec

PREFIX, WINDOW = 11, 13
# Layers with a recurrent state, and layers with keys and values.
TRAINED = {
    "Bamba": ((0, 2), (1,)),
    "FalconH1": ((0, 1, 2), (0, 1, 2)),
    "Zamba2": ((0, 1, 2, 3), (1, 3)),
    "NemotronH": ((0, 3), (2,)),
    "GraniteMoeHybrid": ((0, 2), (1,)),
    "Qwen3Next": ((0, 2), (1,)),
    "OlmoHybrid": ((0, 2), (1,)),
}


# These import fla if it is installed, which takes seconds.
SLOW = ("Qwen3Next", "OlmoHybrid")
ALL = [pytest.param(name, marks=pytest.mark.exhaustive) if name in SLOW else name for name in TRAINED]
OTHERS: dict[str, dict[str, Any]] = {  # configs that are not in MODELS
    "Qwen3Next": ATTENTION | {
        "layer_types": HYBRID, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "head_dim": 8, "num_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip


def apart(peer: Any, inputs: Tensor) -> Tensor:
    """Logits of one pass without a cache, in which the window's tokens do not see the keys of the prefix.

    The recurrences run through, and positions restart at the window.
    """
    length = inputs.shape[1]
    sees = torch.ones(length, length).tril().bool()
    sees[PREFIX:, :PREFIX] = False
    mask: Any = torch.zeros(2, 1, length, length).masked_fill(~sees, torch.finfo(torch.float32).min)
    if type(peer).__name__[:5] in ("Bamba", "Nemot", "Grani", "Qwen3", "OlmoH"):  # a mask for each kind of layer
        mask = {"full_attention": mask, "linear_attention": None}
    positions = torch.cat([torch.arange(PREFIX), torch.arange(WINDOW)]).expand(2, -1)
    return peer(input_ids=inputs, attention_mask=mask, position_ids=positions, use_cache=False).logits


def loss(logits: Tensor) -> Tensor:
    return logits[:, -WINDOW:].log_softmax(-1)[..., 3].mean()


@pytest.mark.parametrize("name", ALL)
def test_training_from_states_equals_one_pass(name: str) -> None:
    """Logits, and gradients that pass through the state. Caches are empty at the start of the window."""
    peer, inputs = made(name, **OTHERS.get(name, {})), tokens(PREFIX + WINDOW)
    model = ForeignModel(peer, "x")
    assert (model.recurrent, model.caches) == TRAINED[name]
    assert model.untrainable is None
    model.train()
    first, state = model(inputs[:, :PREFIX], None, None)
    logits, ended = model(inputs[:, PREFIX:], state)
    with without_kernels(model.code):
        wanted = apart(peer, inputs)
    assert (torch.cat([first, logits], 1) - wanted).abs().max() < 1e-4 * wanted.std()
    assert (model(inputs[:, PREFIX:])[0] - logits).abs().max() > 1e-2 * wanted.std()
    assert len(ended.layers) == len(state.layers) == len(model.recurrent)

    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(loss(values), parameters) for values in (logits, wanted))
    for (parameter, _), one, other in zip(model.named_parameters(), ours, theirs, strict=True):
        assert (one - other).norm() <= 1e-4 * other.norm() + 1e-7, parameter
    alone = torch.autograd.grad(loss(model(inputs[:, PREFIX:], state.detach())[0]), parameters)
    assert any((one - other).norm() > 1e-2 * other.norm() for one, other in zip(alone, theirs, strict=True))


def test_rows_of_states() -> None:
    """Selected and zeroed rows, as in the policies for initial states. Zeros equal no state."""
    model, inputs = ForeignModel(made("NemotronH"), "x"), tokens(PREFIX + WINDOW)
    with torch.no_grad():
        _, state = model(inputs[:, :PREFIX])
        kept = state.map(Tensor.clone)
        swapped = model(inputs[:, PREFIX:], state.select(torch.tensor([1, 0])))[0]
        logits, _ = model(inputs[:, PREFIX:].flip(0), state)
        assert (swapped.flip(0) - logits).abs().max() < 1e-5
        zeroed = model(inputs[:, PREFIX:], state.reset(torch.tensor([True, False])))[0]
        assert (zeroed[0] - model(inputs[:, PREFIX:])[0][0]).abs().max() < 1e-5
    for layer, before in zip(state.layers, kept.layers, strict=True):
        assert all(torch.equal(tensor, before[name]) for name, tensor in layer.items())  # a given state does not change
    again = State.from_tensors(state.tensors("last."), "last.")
    assert all(
        torch.equal(one, other) for one, other in zip(again.recurrent_states(), state.recurrent_states(), strict=True)
    )
    assert set(state.layers[0]) == {"memory", "conv"}


def test_half_precision_windows_have_gradients() -> None:
    model, inputs = ForeignModel(made("Bamba"), "x"), tokens(PREFIX + WINDOW)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = model(inputs[:, :PREFIX])
        logits, _ = model(inputs[:, PREFIX:], state.detach())
    loss(logits.float()).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def saved(name: str, folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    made(name, **changes).to(dtype).save_pretrained(folder, max_shard_size="40KB")
    return folder


@pytest.mark.parametrize("name", ALL)
def test_exports_have_the_bits_and_names_of_the_original(name: str, tmp_path: Path) -> None:
    """In shards and half precision. After a change of weights, transformers and ssm give equal logits."""
    source = find_source(saved(name, tmp_path / "theirs", torch.bfloat16, **OTHERS.get(name, {})))
    (tmp_path / "theirs/README.md").write_text("# Theirs\n")
    assert len(source.files) > 1
    model = load_foreign(source)
    check_unchanged(model, source, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
    out = export_foreign(model, source, tmp_path / "same", {"by": "nobody"})
    assert_bitwise(weights(tmp_path / "theirs"), weights(out))
    before, after = content(tmp_path / "theirs"), content(out)
    assert after["README.md"].startswith(before["README.md"])
    assert b"- by: nobody" in after["README.md"]
    assert {key: before[key] for key in before if key.endswith(".json")}.items() <= after.items()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5
    out = export_foreign(model, source, tmp_path / "other")
    reloaded = type(model.inner).from_pretrained(out, output_loading_info=True, dtype=torch.float32)
    assert not any(reloaded[1].values())
    changed = weights(out)
    assert all(not torch.equal(tensor, changed[key]) for key, tensor in weights(tmp_path / "theirs").items())
    with torch.no_grad(), without_kernels(model.code):
        wanted = reloaded[0].eval()(tokens(), use_cache=False).logits
        found, _ = load_foreign(find_source(out)).hidden(tokens())
    assert (found - wanted).abs().max() <= 1e-4 * wanted.std()


@pytest.mark.parametrize("name", ALL)
def test_a_spec_and_weights_define_the_model(name: str, tmp_path: Path) -> None:
    """transformers computes buffers again when it creates the model."""
    model = load_foreign(find_source(saved(name, tmp_path, **OTHERS.get(name, {}))))
    again = build_foreign(ForeignSpec.parse(json.loads(json.dumps(model.spec.content())), "x"), "x")
    load_weights(again, dict(model.state_dict()), "x")
    with torch.inference_mode():
        first, state = model(tokens(PREFIX))
        assert (again(tokens(PREFIX))[0] - first).abs().max() < 1e-5
        assert (again(tokens(WINDOW), state)[0] - model(tokens(WINDOW), state)[0]).abs().max() < 1e-5
        assert (again.hidden(tokens())[0] - model.hidden(tokens())[0]).abs().max() < 1e-5
    buffers = dict(model.named_buffers())
    assert all(torch.equal(tensor, buffers[key]) for key, tensor in again.named_buffers())


@pytest.mark.parametrize("twice", [False, True])
def test_a_tied_head_is_one_weight(twice: bool, tmp_path: Path) -> None:
    """It is trained and saved once, and exported as often as the original has it."""
    theirs, head = saved("GraniteMoeHybrid", tmp_path / "theirs", tie_word_embeddings=True), "lm_head.weight"
    for path in theirs.glob("*.safetensors*"):
        path.unlink()
    made("GraniteMoeHybrid", tie_word_embeddings=True).save_pretrained(theirs)
    if twice:
        rewrite(theirs, lambda tensors: tensors.update({head: tensors["model.embed_tokens.weight"].clone()}))
    source = find_source(theirs)
    assert (head in source.stored) == twice
    model = load_foreign(source)
    check_unchanged(model, source, tmp_path)
    names = model.state_dict()
    assert "inner.model.embed_tokens.weight" in names
    assert f"inner.{head}" not in names
    assert sum(tensor.numel() for tensor in names.values()) == model.parameters_count
    with torch.no_grad():
        model.inner.get_input_embeddings().weight[3] += 1
    found = load_file(export_foreign(model, source, tmp_path / "out") / "model.safetensors")
    assert (head in found) == twice
    if twice:
        assert torch.equal(found[head], found["model.embed_tokens.weight"])
    again = build_foreign(model.spec, "x")
    load_weights(again, dict(model.state_dict()), "x")
    assert torch.equal(again.inner.get_output_embeddings().weight, model.inner.get_input_embeddings().weight)
    with torch.inference_mode():
        assert torch.equal(again(tokens())[0], model(tokens())[0])


def test_unused_tensors_are_copied(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    made("NemotronH").save_pretrained(theirs)
    rewrite(theirs, lambda tensors: tensors.update({"mtp.layers.0.weight": torch.arange(6.0).view(2, 3)}))
    source = find_source(theirs)
    model = load_foreign(source)
    check_unchanged(model, source, tmp_path)
    assert_bitwise(weights(theirs), weights(export_foreign(model, source, tmp_path / "out")))
    as_bin(theirs)
    source = find_source(theirs)
    out = export_foreign(load_foreign(source), source, tmp_path / "bin")
    assert_bitwise(weights(theirs), weights(out))
    one_shard(theirs, ".pth")
    source = find_source(theirs)
    out = export_foreign(load_foreign(source), source, tmp_path / "shard")
    assert_bitwise(weights(theirs), weights(out))


def test_models_that_cannot_be_exported(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    made("Bamba").save_pretrained(theirs)
    source = find_source(theirs)
    model = load_foreign(source)
    rewrite(theirs, lambda tensors: tensors.pop("model.layers.0.mamba.D"))
    with pytest.raises(CheckpointError, match=r"has other names: model\.layers\.0\.mamba\.D$"):
        check_unchanged(model, find_source(theirs), tmp_path)
    with torch.no_grad():
        model.inner.model.layers[0].mamba.D[0] += 1  # type: ignore[index, union-attr]
    with pytest.raises(CheckpointError, match=r"writes other weights than it read: model\.layers\.0\.mamba\.D$"):
        check_unchanged(model, source_of(made("Bamba"), tmp_path / "again"), tmp_path)
    with torch.no_grad():
        model.inner.model.layers[0].mamba.D[0] = float("nan")  # type: ignore[index, union-attr]
    with pytest.raises(
        CheckpointError, match=r"not written, weights are not finite: inner\.model\.layers\.0\.mamba\.D$"
    ):
        export_foreign(model, source_of(made("Bamba"), tmp_path / "nan"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def source_of(peer: Any, folder: Path) -> Any:
    peer.save_pretrained(folder)
    return find_source(folder)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Jamba", "its forward pass over several tokens ignores the state that it should start from"),
        ("MiniMax", "its forward pass over several tokens ignores the state that it should start from"),
        ("xLSTM", "it keeps its states in its own type of cache, not in transformers' DynamicCache"),
        ("Llama", "it has no recurrent state to start from: it keeps keys and values of its tokens"),
        ("Bamba", None),
    ],
)
def test_why_models_cannot_be_extended(name: str, why: str | None, tmp_path: Path) -> None:
    made(name).save_pretrained(tmp_path)
    assert load_any_model(tmp_path).why_not_extend == why


@pytest.mark.parametrize("name", ["Jamba", "xLSTM", "Bamba"])
def test_an_old_transformers_is_the_first_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until 5.13, a layer of the cache had one tensor instead of numbered states."""

    class Layer:
        def __init__(self) -> None:
            self.recurrent_states = None

    monkeypatch.setattr("transformers.cache_utils.LinearAttentionLayer", Layer)
    monkeypatch.setattr("transformers.__version__", "5.13.0")
    monkeypatch.setattr("ssm.models.foreign.model.is_common", lambda *_: False)
    why = ForeignModel(made(name), "x").untrainable
    assert why == f"transformers 5.13.0 is too old to start from a state: >= {OLDEST_TRANSFORMERS} is needed"


def test_quantized_weights_are_not_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made("Bamba").save_pretrained(tmp_path)
    opened = load_any_model(tmp_path)
    reconfigure(tmp_path, quantization_config={"quant_method": "fp8"})
    monkeypatch.setattr("ssm.models.load.load_foreign", lambda *_: opened.model)
    why = load_any_model(tmp_path).why_not_extend
    assert why == "its weights are quantized, and an export would change them"


def test_kernels_can_keep_a_given_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """mamba_ssm's kernels do so for the backward pass. The tensor is not overwritten."""
    from transformers.models.bamba import modeling_bamba as theirs

    model, inputs, one = ForeignModel(made("Bamba"), "x"), tokens(PREFIX + WINDOW), torch.ones((), requires_grad=True)
    _, state = model(inputs[:, :PREFIX])
    plain, _ = model(inputs[:, PREFIX:], state.detach())
    scan = theirs.mamba2_chunk_scan
    keeping = lambda *given, initial_states, **others: scan(*given, initial_states=initial_states * one, **others)  # noqa: E731
    monkeypatch.setattr(theirs, "mamba2_chunk_scan", keeping)
    logits, _ = model(inputs[:, PREFIX:], state.detach())
    loss(logits).backward()
    assert torch.equal(logits, plain)
    assert one.grad is not None
    assert one.grad != 0
