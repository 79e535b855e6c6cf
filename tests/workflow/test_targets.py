"""What a user asks the workflow for: targets, scales, devices, profiles; and the files that come with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from plan.mini import edit
from workflow.stand_in import ROOT, SNAKEMAKE, executable, run, snakemake

exhaustive = pytest.mark.exhaustive

Asked = dict[str, set[int]]


def gpus_asked_for(place: Path, *settings: tuple[str, dict[str, object]]) -> list[Asked]:
    """For each mode and config, of the jobs that train, measure, answer: the GPUs that they ask for.

    Mode REMOTE: on a cluster.
    """
    code = (
        "import json, sys; from pathlib import Path; from snakemake.api import ConfigSettings, SnakemakeApi\n"
        "from snakemake.api import ResourceSettings, WorkflowSettings\n"
        "from snakemake_interface_executor_plugins.settings import ExecMode\n"
        "def asked(mode, config):\n"
        "    settings = {'config_settings': ConfigSettings(config=config),\n"
        "                'workflow_settings': WorkflowSettings(exec_mode=ExecMode[mode])}\n"
        "    with SnakemakeApi() as api:\n"
        "        workflow = api.workflow(ResourceSettings(), **settings, snakefile=Path(sys.argv[1]))._workflow\n"
        "        rules = {rule.name: rule.resources['gpu'] for rule in workflow.rules if 'gpu' in rule.resources}\n"
        "        jobs = {'train': workflow.globals['PLAN'].runs, 'evaluate': workflow.globals['PLAN'].measurements,\n"
        "                'answer': workflow.globals['CHECKPOINTS']}\n"
        "        return {name: [gpu.evaluate(wildcards=[job]).value for job in jobs[name]]\n"
        "                for name, gpu in rules.items() if name in jobs}\n"
        "print(json.dumps([asked(*one) for one in json.loads(sys.argv[2])]))"
    )
    result = run(place, sys.executable, "-c", code, str(ROOT / "workflow/Snakefile"), json.dumps(settings))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    return [{name: set(gpus) for name, gpus in asked.items()} for asked in found]


def test_the_gpu_is_one_job_at_a_time(own: Path) -> None:
    """`device: auto` on a machine with an NVIDIA driver: jobs that may use the GPU ask for it, and there is one."""
    all_do, none_does = ({rule: {gpu} for rule in ("train", "evaluate", "answer")} for gpu in (1, 0))
    auto, cluster = {"device": "auto"}, {"cluster": {"gpu_partition": "gpu"}}
    assert gpus_asked_for(own, ("DEFAULT", auto)) == [none_does]
    executable(own / ".venv/bin/nvidia-smi", "#!/bin/sh\n")
    # A job's node says nothing. Which other settings take one: plan/test_resources.py.
    assert gpus_asked_for(own, ("DEFAULT", auto), ("REMOTE", cluster)) == [all_do, all_do]
    profile = yaml.safe_load((ROOT / "workflow/profiles/default/config.yaml").read_text())
    assert profile["resources"] == {"gpu": 1}


def test_a_cluster_of_which_nobody_says_whether_it_has_gpus_is_sent_nothing(place: Path) -> None:
    """No job would ask for a GPU: a paper's run would train on one CPU thread."""
    profile = [*SNAKEMAKE, "--workflow-profile", "workflow/profiles/slurm", "lg_fig4"]
    result = run(place, *profile)
    assert result.returncode != 0
    told = "config.yaml: device: 'auto' cannot tell whether a cluster has GPUs; give device=cuda or device=cpu, or name"
    assert told in result.stdout + result.stderr
    assert not (place / "results").exists()
    for example in re.findall("--config (.*)$", (ROOT / "workflow/profiles/slurm/config.yaml").read_text(), re.M):
        assert "device=cuda" in example, "the profile's own examples"


@pytest.mark.parametrize(
    ("profile", "asked"),
    [
        pytest.param(["--workflow-profile", "workflow/profiles/slurm"], " --processes 2 ", marks=exhaustive),
        pytest.param(["--cores", "6", "--resources", "gpu=2"], " --threads 3 --processes 2 ", marks=exhaustive),
        (["--cores", "4", "--resources", "gpu=2"], " --threads 2 --processes 2 "),
        pytest.param(["--cores", "6"], " --threads 3 --processes 1 ", marks=exhaustive),  # by default there is one GPU
    ],
)
def test_a_run_on_several_gpus_is_as_many_processes_that_share_the_threads(
    profile: list[str], asked: str, place: Path
) -> None:
    with (place / "config" / "config.yaml").open("a") as config:
        config.write("device: cuda\nthreads: 3\nhardware: {gpus_per_run: 2, hours_per_run: 1.0e-9}\n")
    result = snakemake(place, *profile, "-n", "--printshellcmds", "lg_fig4")
    assert result.returncode == 0, result.stderr
    (command,) = re.findall(r"ssm train .*", result.stdout + result.stderr)
    assert asked in command


def test_targets_explain_themselves(own: Path) -> None:
    listed = snakemake(own, "--list").stdout.splitlines()
    assert "lg_fig4 (Norm of the state)" in listed
    assert "diagnose_mine-1.3b (my model: up to where can it be trusted?)" in listed
    assert all("(" in line for line in listed), "a rule without a docstring"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("lg_fig5x", "lg_fig5"), pytest.param("extend_mine-1.2b", "extend_mine-1.3b", marks=exhaustive)],
)
def test_a_mistyped_target_is_told_the_nearest(wrong: str, right: str, own: Path) -> None:
    result = snakemake(own, "-n", wrong)
    assert result.returncode != 0
    assert result.stderr.endswith(f"Unknown target '{wrong}'; did you mean '{right}'?\n")


@exhaustive
def test_dry_runs_of_this_projects_own_config() -> None:
    """The default target, a figure, `all`, other scales and the dry run all resolve to a graph of jobs."""
    dry_run = ["--configfile", "config/config.yaml", "config/dry_run.yaml"]
    paper = ["--config", "scale=paper", "figures=[lg_fig5]"]
    slurm = ["--workflow-profile", "workflow/profiles/slurm", *paper, "device=cuda"]
    for arguments in (["lg_fig5", "lg", "all"], dry_run, paper, slurm):
        command = [*SNAKEMAKE, "-n", "--forceall", *arguments]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "Train mamba2-" in result.stdout
        assert "Write the report on" in result.stdout


def test_a_config_mistake_is_told_in_one_line(place: Path) -> None:
    edit(place / "config", "figures/lg_fig5.yaml", "posttrain", "postrain")
    result = snakemake(place, "-n")
    assert result.returncode != 0
    says = "arms.state_passing.training: unknown recipe 'postrain'; did you mean 'posttrain'?"
    assert f"config/figures/lg_fig5.yaml: {says}" in result.stdout + result.stderr


@exhaustive
def test_lint_and_format_are_clean() -> None:
    result = subprocess.run([*SNAKEMAKE, "--lint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    snakefmt = [sys.executable, "-m", "snakefmt", "--check", "workflow"]
    result = subprocess.run(snakefmt, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_pinned_requirement_is_ours_or_drawn_in() -> None:
    """constraints.txt pins exact versions and names no index, and pins all that pyproject.toml asks for."""
    import tomllib

    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert all(line.count("==") == 1 and "+" not in line and "/" not in line for line in lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    extra = [one for name in ("dev", "slurm", "bench", "workflow", "harness") for one in extras[name]]
    wanted = project["dependencies"] + extra
    for requirement in wanted:
        name = requirement.split(">")[0].split("[")[0].strip().lower().replace("_", "-")
        assert name in pinned | {project["name"]}, f"{name} is not pinned"


def test_the_profiles_and_catalog_are_readable() -> None:
    default, slurm = (
        yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text()) for name in ("default", "slurm")
    )
    assert "code" not in default["rerun-triggers"], "an edited message must not retrain models"
    own = ("resources", "default-resources")
    assert {key: slurm[key] for key in default if key not in own} == {
        key: value for key, value in default.items() if key not in own
    }, "a cluster's profile stands in place of the default one"
    assert slurm["executor"] == "slurm"
    assert "usage" in yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())


def test_the_environment_is_made_from_a_new_enough_python_alone(tmp_path: Path) -> None:
    """`make` with a Python that is too old says so in one line and makes nothing."""
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    command = ["make", "figures", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "is not Python 3.11 or newer" in result.stderr
    assert not (tmp_path / "venv").exists()
