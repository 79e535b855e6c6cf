"""Loading models of transformers: errors, code that is never run, and no output."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import wraps
from inspect import unwrap
from pathlib import Path

import pytest
import torch
import transformers
from models.formats.folders import as_bin, reconfigure, rewrite
from models.test_foreign import in_pieces, made, tokens
from transformers.models.olmo_hybrid import modeling_olmo_hybrid

from ssm.base.errors import CheckpointError
from ssm.diagnosis import settings_of
from ssm.diagnosis.notes import notes
from ssm.models.foreign import ForeignModel, load_foreign
from ssm.models.formats.source import find_source
from ssm.models.load import load_any_model
from ssm.specs.data import BytesTokenizer


def loaded(folder: Path) -> ForeignModel:
    return load_foreign(find_source(folder))


def saved(name: str, folder: Path) -> Path:
    made(name).save_pretrained(folder)
    return folder


def refused(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        loaded(folder)
    assert "\n" not in str(caught.value)


def test_half_precision_is_read_in_float32(tmp_path: Path) -> None:
    peer = made("GPT2LMHead").bfloat16()
    peer.save_pretrained(tmp_path)
    as_bin(tmp_path)  # only tensors are read from it
    model = loaded(tmp_path)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    with torch.inference_mode():
        wanted = peer.float()(tokens(), use_cache=False).logits
    assert (in_pieces(model, tokens(), (20, 25))[0] - wanted).abs().max() < 1e-4


def test_weights_that_are_missing_or_not_finite(tmp_path: Path) -> None:
    folder = saved("Llama", tmp_path)
    rewrite(folder, lambda tensors: tensors["model.norm.weight"].fill_(float("nan")))
    refused(folder, "is not a valid LlamaForCausalLM: not finite: model.norm.weight$")
    rewrite(folder, lambda tensors: tensors.pop("model.norm.weight"))
    refused(folder, "is not a valid LlamaForCausalLM: missing model.norm.weight$")


def test_weights_that_transformers_does_not_load(tmp_path: Path) -> None:
    """A layer more than in config.json. Other extra weights are harmless, such as the masks of GPT-J: no error."""
    model = load_any_model(saved("GPT2LMHead", tmp_path))
    settings = settings_of(model, torch.device("cpu"), context=32, length=64)
    assert notes(model, BytesTokenizer(), settings, 64) == []
    reconfigure(tmp_path, n_layer=1)
    (note,) = notes(load_any_model(tmp_path), BytesTokenizer(), settings, 64)
    assert note.startswith("transformers does not load transformer.h.1.attn.c_attn.weight, transformer.h.1.attn.c_")
    assert note.endswith(" and 6 more")


def test_weights_of_other_shapes(tmp_path: Path) -> None:
    reconfigure(saved("Llama", tmp_path), intermediate_size=40)
    refused(tmp_path, rf"^{tmp_path}: transformers cannot read it \(")


def test_an_unknown_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved("Llama", tmp_path)
    reconfigure(folder, model_type="lama")
    refused(folder, r"config.json: unknown architecture 'lama', also to transformers \d.*; did you mean 'llama'\?$")
    (folder / "theirs.py").write_text("raise SystemExit('ran')")
    reconfigure(folder, auto_map={"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"})
    refused(
        folder,
        r"unknown architecture 'lama', also to transformers \S* \(ssm never runs the code that comes with a check",
    )
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(folder, "unknown architecture 'lama'; models of transformers need `pip install 'transformers>=[\\d.]+'`$")


def test_a_model_without_a_head(tmp_path: Path) -> None:
    folder = saved("Llama", tmp_path)
    reconfigure(folder, architectures=["LlamaModel"])
    refused(folder, r"LlamaModel returns no logits \(config.json: architectures\); expected a model with a language-")


@pytest.mark.parametrize("kind", ["T5", "Bart"])
def test_an_encoder_decoder_model(kind: str, tmp_path: Path) -> None:
    sizes = {"vocab_size": 40, "d_model": 16}
    sizes |= {"num_layers": 1, "num_heads": 2} if kind == "T5" else {"encoder_layers": 1, "decoder_layers": 1}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    getattr(transformers, f"{kind}ForConditionalGeneration")(config).save_pretrained(tmp_path)
    refused(
        tmp_path,
        rf"^{tmp_path}: is an encoder-decoder model \('{kind.lower()}'\), not a causal language model$",
    )


def test_code_of_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    folder = saved("Llama", tmp_path)
    (folder / "theirs.py").write_text("raise SystemExit('ran')")
    reconfigure(folder, auto_map={"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"})
    assert loaded(folder).architecture == "LlamaForCausalLM"


def test_files_with_unusual_names_are_refused(tmp_path: Path) -> None:
    folder = saved("Llama", tmp_path)
    assert load_foreign(find_source(folder / "model.safetensors")).architecture == "LlamaForCausalLM"
    other = folder / "other.safetensors"
    other.write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"other\.safetensors: transformers reads whole folders; give "):
        load_foreign(find_source(other))


QUIET = """
import sys
from ssm.models.foreign import load_foreign
from ssm.models.formats.source import find_source
load_foreign(find_source(sys.argv[1]))
import transformers, os
assert os.environ["USE_HUB_KERNELS"] == "NO"
assert transformers.utils.logging.is_progress_bar_enabled()
"""


def test_gpu_kernels_are_not_used_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed packages replace functions of transformers by kernels.

    After each forward pass the kernels are restored, also after an error.
    """
    theirs = {}
    for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn"):

        @wraps(unwrap(getattr(modeling_olmo_hybrid, name)))
        def kernel(*args: object, **options: object) -> None:
            raise RuntimeError("0 active drivers")

        monkeypatch.setattr(modeling_olmo_hybrid, name, kernel)
        theirs[name] = kernel
    model = loaded(saved("OlmoHybrid", tmp_path))
    assert in_pieces(model, tokens(), (20, 1, 24))[0].isfinite().all()
    assert {name: getattr(modeling_olmo_hybrid, name) for name in theirs} == theirs
    with pytest.raises(CheckpointError, match="fails on device 'cpu'"):
        in_pieces(model, tokens() + 10**6, (45,))
    assert {name: getattr(modeling_olmo_hybrid, name) for name in theirs} == theirs


@pytest.mark.exhaustive
def test_loading_prints_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'kernels'}", "OMP_NUM_THREADS": "1"}
    rewrite(
        saved("FalconMamba", tmp_path), lambda tensors: tensors.update(extra=torch.zeros(2))
    )  # it would report this, and the kernels it misses
    command = [sys.executable, "-c", QUIET, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
