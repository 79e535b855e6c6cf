"""Targets, scales, devices and profiles of the workflow, and the files that come with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from plan.mini import edit
from workflow.stand_in import ROOT, run, snakemake

from ssm.cli.main import main

exhaustive = pytest.mark.exhaustive

NEEDS_OF_RULES = """
import json, sys; from pathlib import Path; from snakemake.api import ConfigSettings, SnakemakeApi
from snakemake.api import ResourceSettings, WorkflowSettings
from snakemake_interface_executor_plugins.settings import ExecMode
def gpus(mode, config, driver):
    if driver:
        Path(".venv/bin/nvidia-smi").touch(0o755)
    settings = {"config_settings": ConfigSettings(config=config),
                "workflow_settings": WorkflowSettings(exec_mode=ExecMode[mode])}
    with SnakemakeApi() as api:
        workflow = api.workflow(ResourceSettings(), **settings, snakefile=Path(sys.argv[1]))._workflow
        rules = {rule.name: rule.resources["gpu"] for rule in workflow.rules if "gpu" in rule.resources}
        jobs = {"train": workflow.globals["PLAN"].runs, "evaluate": workflow.globals["PLAN"].measurements,
                "answer": workflow.globals["CHECKPOINTS"]}
        disk = workflow.get_rule("tokenize").resources["disk_mb"]
        found = {"tokenize": [disk.evaluate(wildcards=[data]).value for data in workflow.globals["PLAN"].data]}
        return found | {name: [*{gpu.evaluate(wildcards=[job]).value for job in jobs[name]}]
                        for name, gpu in rules.items() if name in jobs}
print(json.dumps([gpus(*case) for case in json.loads(sys.argv[2])]))
"""


def test_with_an_nvidia_driver_or_a_gpu_partition_each_job_asks_for_one_gpu(own: Path) -> None:
    """On one machine there is one GPU, so that jobs take turns. plan/test_resources.py tests the other settings.

    The disk space of tokens follows from the files of the text, which are all tokenized.
    """
    os.truncate(own / "my text" / "a.txt", 10**12)
    auto, cluster = {"device": "auto"}, {"cluster": {"gpu_partition": "gpu"}}
    cases = [("DEFAULT", auto, False), ("DEFAULT", auto, True), ("REMOTE", cluster, True)]  # REMOTE: on a cluster
    result = run(own, sys.executable, "-c", NEEDS_OF_RULES, str(ROOT / "workflow/Snakefile"), json.dumps(cases))
    assert result.returncode == 0, result.stderr
    needs = [
        {rule: [count] for rule in ("train", "evaluate", "answer")} | {"tokenize": [2_000_000]} for count in (0, 1, 1)
    ]
    assert json.loads(result.stdout.splitlines()[-1]) == needs
    profile = yaml.safe_load((ROOT / "workflow/profiles/default/config.yaml").read_text())
    assert profile["resources"] == {"gpu": 1}


def test_nothing_is_submitted_to_a_cluster_that_may_have_gpus_or_not(place: Path) -> None:
    """Otherwise no job would ask for a GPU, and a run of the scale paper would train on one CPU thread."""
    result = snakemake(place, "--workflow-profile", "workflow/profiles/slurm", "lg_fig4")
    assert result.returncode != 0
    told = "config.yaml: device: 'auto' cannot know whether a cluster has GPUs; set device=cuda or device=cpu, or set"
    assert told in result.stdout + result.stderr
    assert not (place / "a b").exists()
    for example in re.findall("--config (.*)$", (ROOT / "workflow/profiles/slurm/config.yaml").read_text(), re.M):
        assert "device=cuda" in example, "the examples of the profile"


def test_no_run_is_submitted_to_gpus_that_it_does_not_fit_on(place: Path) -> None:
    with (place / "config" / "config.yaml").open("a") as config:
        config.write("device: cuda\nhardware: {gpu_memory_gb: 1.0e-4}\n")
    result = snakemake(place, "--workflow-profile", "workflow/profiles/slurm", "lg_fig4")
    assert result.returncode != 0
    told = "1 of 1 runs do not fit into a GPU's 0.0001 GB (the largest needs 1 MB): change gpus_per_run and"
    assert told in result.stdout + result.stderr
    assert not (place / ".snakemake" / "slurm_logs").exists()


@pytest.mark.parametrize(
    ("profile", "asked"),
    [
        pytest.param(["--workflow-profile", "workflow/profiles/slurm"], " --processes 2 ", marks=exhaustive),
        pytest.param(["--cores", "6", "--resources", "gpu=2"], " --threads 3 --processes 2 ", marks=exhaustive),
        (["--cores", "4", "--resources", "gpu=2"], " --threads 2 --processes 2 "),
        pytest.param(["--cores", "6"], " --threads 3 --processes 1 ", marks=exhaustive),  # the profile has one GPU
    ],
)
def test_a_run_has_one_process_for_each_gpu_and_they_share_the_threads(
    profile: list[str], asked: str, place: Path
) -> None:
    with (place / "config" / "config.yaml").open("a") as config:
        config.write("device: cuda\nthreads: 3\nhardware: {gpus_per_run: 2, hours_per_run: 1.0e-9}\n")
    result = snakemake(place, *profile, "-n", "--printshellcmds", "lg_fig4")
    assert result.returncode == 0, result.stderr
    (command,) = re.findall(r"ssm train .*", result.stdout + result.stderr)
    assert asked in command


def test_every_target_has_a_description(own: Path) -> None:
    listed = snakemake(own, "--list").stdout.splitlines()
    assert "lg_fig4 (Norm of the state)" in listed
    assert "diagnose_mine-1.3b (my model: up to which length can it be trusted?)" in listed
    assert all("(" in line for line in listed), "a rule without a docstring"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("lg_fig5x", "lg_fig5"), pytest.param("extend_mine-1.2b", "extend_mine-1.3b", marks=exhaustive)],
)
def test_a_mistyped_target_is_answered_with_the_nearest(wrong: str, right: str, own: Path) -> None:
    result = snakemake(own, "-n", wrong)
    assert result.returncode != 0
    assert result.stderr.endswith(f"Unknown target '{wrong}'; did you mean '{right}'?\n")


def test_a_text_that_cannot_be_read_stops_only_the_targets_that_need_it(place: Path) -> None:
    (place / "old").mkdir()
    (place / "old" / "a.zip").touch()
    with (place / "config" / "data.yaml").open("a") as data:
        data.write("zipped: {corpus: {kind: files, paths: [old]}}\n")
    edit(place / "config", "figures/lg_fig4.yaml", "data: text", "data: zipped")
    result = snakemake(place, "-n", "lg_fig5")
    assert result.returncode == 0, result.stderr
    result = snakemake(place, "-n", "lg_fig4")
    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].startswith(f"{place / 'old' / 'a.zip'}: .zip files cannot be read")
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.parametrize("file", ["runs/{}/run.json", "tables/{}.parquet"])
def test_a_file_of_no_planned_job_is_answered_with_the_nearest_and_no_traceback(file: str, own: Path) -> None:
    assert main(["plan", "--config", str(own / "config"), "--write", str(own / "specs")]) == 0
    kind, specs = ("run", "runs") if file.startswith("runs") else ("table", "measurements")
    planned = min(path.stem for path in (own / "specs" / specs).iterdir())
    for wrong, hint in (
        (f"{planned}x", f"did you mean '{planned}'?"),
        ("of_yesterday", "`ssm plan --write DIR` writes the spec of each"),
    ):
        how = ["-n"] if wrong == "of_yesterday" else ["--cores", "1"]
        result = snakemake(own, *how, f"a b/smoke/{file.format(wrong)}")
        assert result.returncode != 0
        assert result.stderr.endswith(f"smoke has no {kind} '{wrong}'; {hint}\n")
        assert "Traceback" not in result.stdout + result.stderr
    assert not list((own / ".snakemake" / "locks").iterdir())


def test_a_figure_that_the_config_does_not_name_says_so(own: Path) -> None:
    chosen = ["--config", "figures=[lg_fig5]", "dry_run={max_steps: 2}", 'cluster={account: "12", max_hours: 1e3}']
    result = snakemake(own, "-n", "lg_fig4", *chosen)
    assert result.returncode != 0
    why = "'lg_fig4' is not planned, because 'figures' of config.yaml (or of --config) does not name it\n"
    assert result.stderr.endswith(why)
    planned = snakemake(own, "-n", "a b/smoke/figures/lg_fig5.svg", *chosen)
    assert (planned.returncode, "not planned" in planned.stderr) == (0, False)


def test_a_report_at_a_scale_without_figures_names_those_that_lack_seeds(own: Path) -> None:
    """The targets of checkpoints need no figure."""
    for target, code in (("headline", 1), ("diagnose_mine-1.3b", 0)):
        result = snakemake(own, "-n", target, "--config", "scale=desk")
        assert result.returncode == code
        assert "Traceback" not in result.stdout + result.stderr
        why = "no figure has seeds for the scale 'desk': lg_fig4, lg_fig5\n"
        assert result.stderr.endswith(why) == bool(code)


def test_a_target_of_a_checkpoint_that_the_scale_lacks_says_so(own: Path) -> None:
    models = own / "config" / "models.yaml"
    models.write_text(models.read_text().replace("context: {smoke: 64, paper: 2048}", "context: {paper: 2048}"))
    result = snakemake(own, "-n", "diagnose_mine-1.3b")
    assert result.returncode != 0
    why = "config/models.yaml: mine-1.3b.context: no value for the scale 'smoke'; it has: paper"
    assert result.stderr.endswith(f"'diagnose_mine-1.3b' cannot be made: {why}\n")


@exhaustive
def test_a_figure_at_scale_paper_gives_a_graph_of_jobs() -> None:
    """Here and on a cluster. The dry run of `.ci/run` makes all targets of scale `smoke`."""
    paper = ["--config", "scale=paper", "figures=[lg_fig5]"]
    slurm = ["--workflow-profile", "workflow/profiles/slurm", *paper, "device=cuda"]
    for arguments in (paper, slurm):
        result = snakemake(ROOT, "-n", "--forceall", *arguments, variables=os.environ)
        assert result.returncode == 0, result.stderr
        assert "Train mamba2-" in result.stdout
        assert "Write the report on" in result.stdout


@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [
        (
            "figures/lg_fig5.yaml",
            "posttrain",
            "postrain",
            ": arms.state_passing.training: unknown recipe 'postrain'; did you mean 'posttrain'?",
        ),
        ("config.yaml", "scale: smoke", "\tscale: smoke", ":1: expected spaces, got a tab"),
    ],
)
def test_a_mistake_in_the_config_is_one_line(file: str, before: str, after: str, says: str, place: Path) -> None:
    edit(place / "config", file, before, after)
    result = snakemake(place, "-n")
    assert result.returncode != 0
    assert f"config/{file}{says}" in result.stdout + result.stderr


def test_the_profiles_agree_and_the_catalog_is_readable() -> None:
    default, slurm = (
        yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text()) for name in ("default", "slurm")
    )
    assert "code" not in default["rerun-triggers"], "a new message must not retrain models"
    own = ("resources", "default-resources")
    assert {key: slurm[key] for key in default if key not in own} == {
        key: value for key, value in default.items() if key not in own
    }, "the slurm profile replaces the default one"
    assert slurm["executor"] == "slurm"
    assert "usage" in yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())


def test_make_refuses_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    command = ["make", "figures", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "is not Python 3.11 or newer" in result.stderr
    assert not (tmp_path / "venv").exists()
