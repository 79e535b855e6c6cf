"""Weights in published formats become runs with the same outputs, and a record of their origin."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, round_trip
from models.formats.folders import reconfigure, rewrite
from small import import_checkpoint, model_spec, run_spec, write_checkpoint
from tokenizers import Tokenizer, models, pre_tokenizers

from ssm.base.errors import CheckpointError, UserError
from ssm.base.files import write_json
from ssm.base.tables import read_provenance
from ssm.cli.main import main
from ssm.data.store import TokenStore
from ssm.evaluation.measure import measure
from ssm.models.backbone import build_model
from ssm.models.weights_file import load_model, load_tensors, snapshot_path
from ssm.specs.data import DataSpec
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.training import CheckpointRef, RunSpec, TrainingSpec
from ssm.training import imported
from ssm.training.imported import import_run
from ssm.training.loop import train
from ssm.training.metrics import PATIENCE
from ssm.training.run_record import read_record

V = 37
DATA = DataSpec.parse(
    {"name": "words", "corpus": {"kind": "stdlib"}, "tokenizer": {"kind": "file", "path": "t.json", "vocab_size": V}},
    "tests",
)
FORMATS = ("mamba_ssm", "mamba2")


def run_of(folder: Path, data: DataSpec = DATA, seed: int = 3, **changes: Any) -> RunSpec:
    """A run of zero steps of the model that `published` writes, except for some fields."""
    return RunSpec(
        model=model_spec(**changes),
        data=data,
        training=TrainingSpec.of_zero_steps(16, "tests"),
        seed=seed,
        checkpoint=CheckpointRef(name=str(folder)),
    )


def published(folder: Path, form: str = "mamba_ssm", vocab_size: int = V, **changes: Any) -> Path:
    """A checkpoint with random weights, in a published format."""
    model = build_model(model_spec(**changes), vocab_size, 0)
    return write_checkpoint(round_trip.moved(model), form, folder)


@pytest.mark.parametrize("form", FORMATS)
def test_the_run_computes_the_same_as_the_checkpoint(form: str, tmp_path: Path) -> None:
    there = published(tmp_path / "theirs", form)
    record = import_run(run_of(there), tmp_path / "run")
    model, run = load_model(tmp_path / "run" / "model.safetensors")
    assert run == run_of(there)
    assert model.spec.peak_lr == 1e-2, "from the run, because checkpoints do not hold it"
    tokens = round_trip.tokens()
    with torch.no_grad():
        assert torch.equal(model(tokens)[0], import_checkpoint(there).model(tokens)[0])
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == record
    assert (record["status"], record["steps"], record["diverged"]) == ("finished", 0, None)
    assert record["parameters"] == model.parameters_count


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    there = published(tmp_path / "theirs", "mamba2")
    rewrite(there, lambda tensors: tensors.update({name: t.bfloat16() for name, t in tensors.items()}))
    import_run(run_of(there), tmp_path / "run")
    tensors, _ = load_tensors(tmp_path / "run" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


@pytest.mark.parametrize("tied", [True, False])
def test_the_run_decides_the_rows_beyond_the_vocabulary(tied: bool, tmp_path: Path) -> None:
    """The official Mamba-2 has 50,288 rows for 50,277 tokens, our model 50,280. The additional rows are never used."""
    there = published(tmp_path / "theirs", vocab_multiple=16, tie_embeddings=tied)  # 48 rows
    for multiple, rows in ((8, 40), (64, 64)):
        folder = tmp_path / f"run{multiple}"
        record = import_run(run_of(there, vocab_multiple=multiple, tie_embeddings=tied), folder)
        model, _ = load_model(folder / "model.safetensors")
        assert model.embedding.weight.shape == (rows, 16)
        assert record["parameters"] == model.parameters_count
        with torch.no_grad():
            wanted = import_checkpoint(there).model(round_trip.tokens())[0]
            assert torch.equal(model(round_trip.tokens())[0], wanted)


def test_the_origin_depends_on_the_content_of_the_files(tmp_path: Path) -> None:
    """It does not depend on names and folders."""
    there = published(tmp_path / "theirs", "mamba2")
    first = import_run(run_of(there), tmp_path / "run")
    moved = Path(shutil.copytree(there, tmp_path / "elsewhere"))
    assert import_run(run_of(moved), tmp_path / "again")["origin"] == first["origin"]
    rewrite(moved, lambda tensors: tensors["backbone.norm_f.weight"].mul_(2))
    changed = import_run(run_of(moved), tmp_path / "changed")
    assert changed["origin"] != first["origin"]
    assert changed["published"] == {"name": str(moved), "revision": None, "fingerprint": changed["origin"]}


def test_descendants_and_tables_record_the_published_weights(store: TokenStore, tmp_path: Path) -> None:
    base = run_of(published(tmp_path / "theirs", vocab_size=256), store.spec)
    origin = import_run(base, tmp_path / "base")["published"]
    assert re.fullmatch("[0-9a-f]{16}", origin["fingerprint"])
    child = run_spec(store.spec, parent=base, budget={"steps": 2})
    grandchild = run_spec(store.spec, parent=child, budget={"steps": 2})
    cpu = torch.device("cpu")
    for run, name, parent in ((child, "child", "base"), (grandchild, "grandchild", "child")):
        train(run, store, tmp_path / name, cpu, tmp_path / parent)
        assert read_record(tmp_path / name)["published"] == origin
    curve = PositionLoss(length=64, sequences=4)
    for run, name in ((base, "base"), (child, "child"), (grandchild, "grandchild")):
        table = tmp_path / f"{name}.parquet"
        measure(MeasurementTask(measurement=curve, run=run), table, cpu, tmp_path / name, store.folder)
        assert read_provenance(table)["published"] == origin
        task = MeasurementTask(measurement=LengthClass(of=curve, context=16), run=run)
        measure(task, tmp_path / "class.parquet", cpu, table=table)
        assert read_provenance(tmp_path / "class.parquet")["published"] == origin
    own = run_spec(store.spec, budget={"steps": 1})
    assert "published" not in train(own, store, tmp_path / "own", cpu)


def test_other_weights_under_the_same_name_restart_training(
    store: TokenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = published(tmp_path / "theirs", "mamba2", 256)
    base = run_of(there, store.spec)
    child = run_spec(store.spec, parent=base, budget={"steps": 3})
    import_run(base, tmp_path / "base")
    cpu = torch.device("cpu")
    train(child, store, tmp_path / "child", cpu, tmp_path / "base")
    rewrite(there, lambda tensors: tensors["backbone.norm_f.weight"].mul_(2))
    import_run(base, tmp_path / "base")
    capsys.readouterr()
    train(child, store, tmp_path / "child", cpu, tmp_path / "base")
    assert "its text or its parent run has changed; training starts again from step 1" in capsys.readouterr().err


class KilledError(BaseException):
    """Simulates a kill."""


@pytest.mark.parametrize("at", ["save_weights", "write_json"])
def test_after_a_kill_nothing_counts_as_a_run_and_the_same_call_continues(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(published(tmp_path / "theirs"))
    import_run(run, tmp_path / "whole")

    def killed(path: Path, *_: object) -> None:
        (path.parent / f".{path.name}.1-00000000.tmp").write_text("left by a killed process")
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(imported, at, killed)
        with pytest.raises(KilledError):
            import_run(run, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
    import_run(run, tmp_path / "run")
    import_run(run, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "run.json", "model.safetensors"}
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]


def refused(run: RunSpec, out: Path) -> str:
    """The error message, one line. No record is written."""
    with pytest.raises(UserError) as caught:
        import_run(run, out)
    assert not (out / "run.json").exists()
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("form", FORMATS)
def test_every_difference_from_the_model_is_reported(form: str, tmp_path: Path) -> None:
    there = published(tmp_path / "theirs", form)
    said = refused(run_of(there, mixer={"d_state": 16}, n_layers=3), tmp_path / "run")
    assert said.startswith(f"{there}: is not the model 'tiny': n_layers is 2, not 3; ")
    assert "d_state of layer 0, 1 is 8, not 16" in said
    said = refused(run_of(there, mixer={"d_state": 16, "n_groups": 2}, tie_embeddings=False), tmp_path / "run")
    differences = "tie_embeddings is True, not False; d_state is 8, not 16; n_groups is 1, not 2"
    assert said == f"{there}: is not the model 'tiny': {differences}"


def test_fields_that_change_no_computation_may_differ(tmp_path: Path) -> None:
    """Initialization, speed settings and names."""
    there = published(tmp_path / "theirs")
    own = {"a_range": [1, 1], "dt_range": [1e-4, 1e-3], "conv_bias": "zero", "slow_heads": {"share": 0.5}, "chunk": 4}
    import_run(run_of(there, mixer=own, name="other", peak_lr=3e-3, published_parameters=7), tmp_path / "run")


def words(path: Path, shift: int = 0, count: int = V) -> Path:
    """Write a tokenizer.json of `count` words with shifted numbers."""
    numbers = {f"w{number}": (number + shift) % count for number in range(count)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))
    return path


def test_a_format_whose_vocabulary_size_counts_rows(tmp_path: Path) -> None:
    """Pythia has 50,304 rows for the 50,277 tokens of its tokenizer, and its config gives the former."""
    there = published(tmp_path / "theirs", vocab_size=40)
    import_run(run_of(there, vocab_multiple=8), tmp_path / "run")
    model, _ = load_model(tmp_path / "run" / "model.safetensors")
    assert (model.vocab_size, model.embedding.weight.shape[0]) == (V, 40)
    with torch.no_grad():
        wanted = import_checkpoint(there).model(round_trip.tokens())[0]
        assert torch.equal(model(round_trip.tokens())[0], wanted[..., :V])


def test_another_vocabulary(tmp_path: Path) -> None:
    """Another size, or the same size and another tokenizer next to the weights."""
    there = published(tmp_path / "theirs", vocab_size=40)
    said = refused(run_of(there), tmp_path / "run")
    assert said == f"{there}: its vocabulary has 40 tokens, but the data set 'words' has 37"

    there = published(tmp_path / "others")
    own = DATA.model_copy(update={"tokenizer": DATA.tokenizer.model_copy(update={"path": str(words(tmp_path / "t"))})})
    beside = words(there / "tokenizer.json")
    import_run(run_of(there, own), tmp_path / "same")
    words(beside, shift=1)
    assert refused(run_of(there, own), tmp_path / "run") == (
        f"{there}: comes with {beside}, with other numbers for 37 of 37 tokens of the data set 'words', "
        "for example 'w0'"
    )
    shutil.copyfile(beside, published(tmp_path / "bytes", vocab_size=256) / "tokenizer.json")
    plain = DataSpec.parse({"name": "plain", "corpus": {"kind": "stdlib"}}, "tests")
    said = refused(run_of(tmp_path / "bytes", plain), tmp_path / "run")
    assert said.endswith("tokenizer.json; the data set 'plain' uses another tokenizer (bytes)")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda there: (there / "model.safetensors").unlink(), "has no weights "),
    "no config": (lambda there: (there / "config.json").unlink(), "has no config.json"),
    "not there": (shutil.rmtree, "no such folder or file, and not a name of the hub"),
    "truncated": (lambda there: truncate(there / "model.safetensors"), "truncated or corrupted"),
    "a tensor is missing": (
        lambda there: rewrite(there, lambda tensors: tensors.pop("backbone.norm_f.weight")),
        "missing backbone.norm_f.weight",
    ),
    "not finite": (
        lambda there: rewrite(there, lambda tensors: tensors["backbone.norm_f.weight"].fill_(float("nan"))),
        "weights that are not finite: backbone.norm_f.weight",
    ),
    "an unknown kind": (lambda there: reconfigure(there, model_type="mamba9"), "unknown architecture 'mamba9'"),
    "another shape than it says": (
        lambda there: reconfigure(there, state_size=4),
        "is not a valid model of transformers' Mamba-2",
    ),
}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("case", BROKEN)
def test_broken_checkpoints(case: str, tmp_path: Path) -> None:
    there = published(tmp_path / "theirs", "mamba2")
    spoil, says = BROKEN[case]
    spoil(there)
    assert says in refused(run_of(there), tmp_path / "run")


def test_a_model_that_ssm_does_not_implement(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    hf.made("Llama", **sizes).save_pretrained(tmp_path / "theirs")
    said = refused(run_of(tmp_path / "theirs"), tmp_path / "run")
    assert "through transformers' own forward pass; `ssm diagnose` can read it, but this run needs" in said


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where to put the files. They are then read from there, or from the hub's cache."""
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    run = run_of(Path("someone/tiny@half"))
    said = refused(run, tmp_path / "run")
    assert said.startswith("someone/tiny@half: no such folder, and the hub does not provide it (")
    by_hand = f"; without a network, copy its config.json and weights to {tmp_path}/someone/tiny@half"
    assert said.endswith(f"{by_hand}, or the hub's cache of another machine to {tmp_path}/cache")

    published(tmp_path / "someone" / "tiny@half", "mamba2")
    record = import_run(run, tmp_path / "run")
    assert record["published"]["revision"] is None

    cached = tmp_path / "cache" / "models--someone--tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "half").write_text("b" * 40)
    (cached / "snapshots").mkdir()
    (tmp_path / "someone" / "tiny@half").rename(cached / "snapshots" / ("b" * 40))
    again = import_run(run, tmp_path / "again")
    assert again["published"] == record["published"] | {"revision": "b" * 40}
    assert again["origin"] == record["origin"]

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert refused(run, tmp_path / "new").endswith(f"need `pip install '.[hub]'` in the clone{by_hand}")


def test_our_own_run_as_a_checkpoint(store: TokenStore, tmp_path: Path) -> None:
    """It must have read the same tokens. A divergence is inherited."""
    own = run_spec(store.spec, budget={"steps": 2})
    record = train(own, store, tmp_path / "own", torch.device("cpu"))
    run = run_of(tmp_path / "own", store.spec, seed=8)
    assert import_run(run, tmp_path / "run")["diverged"] is None
    (here, _), (there, _) = (load_model(tmp_path / name / "model.safetensors") for name in ("run", "own"))
    assert torch.equal(here.embedding.weight, there.embedding.weight)
    other = store.spec.model_copy(update={"tokenizer": DATA.tokenizer.model_copy(update={"vocab_size": 256})})
    assert "was trained on tokens of 'small-" in refused(run_of(tmp_path / "own", other), tmp_path / "new")
    write_json(tmp_path / "own" / "run.json", record | {"status": "diverged", "diverged": "diverged: at step 1"})
    assert import_run(run, tmp_path / "run")["diverged"] == "its weights are from a run that diverged: at step 1"


def test_only_snapshots_from_long_before_a_divergence_are_imported_as_sound(store: TokenStore, tmp_path: Path) -> None:
    own = run_spec(store.spec, budget={"steps": PATIENCE + 2}, snapshots=[1 / (PATIENCE + 2), 0.5])
    record = train(own, store, tmp_path / "own", torch.device("cpu"))
    write_json(tmp_path / "own" / "run.json", record | {"status": "diverged", "diverged": "diverged: at the end"})
    early, late = (snapshot_path(tmp_path / "own", at) for at in own.training.snapshots)
    assert import_run(run_of(early, store.spec), tmp_path / "early")["diverged"] is None
    reason = import_run(run_of(late, store.spec), tmp_path / "late")["diverged"]
    assert reason == "its weights are from a run that diverged: at the end"


def test_trained_runs_are_not_imported_and_imported_runs_are_not_trained(store: TokenStore, tmp_path: Path) -> None:
    own = run_spec(store.spec, budget={"steps": 2})
    assert "this run is trained by `ssm train`" in refused(own, tmp_path / "run")
    run = run_of(published(tmp_path / "theirs", vocab_size=256), store.spec)
    with pytest.raises(CheckpointError, match="its weights were imported; a run of zero steps cannot be trained"):
        train(run, store, tmp_path / "run", torch.device("cpu"))
    import_run(run, tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="holds another run; give another --out, or delete it"):
        import_run(run.model_copy(update={"seed": 4}), tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    pinned = run.model_copy(update={"checkpoint": CheckpointRef(name=str(tmp_path / "theirs"), fingerprint="0" * 16)})
    assert "its files have changed: the fingerprint was 0000000000000000 and is" in refused(pinned, tmp_path / "new")


def test_the_command_reports_what_it_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(published(tmp_path / "theirs"))
    write_json(tmp_path / "spec.json", run.content())
    assert main(["import", str(tmp_path / "spec.json"), "--out", str(tmp_path / "run")]) == 0
    found = read_record(tmp_path / "run")["origin"]
    assert capsys.readouterr().err == f"{run.id}: imported from {tmp_path / 'theirs'} (fingerprint {found})\n"
    shutil.rmtree(tmp_path / "theirs")
    assert main(["import", str(tmp_path / "spec.json"), "--out", str(tmp_path / "new")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
