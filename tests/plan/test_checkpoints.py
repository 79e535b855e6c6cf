"""The jobs of checkpoints in models.yaml: their command lines, files and needs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
from plan.mini import edit, write_config

from ssm.base.errors import ConfigError
from ssm.cli import diagnose, extend
from ssm.plan import Library, load_config, make_plan
from ssm.plan.checkpoints import CheckpointJob, checkpoint_jobs
from ssm.plan.resources import MEMORY_MB, START_SECONDS
from ssm.plan.sources import text_files
from ssm.plan.summary import summary
from ssm.specs.checkpoint import CheckpointSpec
from ssm.specs.config import WorkflowConfig

FULL = {
    "text_key": "content",
    "tokenizer": "bytes",
    "context": 64,
    "length": 512,
    "tolerance": 1.5,
    "budget": 2.5,
    "sequences": 8,
    "passkey": False,
    "precision": "bfloat16",
    "seed": 3,
    "held_out": ["my book", "*.txt"],
    "policy": "random_noise",
    "p_zero": 0.2,
    "sigma": 0.03,
    "steps": 7,
    "lr": 6e-5,
    "batch_tokens": 512,
    "micro_batch_tokens": 128,
    "activation_checkpointing": True,
    "control": True,
    "measure": "paired_ratio",
    "in_context_tolerance": 0.1,
}


def checkpoint(**keys: Any) -> CheckpointSpec:
    return CheckpointSpec.parse({"name": "mine", "checkpoint": "models/mine", "text": ["a b", "c"]} | keys, "test")


OF_THE_JOB = ("out", "replace", "json", "device", "threads")  # options that are not keys


def understood(words: tuple[str, ...]) -> dict[str, Any]:
    """The arguments as the command parses them."""
    verb, *arguments = words
    parser = argparse.ArgumentParser(allow_abbrev=False)
    {"diagnose": diagnose, "extend": extend}[verb].add_arguments(parser)
    found = vars(parser.parse_args([*arguments, "--out", "o"]))
    return {name: value for name, value in found.items() if name not in OF_THE_JOB}


def test_every_key_is_an_option_and_every_option_a_key() -> None:
    spec = checkpoint(**FULL)
    asked = {"model": "models/mine", "text": ["a b", "c"]} | FULL
    assert understood(spec.extend_words) == asked | {"by": None}
    repair = checkpoint(policy="scale_a", by="layer", measure="paired_ratio")
    assert understood(repair.extend_words) == understood(checkpoint().extend_words) | {
        "policy": "scale_a", "by": "layer", "measure": "paired_ratio",
    }  # fmt: skip
    shared = understood(spec.diagnose_words)
    assert shared == {name: asked[name] for name in shared}
    assert "seed" in shared
    assert "steps" not in shared
    assert set(FULL) | {"name", "checkpoint", "text", "by"} == set(CheckpointSpec.model_fields)


def test_missing_keys_have_the_defaults_of_the_command_line() -> None:
    bare = understood(("extend", "models/mine", "--text", "a b", "c"))
    assert understood(checkpoint().extend_words) == bare
    assert bare["budget"] == checkpoint().budget
    assert bare["policy"] == checkpoint().policy
    assert bare["steps"] == checkpoint().steps


def test_a_path_can_start_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert checkpoint(checkpoint="~/mine").diagnose_words[1] == "/somewhere/mine"
    assert checkpoint(checkpoint="~$mine").diagnose_words[1] == "~$mine"


@pytest.mark.parametrize("name", ["0.2", ".5", "1e-1", "-1", "1"])
def test_held_out_files_are_never_a_share(name: str) -> None:
    assert understood(checkpoint(held_out=[name]).extend_words)["held_out"] == [f"./{name}"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"context": 48}, "context 48: expected a power of two from 4 on; the nearest are 32 and 64"),
        ({"context": 64, "length": 100}, "length 100: expected at least twice the context, 128"),
        ({"length": -1}, "length: expected a number above 0, got -1"),
        ({"tolerance": 0.5}, "tolerance: expected a number above 1, got 0.5"),
        ({"sequences": 2}, "sequences: expected a number from 4 on, got 2"),
        ({"policy": "random_noise"}, "policy 'random_noise' needs the key sigma"),
        ({"policy": "tbtt", "sigma": 0.1}, "policy 'tbtt' does not use the key sigma"),
        ({"policy": "scale_a", "steps": 9}, "policy 'scale_a' does not use the key steps: it trains nothing"),
        ({"policy": "tbtt", "by": "layer"}, "policy 'tbtt' does not use the key by"),
        ({"policy": "clip_dt"}, "policy 'clip_dt' limits dt, and other libraries drop this limit while they generate"),
        ({"policy": "restarts"}, "policy 'restarts' changes how a model is read, and no checkpoint format"),
        ({"policy": "zero"}, "policy: unknown name 'zero'; valid names: clip_dt, fitted_noise, "),
        ({"p_zero": 2}, "p_zero: expected a number up to 1, got 2.0"),
        ({"steps": 0}, "steps: expected a number above 0, got 0"),
        ({"budget": 0}, "budget: expected a number above 0, got 0"),
        ({"text": [""]}, "text"),
        ({"text": "a"}, "text: expected a list, got 'a'"),
        ({"name": ".."}, "name: the name becomes a folder and a target: use letters, digits, "),
    ],
)
def test_an_entry_that_the_command_line_would_refuse_is_refused(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        checkpoint(**keys)
    assert str(error.value).startswith(f"test: {says}")
    assert "\n" not in str(error.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config folder with the checkpoint `mine`, its files and its text."""
    monkeypatch.chdir(tmp_path)
    names = (
        "m/config.json",
        "m/model.safetensors",
        "m/optimizer.bin",
        "m/README.md",
        "a.txt",
        "held/b.txt",
        "t/tokenizer.json",
    )
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("{}")
    write_config(Path("config"))
    mine = "mine: {checkpoint: m, text: [a.txt], held_out: [held], tokenizer: t, steps: {smoke: 9, paper: 200}}"
    edit(Path("config"), "models.yaml", "tiny: {", f"{mine}\ntiny: {{")
    return Path("config")


def test_a_checkpoint_without_a_value_for_the_scale_says_so(folder: Path) -> None:
    edit(folder, "models.yaml", "mine: {", "mine: {context: {gpu: 32}, ")
    edit(folder, "models.yaml", "tiny: {", "little: {d_model: {desk: 32}}\ntiny: {")
    library, path = load_config(folder, "smoke"), folder / "models.yaml"
    why = f"{path}: mine.context: no value for the scale 'smoke'; it has: gpu"
    for target in ("diagnose_mine", "extend_mine"):
        assert library.why_no_checkpoint(target) == f"'{target}' cannot be made: {why}"
    for target in ("diagnose_little", "diagnose_nothing", "mine", "diagnose_"):
        assert library.why_no_checkpoint(target) is None, "no target of a checkpoint"
    edit(folder, "models.yaml", "{gpu: 32}", "{smoke: 32}")
    assert load_config(folder, "smoke").why_no_checkpoint("diagnose_mine") is None


def jobs(folder: Path, **overrides: Any) -> tuple[CheckpointJob, CheckpointJob]:
    found = checkpoint_jobs(load_config(folder, overrides=overrides))
    assert list(found) == ["mine/diagnosis", "mine/extension"]
    return found["mine/diagnosis"], found["mine/extension"]


def test_a_brace_in_a_path_is_one_line(folder: Path) -> None:
    """Snakemake would end with an error of its own about wildcards."""
    Path("held/{x}.txt").touch()
    diagnosed, extended = jobs(folder)
    assert diagnosed.problem == "", "a diagnosis reads no held-out text"
    assert "held/{x}.txt: Snakemake reads braces" in extended.problem
    assert text_files(("held",)) == (Path("held/b.txt").resolve(), Path("held/{x}.txt").resolve()), "for commands"


def names(job: CheckpointJob) -> set[str] | None:
    return None if job.files is None else {path.relative_to(Path.cwd()).as_posix() for path in job.files}


READ = {"m/config.json", "m/model.safetensors", "a.txt", "t/tokenizer.json"}


def test_the_files_that_a_job_reads(folder: Path) -> None:
    diagnosed, extended = jobs(folder)
    assert names(diagnosed) == READ
    assert names(extended) == READ | {"held/b.txt"}
    assert (diagnosed.target, extended.target) == ("diagnose_mine", "extend_mine")
    Path("held/b.txt").unlink()
    diagnosed, extended = jobs(folder)
    assert names(diagnosed) == READ, "a diagnosis reads no held-out text"
    assert extended.files is None, "`ssm extend` reports the missing file"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("m/model.safetensors", READ),
        ("owner/model", {"a.txt", "t/tokenizer.json"}),
        ("owner/model@v1", {"a.txt", "t/tokenizer.json"}),
        ("models/of/mine", None),
        ("t", None),  # holds no weights
    ],
)
def test_a_checkpoint_is_a_file_a_name_on_the_hub_or_missing(folder: Path, value: str, found: set[str] | None) -> None:
    edit(folder, "models.yaml", "checkpoint: m", f"checkpoint: {value}")
    assert names(jobs(folder)[0]) == found


@pytest.mark.parametrize(("value", "found"), [("bytes", True), ("owner/model", True), ("m", False), ("x.json", False)])
def test_other_names_of_a_tokenizer(folder: Path, value: str, found: bool) -> None:
    edit(folder, "models.yaml", "tokenizer: t", f"tokenizer: {value}")
    assert names(jobs(folder)[0]) == (READ - {"t/tokenizer.json"} if found else None)


def test_a_sharded_checkpoint_has_all_of_its_shards(folder: Path) -> None:
    Path("m/model.safetensors").unlink()
    Path("m/optimizer.bin").unlink()
    shards = {f"m/pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)}
    for name in (*shards, "m/pytorch_model.bin.index.json"):
        Path(name).write_text("{}")
    for value in ("m", "m/pytorch_model.bin.index.json"):
        edit(folder, "models.yaml", "checkpoint: m", f"checkpoint: {value}")
        found = names(jobs(folder)[0])
        assert found is not None
        assert shards | {"m/pytorch_model.bin.index.json"} <= found
        edit(folder, "models.yaml", f"checkpoint: {value}", "checkpoint: m")


def test_the_version_changes_with_arguments_and_files(folder: Path) -> None:
    before = [job.version for job in jobs(folder)]
    assert [job.version for job in jobs(folder)] == before
    assert before[0] != before[1]
    edit(folder, "models.yaml", "smoke: 9", "smoke: 10")
    diagnosed, extended = (job.version for job in jobs(folder))
    assert diagnosed == before[0]
    assert extended != before[1]
    os.utime("a.txt", ns=(1, 1))
    assert jobs(folder)[0].version != diagnosed


def test_a_checkpoint_at_each_scale(folder: Path) -> None:
    assert [load_config(folder, scale).checkpoints["mine"].steps for scale in ("smoke", "paper")] == [9, 200]
    library = load_config(folder, "gpu")
    assert not library.checkpoints
    assert not checkpoint_jobs(library)
    with pytest.raises(ConfigError, match=r"mine\.steps: no value for the scale 'gpu'; it has: smoke, paper"):
        library.models.get("mine", "x")


def test_a_dry_run_limits_an_extension(folder: Path) -> None:
    _, extended = jobs(folder, dry_run={"max_steps": 3, "max_sequences": 2})
    assert (extended.spec.steps, extended.spec.sequences) == (3, 4)


def workflow(**hardware: Any) -> WorkflowConfig:
    return WorkflowConfig.parse({"threads": 2, "hardware": hardware}, "test")


def test_the_needs_of_both_jobs() -> None:
    """10^9 parameters of two bytes; 5 steps of 2048 tokens; six operations for each parameter and token."""
    spec = checkpoint(context=64, budget=3, steps=5, control=True)
    rate, start = 2 * 1e9, START_SECONDS[False]
    slow = workflow(cpu_gflops=1)
    diagnosis = CheckpointJob(spec, False, (), 2_000_000_000).need(slow, gpu=False)
    extension = CheckpointJob(spec, True, (), 2_000_000_000).need(slow, gpu=False)
    assert diagnosis.seconds == start + 180
    assert extension.seconds == pytest.approx(start + 3 * 180 + 2 * 6 * 1e9 * 5 * 2048 / rate)
    assert diagnosis.memory_mb == MEMORY_MB[False] + 8000
    assert extension.memory_mb == MEMORY_MB[False] + 28_000
    assert {need.gpus for need in (diagnosis, extension)} == {0}
    assert {need.cpus for need in (diagnosis, extension)} == {2}
    assert CheckpointJob(spec, True, (), 2_000_000_000).need(slow, gpu=True).memory_mb == MEMORY_MB[True] + 24_000
    assert CheckpointJob(spec, False, (), 0).need(slow, gpu=True).gpus == 1
    unseen = CheckpointJob(spec, False, (), 0).need(slow, gpu=False)
    assert unseen.memory_mb > diagnosis.memory_mb


def text_of(library: Library) -> str:
    return summary(make_plan(library), library.workflow, 1, library.checkpoints)


def test_the_summary_has_a_line_for_each_target(folder: Path) -> None:
    lines = text_of(load_config(folder)).splitlines()
    start = lines.index("Targets of checkpoints (models.yaml), made only when you name them:")
    assert lines[start + 1 : start + 4] == [
        "diagnose_mine  m: at most 10 minutes",
        "extend_mine    m: 9 steps of state_passing, and diagnoses",
        "",
    ]
    edit(folder, "models.yaml", "smoke: 9, ", "")
    assert "Checkpoints" not in text_of(load_config(folder))


def test_the_needs_of_a_repair_follow_from_its_trials() -> None:
    """10^9 parameters; scale_a tries 8 factors for all layers, and 8 more for each of 64 layers."""
    rate, start, size = 2 * 1e9, START_SECONDS[False], 2_000_000_000
    for by, trials in (("model", 1 + 8), ("layer", 1 + 8 * 65)):
        spec = checkpoint(context=64, budget=3, policy="scale_a", by=by)
        need = CheckpointJob(spec, True, (), size).need(workflow(cpu_gflops=1), gpu=False)
        assert need.seconds == pytest.approx(start + 2 * 180 + 2 * 1e9 * trials * 16 * 3 * 16 * 64 / rate)
        assert need.memory_mb == MEMORY_MB[False] + 16_000
    assert spec.training_steps == 0
