"""The workflow over a stand-in for `ssm` that makes tiny files: what is made, and what is not made again."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from plan.mini import edit, write_config

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "workflow" / "Snakefile")]
STAND_IN = f"""#!{sys.executable} -S
import pathlib, shlex, sys
verb, *rest = sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(shlex.join(sys.argv[1:]), file=calls)
assert verb == "report" or pathlib.Path(rest[0]).is_file(), "the spec is missing"
print(f"{{verb}} progress", file=sys.stderr)
out = pathlib.Path(rest[rest.index("--out") + 1])
spec = pathlib.Path(rest[0])
assert verb != "tokenize" or not (out / "manifest.json").exists(), "a finished store would be taken as it is"
if verb == "tokenize" and pathlib.Path("gate").exists():
    open("gate").read()  # until the test lets go of it
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
    """A folder with a small config, a text, and an environment that holds the stand-in."""
    write_config(tmp_path / "config")
    edit(tmp_path / "config", "data.yaml", "{kind: stdlib}", '{kind: files, paths: ["my text"]}')
    (tmp_path / "my text").mkdir()
    (tmp_path / "my text" / "a.txt").write_text("Once upon a time.")
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    executable(tmp_path / ".venv/bin/python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    executable(tmp_path / ".venv/bin/snakemake", f'#!/bin/sh\nexec {shlex.join(SNAKEMAKE)} "$@"\n')
    executable(tmp_path / ".venv/bin/ssm", STAND_IN)
    (tmp_path / ".venv/.installed").touch()
    return tmp_path


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def environment(place: Path) -> dict[str, str]:
    path = f"{place / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    return inherited | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(place)}


def run(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=place, env=environment(place), capture_output=True, text=True, check=False, timeout=100
    )


def snakemake(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(place, *SNAKEMAKE, *arguments)


def make(place: Path, *arguments: str, report: str | None = "index") -> list[list[str]]:
    """The calls of `ssm` that one successful run of the workflow made; it names its `report` and no other."""
    (place / "calls.txt").write_text("")
    result = snakemake(place, "--cores", "2", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    named = re.findall("^Report: (.*)$", result.stderr, re.MULTILINE)
    assert named == ([f"a b/smoke/report/{report}.html"] if report else [])
    return [shlex.split(call) for call in (place / "calls.txt").read_text().splitlines()]


def verbs(calls: list[list[str]]) -> list[str]:
    return sorted(call[0] for call in calls)


def after(option: str, call: list[str]) -> str:
    return call[call.index(option) + 1]


HEADLINE = ["evaluate", "evaluate", "judge", "plot", "report", "tokenize", "train", "train"]


def test_from_nothing_to_the_report_and_nothing_twice(place: Path) -> None:
    edit(place / "config", "config.yaml", "scale: smoke", "scale: smoke\nresults: a b")
    results = place / "a b" / "smoke"
    first = make(place)
    # lg_fig5 alone is a headline figure; the others' work is left.
    assert verbs(first) == HEADLINE
    assert (results / "report/index.html").is_file()
    assert not (results / "figures/lg_fig4.svg").exists()
    (parent,) = (call for call in first if call[0] == "train" and "--parent" not in call)
    (child,) = (call for call in first if call[0] == "train" and "--parent" in call)
    assert after("--parent", child) == after("--out", parent)
    assert child[-6:] == ["--device", "auto", "--threads", "1", "--processes", "1"]
    measured = {after("--run", call) for call in first if call[0] == "evaluate"}
    assert measured == {after("--out", parent), after("--out", child)}
    assert make(place) == []

    # A figure's own text changed: its specs, picture, verdicts and report, no training and no measuring.
    edit(place / "config", "figures/lg_fig5.yaml", "The curves.", "All curves.")
    assert verbs(make(place)) == ["judge", "plot", "report"]
    assert json.loads((results / "specs/figures/lg_fig5.json").read_text())["figure"]["caption"] == "All curves."

    # A new arm: one run, its table, and what is drawn from it. The shared base run is found, not trained.
    edit(
        place / "config",
        "figures/lg_fig5.yaml",
        "measurements:",
        "  control: {label: Control, from: base, training: posttrain}\nmeasurements:",
    )
    assert verbs(make(place)) == ["evaluate", "judge", "plot", "report", "train"]

    # All figures: what lg_fig4 needs besides the base run. Snakemake's own report holds every figure with its caption.
    assert verbs(make(place, "all", report="all")) == ["evaluate", "judge", "plot", "report"]
    assert snakemake(place, "all", "--report", "report.html").returncode == 0
    shown = (place / "report.html").read_text()
    embedded = re.findall(r"base64,([A-Za-z0-9+/=]+)", shown)
    shown += "".join(base64.b64decode(text).decode(errors="replace") for text in embedded)
    assert all(caption in shown for caption in ("All curves.", "The norm."))

    # The text changed: everything that was made of it is made anew.
    (place / "my text" / "a.txt").write_text("Once upon another time.")
    assert verbs(make(place)) == sorted([*HEADLINE, "evaluate", "train"])

    # The text is gone: the finished store stays what it is. Another figure's content changed: no finished job runs.
    (place / "my text").rename(place / "moved")
    edit(place / "config", "figures/lg_fig4.yaml", "times_context: 8", "times_context: 4")
    assert make(place) == []
    assert verbs(make(place, "lg_fig4", "lg", report=None)) == ["evaluate", "judge", "plot"]


def test_a_failed_job_fails_the_run_keeps_its_log_and_goes_on(place: Path) -> None:
    (place / "fail").touch()
    result = snakemake(place, "--cores", "2", "lg_fig4")
    assert result.returncode != 0
    assert "train progress" in result.stdout + result.stderr, "progress must reach the terminal"
    assert (place / "results/smoke/logs/figures/lg_fig4.judge.log").read_text() == "judge progress\n"
    assert (place / "results/smoke/figures/lg_fig4.svg").is_file()
    (place / "fail").unlink()
    assert verbs(make(place, "lg_fig4", report=None)) == ["judge"]


def test_make_goes_on_after_a_killed_snakemake_and_keeps_away_from_a_living_one(place: Path) -> None:
    figures = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "figures", "TARGETS=lg_fig4"]
    os.mkfifo(place / "gate")
    living = subprocess.Popen(
        [*SNAKEMAKE, "--cores", "2", "lg_fig4"],
        cwd=place,
        env=environment(place),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with (place / "gate").open("w"):  # opens when the first job is at work
        result = run(place, *figures)
        assert result.returncode != 0
        assert re.match(r"Another snakemake works in this folder.* stop them \(scancel\)\.\nmake:", result.stderr)
        living.send_signal(signal.SIGKILL)
        living.wait()
        (place / "gate").unlink()
        # Its orphaned job still runs, and keeps nobody away.
        result = run(place, *figures)
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("Unlocking the folder: the last snakemake here was killed.")
    assert (place / "results/smoke/verdicts/lg_fig4.parquet").is_file()


def test_results_that_another_folders_snakemake_works_on_are_left_alone(place: Path, tmp_path: Path) -> None:
    """Snakemake's own locks know their folder alone; two clones may share their results."""
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config", "workflow", ".venv", "my text"):
        (other / name).symlink_to(place / name)
    shared = ["--cores", "2", "lg_fig4", "--config", f"results={tmp_path / 'shared'}"]
    os.mkfifo(place / "gate")
    living = subprocess.Popen(
        [*SNAKEMAKE, *shared], cwd=place, env=environment(place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with (place / "gate").open("w"):
        result = run(other, *SNAKEMAKE, *shared)
        assert result.returncode != 0
        assert f"A snakemake in {place} works on {tmp_path / 'shared'}/smoke" in result.stdout + result.stderr
        assert not (other / "calls.txt").exists()
        assert run(other, *SNAKEMAKE, "-n", *shared).returncode == 0, "a dry run works on nothing"
        (place / "gate").unlink()
    assert living.wait(timeout=100) == 0
    assert run(other, *SNAKEMAKE, *shared).returncode == 0


def gpus_asked_for(place: Path, mode: str = "DEFAULT", **config: object) -> dict[str, set[int]]:
    """Of the jobs that train and of those that measure: the GPUs that they ask for. Mode REMOTE: on a cluster."""
    code = (
        "import json, sys; from pathlib import Path; from snakemake.api import ConfigSettings, SnakemakeApi\n"
        "from snakemake.api import ResourceSettings, WorkflowSettings\n"
        "from snakemake_interface_executor_plugins.settings import ExecMode\n"
        "settings = {'config_settings': ConfigSettings(config=json.loads(sys.argv[2])),\n"
        "            'workflow_settings': WorkflowSettings(exec_mode=ExecMode[sys.argv[3]])}\n"
        "with SnakemakeApi() as api:\n"
        "    workflow = api.workflow(ResourceSettings(), **settings, snakefile=Path(sys.argv[1]))._workflow\n"
        "    rules = {rule.name: rule.resources['gpu'] for rule in workflow.rules if 'gpu' in rule.resources}\n"
        "    jobs = {'train': workflow.globals['PLAN'].runs, 'evaluate': workflow.globals['PLAN'].measurements}\n"
        "    asked = {name: [gpu.evaluate(wildcards=[job]).value for job in jobs[name]]\n"
        "             for name, gpu in rules.items() if name in jobs}\n"
        "    print(json.dumps(asked))"
    )
    result = run(place, sys.executable, "-c", code, str(ROOT / "workflow/Snakefile"), json.dumps(config), mode)
    assert result.returncode == 0, result.stderr
    return {name: set(gpus) for name, gpus in json.loads(result.stdout.splitlines()[-1]).items()}


def test_the_gpu_is_one_job_at_a_time(place: Path) -> None:
    """`device: auto` on a machine with an NVIDIA driver: jobs that may use the GPU ask for it, and there is one."""
    assert gpus_asked_for(place, device="cuda") == {"train": {1}, "evaluate": {1}}
    assert gpus_asked_for(place, device="auto") == {"train": {0}, "evaluate": {0}}
    assert gpus_asked_for(place, cluster={"gpu_partition": "gpu"}) == {"train": {1}, "evaluate": {1}}
    executable(place / ".venv/bin/nvidia-smi", "#!/bin/sh\n")
    assert gpus_asked_for(place, device="auto") == {"train": {1}, "evaluate": {1}}
    assert gpus_asked_for(place, device="cpu") == {"train": {0}, "evaluate": {0}}
    assert gpus_asked_for(place, "REMOTE", device="auto") == {"train": {0}, "evaluate": {0}}, "no matter which node"
    profile = yaml.safe_load((ROOT / "workflow/profiles/default/config.yaml").read_text())
    assert profile["resources"] == {"gpu": 1}


def test_targets_explain_themselves_and_a_mistyped_one_is_told_the_nearest(place: Path) -> None:
    listed = snakemake(place, "--list").stdout.splitlines()
    assert "lg_fig4 (Norm of the state)" in listed
    assert all("(" in line for line in listed), "a rule without a docstring"
    result = snakemake(place, "-n", "lg_fig5x")
    assert result.returncode != 0
    assert result.stderr.endswith("Unknown target 'lg_fig5x'; did you mean 'lg_fig5'?\n")


def test_dry_runs_of_this_projects_own_config() -> None:
    """The default target, a figure, `all`, other scales and the rehearsal all resolve to a graph of jobs."""
    rehearsal = ["--configfile", "config/config.yaml", "config/rehearsal.yaml"]
    paper = ["--config", "scale=paper", "figures=[lg_fig5]"]
    slurm = ["--workflow-profile", "workflow/profiles/slurm", *paper]
    for arguments in (["lg_fig5", "lg", "all"], rehearsal, paper, slurm):
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
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["dev"] + extras["slurm"] + extras["bench"]
    for requirement in wanted:
        name = requirement.split(">")[0].split("[")[0].strip().lower().replace("_", "-")
        assert name in pinned | {project["name"]}, f"{name} is not pinned"


def test_the_profiles_and_catalog_are_readable() -> None:
    default, slurm = (
        yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text()) for name in ("default", "slurm")
    )
    assert "code" not in default["rerun-triggers"], "an edited message must not retrain models"
    assert {key: slurm[key] for key in default if key != "default-resources"} == {
        key: value for key, value in default.items() if key != "default-resources"
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
