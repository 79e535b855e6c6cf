"""Extensions that are refused with one line before any work."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from extension.world import extended
from file_limit import file_limit
from models.formats import hf
from safetensors.torch import load_file, save_file
from small import content, text

from ssm.base.errors import ConfigError, OutputError, UserError
from ssm.cli.main import main
from ssm.models.load import load_any_model
from ssm.specs.extension import INTERVENTIONS, STORED_REPAIRS

pytestmark = pytest.mark.usefixtures("without_plots")


def refused(world: Path, out: Path, model: str | Path = "theirs", **settings: Any) -> str:
    """The error message. Nothing was trained."""
    with pytest.raises(UserError) as caught:
        extended(world, out, str(model), **settings)
    assert not (out / "work" / "runs").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


SHORT: dict[str, Any] = {"steps": 1, "sequences": 4}


@pytest.fixture(scope="module")
def ended(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short extension. Tests do not change it."""
    out = tmp_path_factory.mktemp("ended") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssm.diagnosis.page.plots", lambda *_: [])
        extended(world, out, **SHORT)
    return out


@pytest.fixture
def stranger(world: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that tests may damage."""
    return Path(shutil.copytree(world / "theirs", tmp_path / "stranger"))


def test_an_unknown_policy_is_answered_with_those_that_a_checkpoint_can_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["extend", "theirs", "--text", "texts", "-o", "out", "--policy", "foo"]) == 2
    valid = ", ".join(sorted((*INTERVENTIONS, *STORED_REPAIRS)))
    assert f"--policy foo: unknown; valid names: {valid}" in capsys.readouterr().err


def test_a_seed_that_no_record_can_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extend", "theirs", "--text", "texts", "-o", "out", "--seed", str(10**25)]) == 2
    said = f"argument --seed: expected a whole number above -2^63 and below 2^63, got '{10**25}' (see"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["GPTNeoX", "Llama"])
def test_attention_that_keeps_every_token(kind: str, world: Path, tmp_path: Path) -> None:
    """ssm converts one of them, and reads the other through transformers."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    hf.made(kind, **sizes).save_pretrained(tmp_path / "theirs")
    said = refused(world, tmp_path / "out", tmp_path / "theirs")
    assert said == f"{tmp_path / 'theirs'}: cannot be extended: {load_any_model(tmp_path / 'theirs').why_not_extend}"
    assert "keys and values" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inside", ["", "out", "deep/out"])
def test_the_originals_own_folder(inside: str, world: Path, stranger: Path) -> None:
    before = content(stranger)
    said = refused(world, stranger / inside, stranger)
    assert "is inside the original's folder, which is never changed" in said
    assert content(stranger) == before
    assert not (stranger / "deep").exists()


def test_a_runs_own_folder(world: Path) -> None:
    assert "is inside the original's folder" in refused(world, world / "run" / "out", "run")


def test_a_folder_that_is_a_link_to_itself(world: Path, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("out")
    assert refused(world, tmp_path / "out") == f"{tmp_path}/out: cannot be made a folder (File exists)"


def test_another_text_under_the_same_name(world: Path, tmp_path: Path) -> None:
    texts = Path(shutil.copytree(world / "texts", tmp_path / "texts"))
    out = tmp_path / "out"
    first = extended(world, out, **SHORT, text=[str(texts)])
    assert extended(world, out, **SHORT, text=[str(texts)]) == first
    for file in texts.iterdir():
        file.touch()  # as a copy or a checkout does
    assert extended(world, out, **SHORT, text=[str(texts)]) == first
    names = sorted(map(str, texts.iterdir()), reverse=True)
    assert extended(world, out, **SHORT, text=names) == first, "the same files under other names"
    (out / "result.json").unlink()
    assert extended(world, out, **SHORT, text=names)["outcome"] == first["outcome"]
    (texts / "more.txt").write_text("and more")
    with pytest.raises(OutputError, match=r"has another extension \(the files of its text have changed\)"):
        extended(world, out, **SHORT, text=[str(texts)])


def test_the_folder_of_another_extension(world: Path, whole: Path, stranger: Path, tmp_path: Path) -> None:
    before = content(whole)

    def said(model: str | Path = "theirs", **settings: Any) -> str:
        with pytest.raises(UserError) as caught:
            extended(world, whole, str(model), **({"control": True} | settings))
        return str(caught.value)

    assert said(steps=41) == f"{whole}: has another extension (--steps was 40, is 41); give another -o"
    assert "(--text-key was None, is 'content')" in said(text_key="content")
    assert "(--policy was 'state_passing', is 'tbtt'" in said(policy="tbtt", p_zero=0.1)
    assert "(--policy was 'state_passing', is 'scale_a')" in said(policy="scale_a", control=None, steps=None, lr=None)
    assert "(whether there are recall tests (--no-passkey) was False, is True)" in said(passkey=True)
    assert "(--held-out was [], is " in said(held_out=[str(world / "texts")])
    assert "(--in-context-tolerance was 1.0, is 0.5" in said(in_context_tolerance=0.5)  # its model is written
    weights = load_file(stranger / "model.safetensors")
    weights["backbone.norm_f.weight"][0] += 1
    save_file(weights, stranger / "model.safetensors", metadata={"format": "pt"})
    assert "(the model's fingerprint was " in said(stranger)
    after = content(whole)
    assert after == before


def test_text_that_is_too_short(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = refused(world, out, length=32768)
    assert "--length 32768 needs at least 524,304 (about 520 kB: 4 windows to measure and 4 to choose a check" in said
    assert extended(world, out, **SHORT)["outcome"]  # a shorter length may continue in the same folder


@pytest.mark.parametrize("share", [0.0, 0, 1.0, -0.5, 1.5])
def test_a_share_outside_of_zero_to_one(share: float, world: Path, tmp_path: Path) -> None:
    said = refused(world, tmp_path / "out", held_out=share)
    assert said.startswith(f"--held-out {share:g}: expected a share of --text between 0 and 1, or files")
    assert not (tmp_path / "out").exists()


def test_a_share_that_leaves_nothing_to_train_on(world: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.txt"
    one.write_text(text(0, 2000))
    said = refused(world, tmp_path / "out", text=[str(one)], held_out=0.999)
    left = "with --held-out 0.999 --length 128, 0 tokens are left; context 16 needs 17"
    assert said.endswith(f"{left}; give a smaller --held-out, or more text")


def test_a_repair_needs_no_text_to_train_on(world: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.txt"
    one.write_text(text(0, 2000))
    settings = {"text": [str(one)], "held_out": 0.999, "policy": "scale_a", "steps": None, "lr": None}
    assert extended(world, tmp_path / "out", **SHORT | settings)["repair"]


def test_a_tokenizer_of_another_vocabulary(world: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    path = tmp_path / "tokenizer.json"
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(300)}, unk_token="w0")).save(str(path))
    said = refused(world, tmp_path / "out", tokenizer=str(path))
    assert said.startswith(f"{path}: this tokenizer has another vocabulary")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_tokens": 100}, "--batch-tokens 100 must be a multiple of --context 16"),
        (
            {"micro_batch_tokens": 48},
            "--micro-batch-tokens 48 must be a multiple of --context 16 and divide",
        ),
        ({"policy": "random_noise"}, "policy random_noise needs --sigma"),
        ({"policy": "zero"}, "it is the control arm"),
        ({"policy": "scale_b"}, "--policy scale_b: unknown; did you mean 'scale_a'?"),
        ({"policy": "reset_state", "steps": None, "lr": None}, "changes how a model is read"),
        ({"policy": "scale_a", "lr": None}, "policy scale_a has no option --steps: it trains nothing"),
        ({"sigma": 1.0}, "policy state_passing has no option --sigma"),
        ({"p_zero": 2.0}, "--p-zero: expected a number up to 1, got 2.0"),
        ({"in_context_tolerance": -1.0}, "--in-context-tolerance: expected a number from 0 on"),
        ({"context": 24}, "context 24: expected a power of two"),
        ({"length": 16}, "length 16: expected at least twice the context"),
    ],
)
def test_numbers_that_make_no_sense(
    settings: dict[str, Any], said: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.keys().isdisjoint({"batch_tokens", "micro_batch_tokens"}):
        monkeypatch.setattr("ssm.extension.load_any_model", lambda *_: pytest.fail("the model was loaded"))
    assert said in refused(world, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_finite(world: Path, stranger: Path, tmp_path: Path) -> None:
    weights = load_file(stranger / "model.safetensors")
    weights["backbone.norm_f.weight"][0] = float("nan")
    save_file(weights, stranger / "model.safetensors", metadata={"format": "pt"})
    assert "weights that are not finite: backbone.norm_f.weight" in refused(world, tmp_path / "out", stranger)
    assert not (tmp_path / "out").exists()


def test_a_run_that_has_not_finished(world: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    (run / "run.json").unlink()
    assert "the run has not finished" in refused(world, tmp_path / "out", run)


def test_a_file_other_than_the_final_weights_of_a_run(world: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(world / "run" / "model.safetensors", tmp_path / "weights.safetensors"))
    assert "give the folder of the run" in refused(world, tmp_path / "out", copy)


def test_another_run_in_the_place_of_the_extended_one(world: Path, ended: Path, tmp_path: Path) -> None:
    """A finished run is used only if its spec is the expected one."""
    out = Path(shutil.copytree(ended, tmp_path / "out"))
    record = json.loads((out / "work/runs/extended/run.json").read_text())
    record["spec"]["seed"] = 99
    (out / "work/runs/extended/run.json").write_text(json.dumps(record))
    (out / "result.json").unlink()
    with pytest.raises(UserError, match="has another run than this extension's"):
        extended(world, out, **SHORT)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "\ud800"}, "not a readable result (it contains half of a surrogate pair"),
        ({"model": "../theirs"}, "not a result: model: expected the name of a file in the same folder"),
        ({"outcome": "gained\x1b[2J"}, "not a result: outcome: expected one line of printable characters"),
        ({"library": "flax"}, "not a result: library: unknown name 'flax'; did you mean 'fla'?"),
    ],
)
def test_a_result_of_another_shape(world: Path, ended: Path, tmp_path: Path, change: dict[str, str], says: str) -> None:
    out = Path(shutil.copytree(ended, tmp_path / "out"))
    result = json.loads((out / "result.json").read_text())
    (out / "result.json").write_text(json.dumps(result | change))
    with pytest.raises(UserError, match=f"result.json: {re.escape(says)}"):
        extended(world, out, **SHORT)


def test_a_folder_with_other_content(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["extend", str(world / "theirs"), "--text", str(world / "texts"), "--context", "16", "-o", str(tmp_path)]
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(said) == 2
    err = capsys.readouterr().err
    assert err == f"ssm extend: {tmp_path}: has other content than an extension; give a new folder with -o\n"
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(OutputError, match="has other content"):  # before a model is looked for
        extended(world, tmp_path, "none")


@pytest.mark.parametrize("option", ["--text", "--held-out", "-o", "--tokenizer"])
def test_an_empty_name_is_not_the_current_folder(
    option: str, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = ["extend", str(world / "theirs"), "--text", str(world / "texts"), "--context", "16", "-o", "out"]
    assert main([*said, option, ""]) == 2
    said = f"{option}: expected a name or a path, got '' (is a variable unset?) (see `ssm extend --help`)\n"
    assert capsys.readouterr().err == f"ssm extend: argument {said}".replace("-o:", "-o/--out:")
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("limit", "where"),
    [
        (3_000, "work/tokens/text"),
        (100_000, "before/index.html"),
        (101_000, "work/runs/extended/snapshots/at0.25.safetensors"),  # larger than the original by its header
    ],
)
def test_a_full_disk_gives_one_line_and_the_command_continues_later(
    limit: int,
    where: str,
    world: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit of the file size simulates a full disk. Each limit stops another file."""
    if where == "before/index.html":
        monkeypatch.undo()  # with its plots, so that it is large
    before = content(world / "theirs")
    out = tmp_path / "out"
    texts = ["--text", f"{world}/texts/0[01]*.txt", "--held-out", f"{world}/texts/05*.txt"]
    command = ["extend", str(world / "theirs"), *texts, "-o", str(out), "--context", "16"]
    command += ["--length", "128", "--sequences", "64", "--no-passkey", "--in-context-tolerance", "1", "--steps", "40"]
    command += ["--lr", "3e-3", "--device", "cpu", "--threads", "1"]
    with file_limit(limit):
        assert main(command) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("ssm extend: "))
    assert line.startswith(f"ssm extend: {out}/{where}: cannot be written (")
    assert "File too large" in line
    assert content(world / "theirs") == before
    assert not (out / "model").exists()
    assert main(command) == 0
    assert (out / "model" / "config.json").exists()
    assert not list(out.rglob(".*.tmp"))


def test_an_unknown_key_is_named() -> None:
    from ssm.specs.extension import ExtensionSpec

    with pytest.raises(ConfigError, match=r"unknown key 'step'; did you mean 'steps'\?"):
        ExtensionSpec.parse({"diagnosis": {"context": 16, "length": 64}, "step": 3}, "test")


def test_a_folder_inside_the_texts(world: Path, tmp_path: Path) -> None:
    """The next command would read it as text."""
    texts = Path(shutil.copytree(world / "texts", tmp_path / "texts"))
    for out in (texts, texts / "deep" / "out"):
        said = refused(world, out, text=[str(texts)])
        assert said == f"{out}: is inside {texts}, which is read as text; give another -o"
    assert not (texts / "deep").exists()


@pytest.mark.parametrize("option", ["text", "held_out"])
def test_text_that_is_missing_is_reported_before_the_model_is_loaded(option: str, world: Path, tmp_path: Path) -> None:
    none = tmp_path / "none.txt"
    for given in (none, str(none), [none], [str(none)]):
        assert refused(world, tmp_path / "out", "none", **{option: given}) == f"{none}: no such file or folder"


def test_more_memory_than_there_is_for_training(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folder goes on with smaller forward passes, until there is a checkpoint."""
    out = tmp_path / "out"

    def lacking(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr("ssm.training.step.loss_of", lacking)
        with pytest.raises(torch.OutOfMemoryError):
            extended(world, out, **SHORT)
    before = content(out / "before")
    with pytest.raises(OutputError, match=r"has another extension \(--steps was 1, is 2\)"):
        extended(world, out, **SHORT | {"steps": 2, "activation_checkpointing": True})
    assert extended(world, out, **SHORT, micro_batch_tokens=64)["outcome"]
    assert content(out / "before") == before
    with pytest.raises(OutputError, match=r"\(--micro-batch-tokens was 64, is 32\)"):
        extended(world, out, **SHORT, micro_batch_tokens=32)


def test_a_kill_while_the_settings_were_written(world: Path, tmp_path: Path) -> None:
    """A temporary extension.json is not other content. So the error message is about the text."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".extension.json.123-0123abcd.tmp").write_text("{")
    assert "no such file" in refused(world, tmp_path / "out", text=[str(tmp_path / "none.txt")]).lower()


def test_settings_of_another_shape(world: Path, whole: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    settings = json.loads((out / "extension.json").read_text())
    settings["spec"]["diagnosis"] = "none"
    (out / "extension.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"extension.json: not the record of an extension: spec.diagnosis: expected"):
        extended(world, out)
