"""The workflow over a stand-in for `ssm` that makes empty files: what is made, what is not made again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from plan.mini import edit, write_config

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "workflow" / "Snakefile")]
STAND_IN = f"""#!{sys.executable} -S
import pathlib, sys
verb, *rest = sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(verb, *rest, file=calls)
assert verb == "report" or pathlib.Path(rest[0]).is_file(), "the spec is missing"
print(f"{{verb}} progress", file=sys.stderr)
out = pathlib.Path(rest[rest.index("--out") + 1])
spec = pathlib.Path(rest[0])
files = {{
    "tokenize": ["manifest.json"],
    "train": ["run.json", "metrics.parquet", "model.safetensors"],
    "plot": [f"{{spec.stem}}.{{end}}" for end in ("svg", "png", "pdf")],
}}.get(verb)
for path in [out / name for name in files] if files else [out]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(verb)
if pathlib.Path("fail").exists() and verb == "judge":
    sys.exit(3)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a small config and the stand-in on its PATH."""
    write_config(tmp_path / "config")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssm").write_text(STAND_IN)
    (tmp_path / "bin" / "ssm").chmod(0o755)
    return tmp_path


def snakemake(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(place)}
    command = [*SNAKEMAKE, "--directory", str(place), *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


def make(place: Path, *arguments: str) -> list[str]:
    """The calls of `ssm` that one successful run of the workflow made."""
    (place / "calls.txt").write_text("")
    result = snakemake(place, "--cores", "2", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return (place / "calls.txt").read_text().splitlines()


def verbs(calls: list[str]) -> list[str]:
    return sorted(call.split()[0] for call in calls)


def test_from_nothing_to_the_report_and_nothing_twice(place: Path) -> None:
    first = make(place)
    # lg_fig5 alone is a headline figure; the others' work is left.
    assert verbs(first) == ["evaluate", "evaluate", "judge", "plot", "report", "tokenize", "train", "train"]
    assert (place / "results/smoke/report/index.html").is_file()
    assert not (place / "results/smoke/figures/lg_fig4.svg").exists()
    (parent,) = (call for call in first if call.startswith("train") and "--parent" not in call)
    (child,) = (call for call in first if call.startswith("train") and "--parent" in call)
    assert f"--parent {parent.split('--out ')[1].split()[0]} " in child
    assert "--device auto --threads 1" in child
    assert make(place) == []

    # A figure's own text changed: its specs, picture, verdicts and report, no training and no measuring.
    edit(place / "config", "figures/lg_fig5.yaml", "The curves.", "All curves.")
    assert verbs(make(place)) == ["judge", "plot", "report"]
    assert (
        json.loads((place / "results/smoke/specs/figures/lg_fig5.json").read_text())["figure"]["caption"]
        == "All curves."
    )

    # Another figure's content changed: no finished job runs.
    edit(place / "config", "figures/lg_fig4.yaml", "times_context: 8", "times_context: 4")
    assert make(place) == []

    # A new arm: one run, its table, and what is drawn from it. The shared base run is found, not trained.
    edit(
        place / "config",
        "figures/lg_fig5.yaml",
        "measurements:",
        "  control: {label: Control, from: base, training: posttrain}\nmeasurements:",
    )
    assert verbs(make(place)) == ["evaluate", "judge", "plot", "report", "train"]

    # All figures: what lg_fig4 needs besides the base run.
    assert verbs(make(place, "all")) == ["evaluate", "judge", "plot", "report"]
    assert make(place, "lg_fig4", "lg") == []


def test_a_failed_job_fails_the_run_keeps_its_log_and_goes_on(place: Path) -> None:
    (place / "fail").touch()
    result = snakemake(place, "--cores", "2", "lg_fig4")
    assert result.returncode != 0
    assert "train progress" in result.stdout + result.stderr, "progress must reach the terminal"
    assert (place / "results/smoke/logs/figures/lg_fig4.judge.log").read_text() == "judge progress\n"
    assert (place / "results/smoke/figures/lg_fig4.svg").is_file()
    (place / "fail").unlink()
    assert verbs(make(place, "lg_fig4")) == ["judge"]


def test_dry_runs_of_this_projects_own_config() -> None:
    """The default target, a figure, `all`, other scales and the rehearsal all resolve to a graph of jobs."""
    rehearsal = ["--configfile", "config/config.yaml", "config/rehearsal.yaml"]
    for arguments in (["lg_fig5", "lg", "all"], rehearsal, ["--config", "scale=paper", "figures=[lg_fig5]"]):
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
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    for requirement in wanted:
        name = requirement.split(">")[0].split("[")[0].strip().lower().replace("_", "-")
        assert name in pinned, f"{name} is not pinned"


def test_the_profile_and_catalog_are_readable() -> None:
    profile = yaml.safe_load((ROOT / "workflow/profiles/default/config.yaml").read_text())
    assert "code" not in profile["rerun-triggers"], "an edited message must not retrain models"
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
