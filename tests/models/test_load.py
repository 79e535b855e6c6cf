"""Open a user's model: its properties, and one line of error if it cannot be opened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, round_trip
from models.formats.folders import reconfigure, rewrite
from models.test_foreign import VOCABULARY, made
from small import content, model_spec, run_spec, save_model, write_checkpoint
from torch import Tensor

from ssm.base.counting import size
from ssm.base.errors import CheckpointError, ConfigError
from ssm.base.files import write_json
from ssm.diagnosis import settings_of
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.foreign import ForeignModel
from ssm.models.formats import export_checkpoint
from ssm.models.load import LoadedModel, load_any_model, outline_of
from ssm.models.weights_file import digests
from ssm.specs.corpora.stdlib import StdlibCorpus
from ssm.specs.data import BpeTokenizer, BytesTokenizer, DataSpec, FileTokenizer, TokenizerSpec
from ssm.specs.tasks import parse_data
from ssm.specs.training import RunSpec

MAMBA2 = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2}
NEOX = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def refused(name: str | Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        load_any_model(name)
    assert "\n" not in str(caught.value)


@torch.inference_mode()
def logits(loaded: LoadedModel, inputs: Tensor) -> Tensor:
    """(B, T, V), in two pieces."""
    first, state = loaded.model.hidden(inputs[:, :9])
    second, _ = loaded.model.hidden(inputs[:, 9:], state)  # type: ignore[arg-type]
    return loaded.model.logits(torch.cat([first, second], 1))


# --- runs of ssm ------------------------------------------------------------------------------------------------------


def own_run(folder: Path, tokenizer: TokenizerSpec | None = None, **model: Any) -> RunSpec:
    data = DataSpec(name="x", corpus=StdlibCorpus(), tokenizer=tokenizer or BytesTokenizer())
    run = run_spec(data).model_copy(update={"model": model_spec(**model)})
    save_model(folder / "model.safetensors", build_model(run.model, data.vocab_size, 0), run, 30, "origin")
    write_json(folder / "run.json", {"weights": digests(folder, run)})
    return run


def test_a_run(tmp_path: Path) -> None:
    run = own_run(tmp_path / "run")
    shutil.copyfile(tmp_path / "run" / "model.safetensors", tmp_path / "alone.safetensors")
    loaded = load_any_model(tmp_path / "run")
    assert (loaded.name, loaded.title, loaded.kind) == (str(tmp_path / "run"), "tiny", "a run of ssm")
    assert (loaded.run, loaded.imported, loaded.context, loaded.longest) == (run, None, 16, None)
    assert (loaded.tokenizer, loaded.note, loaded.why_not_extend) == (BytesTokenizer(), None, None)
    assert isinstance(loaded.model, LanguageModel)
    assert not loaded.model.training
    alone = load_any_model(tmp_path / "alone.safetensors")
    assert alone.run == run
    assert alone.why_not_extend == "it is a file other than the final weights of a run; give the folder of the run"
    assert load_any_model(tmp_path / "run" / "model.safetensors").why_not_extend is None
    assert alone.fingerprint == loaded.fingerprint
    assert len(loaded.fingerprint) == 16


def test_a_context_of_a_run_that_is_no_power_of_two(tmp_path: Path) -> None:
    own_run(tmp_path)
    loaded = replace(load_any_model(tmp_path), context=96)
    with pytest.raises(
        ConfigError, match="the context in its files is 96, which is no power of two; give --context 64"
    ):
        settings_of(loaded, torch.device("cpu"))


def test_tokenizers_of_runs(tmp_path: Path) -> None:
    run = own_run(tmp_path / "bpe", BpeTokenizer(vocab_size=300))
    loaded = load_any_model(tmp_path / "bpe")
    assert loaded.tokenizer is None
    assert loaded.note == f"its tokenizer.json is in the token store of '{run.data.id}'"
    file = FileTokenizer(path="tokenizer.json", vocab_size=300)
    own_run(tmp_path / "file", file)
    assert load_any_model(tmp_path / "file").tokenizer == file


def test_a_broken_or_missing_run(tmp_path: Path) -> None:
    own_run(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    refused(tmp_path, rf"^{weights}: truncated or corrupted \(")
    weights.unlink()
    refused(tmp_path, rf"^{weights}: no such checkpoint$")


def test_a_name_that_is_too_long() -> None:
    """A folder without permission raises in the same way."""
    refused(Path("x" * 260), r"^x+/?[^\n]*: cannot be read \(File name too long\)$")


ATTENTION = {"kind": "attention", "n_heads": 2, "head_dim": 8}


def test_a_classifier_of_pixels(tmp_path: Path) -> None:
    images = {"name": "x", "task": "pixels", "images": {"kind": "digits"}, "examples": 9}
    run = run_spec(parse_data(images, "test"), context=65, batch_tokens=65)
    save_model(tmp_path / "a.safetensors", build_model(run.model, 10, 0, channels=1), run, 30, "origin")
    with pytest.raises(CheckpointError, match="reads the numbers of 'x', not tokens, so it cannot read text"):
        load_any_model(tmp_path / "a.safetensors")


def test_only_attention_without_a_window_has_no_state(tmp_path: Path) -> None:
    spec = model_spec().model_dump(mode="json")
    for name, changes in {
        "all": {"mixer": ATTENTION},
        "some": {"mixer_at": {"1": ATTENTION}},
        "window": {"mixer_at": {"1": ATTENTION | {"window": 4}}},
    }.items():
        data = DataSpec(name="x", corpus=StdlibCorpus())
        content = run_spec(data).content() | {"model": spec | changes}
        run = RunSpec.parse(content, "test")
        (tmp_path / name).mkdir()
        save_model(tmp_path / name / "model.safetensors", build_model(run.model, 256, 0), run, 30, "origin")
    names = ("all", "some", "window")
    why = {name: load_any_model(tmp_path / name / "model.safetensors").why_not_extend for name in names}
    assert why == {
        "all": "it has no recurrent state to start from: it keeps keys and values of its tokens",
        "some": None,  # other layers have a state
        "window": None,
    }


# --- known formats ----------------------------------------------------------------------------------------------------


@pytest.fixture
def mamba2(tmp_path: Path) -> Path:
    hf.made("Mamba2", **MAMBA2, chunk_size=8).bfloat16().save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def test_a_known_format_is_read_in_float32_and_written_in_its_dtype(mamba2: Path, tmp_path: Path) -> None:
    before = content(mamba2)
    loaded = load_any_model(mamba2)
    assert (loaded.title, loaded.kind) == ("theirs", "transformers' Mamba-2")
    assert (loaded.run, loaded.longest, loaded.why_not_extend) == (None, None, None)
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    wanted = hf.run(hf.load(mamba2).float(), round_trip.tokens())
    assert (logits(loaded, round_trip.tokens()) - wanted).abs().max() < 1e-4
    assert loaded.imported is not None
    assert loaded.model is loaded.imported.model
    out = export_checkpoint(loaded.imported.model, loaded.imported, tmp_path / "out")
    round_trip.assert_bitwise(round_trip.weights(out), round_trip.weights(mamba2))
    assert content(mamba2) == before


def test_a_folder_with_a_long_name(mamba2: Path, tmp_path: Path) -> None:
    loaded = load_any_model(shutil.copytree(mamba2, tmp_path / ("m" * 100)))
    assert loaded.title == loaded.spec.name == "m" * 80


def test_the_context_in_config_json(mamba2: Path, tmp_path: Path) -> None:
    assert load_any_model(mamba2).context is None
    reconfigure(mamba2, text_config={"max_position_embeddings": 256})
    assert load_any_model(mamba2).context == 256
    reconfigure(mamba2, context_length=512)
    assert load_any_model(mamba2).context == 512
    hf.made("GPTNeoX", **NEOX, max_position_embeddings=40).save_pretrained(tmp_path / "neox")
    loaded = load_any_model(tmp_path / "neox")
    assert (loaded.context, loaded.longest) == (40, None)
    assert loaded.why_not_extend == "it has no recurrent state to start from: it keeps keys and values of its tokens"


@pytest.mark.parametrize(("name", "expected"), [("Bamba", "bfloat16"), ("MiniMax", "float32")])
def test_the_default_precision(name: str, expected: str, tmp_path: Path) -> None:
    made(name).save_pretrained(tmp_path)
    loaded = load_any_model(tmp_path)
    assert settings_of(loaded, torch.device("cuda"), context=16).precision == expected
    assert settings_of(loaded, torch.device("cpu"), context=16).precision == "float32"


def test_weights_that_do_not_fit(mamba2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has no options that need less memory for the activations."""
    own_run(tmp_path / "run")
    folders = (mamba2, tmp_path / "run")
    sizes = [size(4 * load_any_model(folder).model.parameters_count) for folder in folders]

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried.")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    for folder, needed in zip(folders, sizes, strict=True):
        said = (
            rf"\(CUDA out of memory\. Tried\.\); its weights need {needed} in float32; use --device cpu, or a GPU with"
        )
        with pytest.raises(CheckpointError, match=f"^{folder}: out of memory {said}"):
            load_any_model(folder, "cuda")
        with pytest.raises(CheckpointError, match="in float32; use a machine with more memory"):
            load_any_model(folder)


def test_the_fingerprint_depends_on_the_contents(mamba2: Path, tmp_path: Path) -> None:
    first = load_any_model(mamba2).fingerprint
    shutil.copytree(mamba2, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("words")
    assert load_any_model(tmp_path / "copy").fingerprint == first
    reconfigure(tmp_path / "copy", context_length=512)
    second = load_any_model(tmp_path / "copy").fingerprint
    rewrite(tmp_path / "copy", lambda tensors: tensors["backbone.norm_f.weight"].mul_(2))
    assert len({first, second, load_any_model(tmp_path / "copy").fingerprint}) == 3


def test_the_tokenizer_next_to_the_weights(mamba2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_any_model(mamba2)
    assert (loaded.tokenizer, loaded.note) == (None, "its folder has no tokenizer.json")
    (mamba2 / "tokenizer.model").touch()
    (mamba2 / "tokenizer_config.json").write_text("{}")
    loaded = load_any_model(mamba2)
    assert loaded.tokenizer is None
    assert loaded.note == "its tokenizer is tokenizer.model, tokenizer_config.json, but ssm reads only a tokenizer.json"
    (mamba2 / "tokenizer.json").write_text("{}")
    monkeypatch.chdir(mamba2.parent)
    loaded = load_any_model("theirs")
    assert loaded.tokenizer == FileTokenizer(path=str(mamba2 / "tokenizer.json"), vocab_size=round_trip.VOCABULARY)


@pytest.mark.parametrize(("rows", "are_bytes"), [(255, False), (256, True), (341, True), (342, False)])
def test_a_small_vocabulary_without_a_tokenizer_is_bytes(rows: int, are_bytes: bool, tmp_path: Path) -> None:
    run = own_run(tmp_path / "run")
    model = build_model(run.model, rows, 0)
    folder = write_checkpoint(model, "mamba_ssm", tmp_path / "out")
    loaded = load_any_model(folder)
    assert loaded.tokenizer == (BytesTokenizer(vocab_size=rows) if are_bytes else None)
    assert loaded.note is not None
    assert ("its tokens are bytes" in loaded.note) == are_bytes
    (folder / "tokenizer_config.json").write_text("{}")
    assert load_any_model(folder).tokenizer is None


# --- any other model of transformers ----------------------------------------------------------------------------------


def test_unsupported_variants_use_their_own_forward_pass(tmp_path: Path) -> None:
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    peer = hf.made("GPTNeoX", **NEOX, rope_parameters=scaled)
    peer.save_pretrained(tmp_path / "neox")
    loaded = load_any_model(tmp_path / "neox")
    assert isinstance(loaded.model, ForeignModel)
    assert loaded.imported is None
    assert loaded.kind == "GPTNeoXForCausalLM, through transformers' own forward pass"
    assert (logits(loaded, round_trip.tokens()) - hf.run(peer, round_trip.tokens())).abs().max() < 1e-4
    hf.made("Mamba2", **MAMBA2, use_bias=True).save_pretrained(tmp_path / "bias")
    loaded = load_any_model(tmp_path / "bias")
    assert isinstance(loaded.model, ForeignModel)
    assert loaded.why_not_extend is None


def test_unsupported_variants_of_fla_have_no_other_forward_pass(tmp_path: Path) -> None:
    """transformers has a Mamba-2 too, which ignores fla's keys."""
    hf.made("Mamba2", **MAMBA2).save_pretrained(tmp_path)
    reconfigure(tmp_path, norm_eps=1e-5, norm_before_gate=True)
    says = "norm_before_gate is True; ssm supports only False for fla's Mamba-2"
    refused(tmp_path, rf"config.json: {says}$")


def test_another_architecture(tmp_path: Path) -> None:
    made("Jamba").save_pretrained(tmp_path / "jamba")
    loaded = load_any_model(str(tmp_path / "jamba"))
    assert (loaded.title, loaded.kind) == (
        "jamba",
        "JambaForCausalLM, through transformers' own forward pass, one token at a time, because a pass over several "
        "tokens ignores the state",
    )
    assert (loaded.run, loaded.imported, loaded.context, loaded.longest) == (None, None, 262144, None)
    assert loaded.why_not_extend == ("its forward pass over several tokens ignores the state that it should start from")
    assert loaded.model.vocab_size == VOCABULARY
    assert not loaded.model.training

    (tmp_path / "jamba" / "tokenizer.json").write_text("{}")
    assert load_any_model(tmp_path / "jamba").tokenizer is not None
    torch.manual_seed(0)
    gpt2 = hf.transformers.GPT2LMHeadModel(hf.transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, n_positions=64))
    gpt2.save_pretrained(tmp_path / "gpt2")
    loaded = load_any_model(tmp_path / "gpt2")
    assert (loaded.context, loaded.longest) == (64, 64)
    assert loaded.why_not_extend == "it has no recurrent state to start from: it keeps keys and values of its tokens"


def test_mamba3_is_refused(tmp_path: Path) -> None:
    made("Jamba").save_pretrained(tmp_path)
    reconfigure(tmp_path, model_type="mamba3")
    refused(tmp_path, r"config.json: ssm cannot read Mamba-3: .* softplus .*since then\)$")


def test_the_outline_of_a_model_of_the_hub_needs_its_config_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[list[str]] = []

    def download(repository: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert outline_of("owner/model").context == 64
    assert asked == [["config.json"]]
