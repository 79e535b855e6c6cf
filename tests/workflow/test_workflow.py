"""The workflow over a stand-in for `ssm` that makes tiny files: what is made, and what is not made again."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from plan.mini import edit, write_config

from ssm.report.papers import PAGES

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "workflow" / "Snakefile")]
STAND_IN = f"""#!{sys.executable} -S
import pathlib, shlex, sys
verb, *rest, option, log = sys.argv[1:]
with open("calls.txt", "a") as calls:
    print(shlex.join([verb, *rest]), file=calls)
assert option == "--log", "every rule has a log"
assert verb in ("report", "diagnose", "extend") or pathlib.Path(rest[0]).is_file(), "the spec is missing"
says = f"{{verb}} progress\\n"
sys.stderr.write(says)
pathlib.Path(log).write_text(says)
out = pathlib.Path(rest[rest.index("--out") + 1])
spec = pathlib.Path(rest[0])
assert verb != "tokenize" or not (out / "manifest.json").exists(), "a finished store would be taken as it is"
if verb == "tokenize" and pathlib.Path("gate").exists():
    open("gate").read()  # until the test lets go of it
files = {{
    "tokenize": ["manifest.json"],
    "import": ["run.json", "model.safetensors"],
    "train": ["run.json", "metrics.parquet", "model.safetensors"],
    "diagnose": ["index.html", "diagnosis.json"],
    "extend": ["index.html", "result.json"],
    "plot": [f"{{spec.stem}}.{{end}}" for end in ("svg", "png", "pdf")],
    "report": {list(PAGES)},
}}.get(verb)

def make(out):
    for path in [out / name for name in files] if files else [out]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(verb)

if verb in ("diagnose", "extend"):
    from ssm.base.files import replacing
    with replacing(out, rest[rest.index("--replace") + 1], files[-1]) as new:
        if verb == "extend" and not (new / files[-1]).exists():  # like the real one it goes on in its folder
            new.mkdir(parents=True, exist_ok=True)
            (new / "work").open("a").write("begun ")
        if pathlib.Path("kill").exists():
            sys.exit(75)
        if not (new / files[-1]).exists():
            make(new)
        if pathlib.Path("fail").exists():
            sys.exit(3)
else:
    make(out)
    if verb == "judge" and pathlib.Path("fail").exists():
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


def make(place: Path, *arguments: str, report: bool = True) -> list[list[str]]:
    """The calls of `ssm` that one successful run of the workflow made; it names its `report`, if it makes one."""
    (place / "calls.txt").write_text("")
    result = snakemake(place, "--cores", "2", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    named = re.findall("^Report: (.*)$", result.stderr, re.MULTILINE)
    assert named == ["a b/smoke/report/index.html"] * report
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

    # What is asked for has to be finished, and the headline figure stands on the front page.
    (pages,) = (call for call in first if call[0] == "report")
    assert pages == [
        *("report", "a b/smoke", "--out", "a b/smoke/report", "--front", "lg_fig5", "--figures", "lg_fig5"),
    ]

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
    all_figures = make(place, "all")
    assert verbs(all_figures) == ["evaluate", "judge", "plot", "report"]
    assert all_figures[-1][-4:] == ["lg_fig5", "--figures", "lg_fig4", "lg_fig5"]
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
    assert verbs(make(place, "lg_fig4", report=False)) == ["evaluate", "judge", "plot"]
    # It is on the pages when these are asked for, by whichever name.
    assert verbs(make(place)) == ["report"]
    assert make(place) == []
    assert verbs(make(place, "lg")) == ["report"]


def test_a_failed_job_fails_the_run_keeps_its_log_and_goes_on(place: Path) -> None:
    (place / "fail").touch()
    result = snakemake(place, "--cores", "2", "lg_fig4")
    assert result.returncode != 0
    assert "train progress" in result.stdout + result.stderr, "progress must reach the terminal"
    assert (place / "results/smoke/logs/figures/lg_fig4.judge.log").read_text() == "judge progress\n"
    assert (place / "results/smoke/figures/lg_fig4.svg").is_file()
    (place / "fail").unlink()
    assert verbs(make(place, "lg_fig4", report=False)) == ["judge"]


@pytest.mark.exhaustive
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
        told = r"Another snakemake works in this folder.* stop them \(scancel\)\.\n"
        assert re.match(f"{told}make:", result.stderr)
        locks = {path.read_text() for path in (place / ".snakemake/locks").iterdir()}
        (warm,) = (child for child in psutil.Process(living.pid).children() if "ssm.cli.parent" in child.cmdline())
        for arguments in (["--cores", "2", "lg_fig4"], ["--unlock"]):
            result = snakemake(place, *arguments)
            assert result.returncode != 0
            assert re.search(f"^{told}", result.stderr, re.MULTILINE)
        assert {path.read_text() for path in (place / ".snakemake/locks").iterdir()} == locks != set()
        living.send_signal(signal.SIGKILL)
        living.wait()
        assert psutil.wait_procs([warm], timeout=100)[1] == [], "the warm parent of its jobs ends with it"
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
        told = f"A snakemake in {place} on {socket.gethostname()} works on {tmp_path / 'shared'}/smoke"
        assert told in result.stdout + result.stderr
        assert not (other / "calls.txt").exists()
        assert run(other, *SNAKEMAKE, "-n", *shared).returncode == 0, "a dry run works on nothing"
        (place / "gate").unlink()
    assert living.wait(timeout=100) == 0
    assert run(other, *SNAKEMAKE, *shared).returncode == 0


@pytest.mark.exhaustive
def test_results_that_another_hosts_snakemake_works_on_are_left_alone(place: Path) -> None:
    """Two clones may lie at the same path of two hosts. On one host the folder's own locks do, unless they are off."""
    (place / "elsewhere").mkdir()
    other = "import os, socket\nif name := os.environ.get('OTHER_HOST'):\n    socket.gethostname = lambda: name\n"
    (place / "elsewhere/sitecustomize.py").write_text(other)
    around = environment(place) | {"PYTHONPATH": f"{place / 'elsewhere'}{os.pathsep}{ROOT}"}
    command = [*SNAKEMAKE, "--cores", "2", "lg_fig4"]
    os.mkfifo(place / "gate")
    hosts = around | {"OTHER_HOST": "first"}
    living = subprocess.Popen(command, cwd=place, env=hosts, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with (place / "gate").open("w"):
        before = (place / "calls.txt").read_text()
        again = [*command, "--nolock", "--forcerun", "tokenize"]
        result = subprocess.run(
            again, cwd=place, env=around | {"OTHER_HOST": "second"}, capture_output=True, text=True, timeout=100
        )
        assert result.returncode != 0
        assert f"A snakemake in {place} on first works on results/smoke" in result.stdout + result.stderr
        assert (place / "calls.txt").read_text() == before
        # A job of it on another host is a snakemake as well, without hooks, and goes on.
        spec = next((place / "results/smoke/specs/data").iterdir())
        made = f"results/smoke/tokens/{spec.stem}/manifest.json"
        remote = ["--nolock", "--no-hooks", "--mode", "remote", "--cores", "1", "--force", "--config", "device=cpu"]
        job = subprocess.Popen([*SNAKEMAKE, made, *remote], cwd=place, env=around | {"OTHER_HOST": "node"})
        (place / "gate").unlink()
    assert job.wait(timeout=100) == 0
    assert living.wait(timeout=100) == 0


@pytest.fixture
def own(place: Path) -> Path:
    """The same, with a checkpoint and a text of the user's own."""
    edit(place / "config", "config.yaml", "scale: smoke", "scale: smoke\nresults: a b")
    (place / "my model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (place / "my model" / name).write_text("{}")
    entry = 'mine-1.3b: {checkpoint: my model, text: ["my text/*.txt"], context: {smoke: 64, paper: 2048}}\n'
    with (place / "config" / "models.yaml").open("a") as models:
        models.write(entry)
    return place


ANSWERS = "a b/smoke/checkpoints/mine-1.3b"
BOTH = ["diagnose_mine-1.3b", "extend_mine-1.3b"]


def answers(place: Path, *targets: str) -> list[list[str]]:
    """The calls of `ssm` that asking for these targets made; every page is named."""
    (place / "calls.txt").write_text("")
    result = snakemake(place, "--cores", "2", *targets)
    assert result.returncode == 0, result.stdout + result.stderr
    whats = ["diagnosis" if target.startswith("diagnose") else "extension" for target in targets]
    named = re.findall("^Report: (.*)$", result.stderr, re.MULTILINE)
    assert sorted(named) == [f"{ANSWERS}/{what}/index.html" for what in sorted(whats)]
    for what in whats:
        assert (place / ANSWERS / what / "index.html").is_file()
    return sorted(shlex.split(call) for call in (place / "calls.txt").read_text().splitlines())


def test_a_checkpoint_is_diagnosed_and_extended_when_it_is_asked_for_and_not_twice(own: Path) -> None:
    assert not {"diagnose", "extend"} & {call[0] for call in make(own, "all")}
    diagnosed, extended = answers(own, *BOTH)
    given = ["my model", "--text", "my text/*.txt", "--context", "64", "--budget", "10.0"]
    assert diagnosed[:8] == ["diagnose", *given]
    assert extended[:12] == ["extend", *given, "--policy", "state_passing", "--steps", "100"]
    for call in (diagnosed, extended):
        assert call[-4:] == ["--device", "auto", "--threads", "1"]
    assert answers(own, *BOTH) == []
    assert {path.name for path in (own / ANSWERS).iterdir()} == {"diagnosis", "extension"}
    assert (own / "a b/smoke/logs/checkpoints/mine-1.3b/extension.log").read_text() == "extend progress\n"

    # What the extension alone is asked; what both are; the text; the model. What figures train is left alone.
    edit(own / "config", "models.yaml", "my model,", "my model, steps: 7,")
    (call,) = answers(own, *BOTH)
    assert (call[0], after("--steps", call)) == ("extend", "7")
    edit(own / "config", "models.yaml", "smoke: 64", "smoke: 128")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    (own / "my text" / "b.txt").write_text("Another one.")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    (own / "my model" / "model.safetensors").write_text("{ }")
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    (own / ANSWERS / "diagnosis").rename(own / "elsewhere")
    assert verbs(answers(own, *BOTH)) == ["diagnose"]
    assert answers(own, *BOTH) == []

    # Model and text are gone: the finished answers stay what they are.
    (own / "my model").rename(own / "moved")
    done = snakemake(own, "--cores", "1", *BOTH)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (own / "calls.txt").read_text() == ""


@pytest.mark.exhaustive
def test_an_answer_stays_until_there_is_a_new_one_and_an_extension_goes_on(own: Path) -> None:
    answers(own, *BOTH)
    (own / ANSWERS / "diagnosis" / "index.html").write_text("the old page")
    edit(own / "config", "models.yaml", "smoke: 64", "smoke: 128")
    (own / "kill").touch()
    for _ in range(2):
        assert snakemake(own, "--cores", "1", "--keep-going", *BOTH).returncode != 0
        assert (own / ANSWERS / "diagnosis" / "index.html").read_text() == "the old page"
        assert (own / ANSWERS / "extension" / "work").read_text() == "begun "
    (own / "kill").unlink()
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    assert (own / ANSWERS / "diagnosis" / "index.html").read_text() == "diagnose"
    assert (own / ANSWERS / "extension" / "work").read_text() == "begun begun begun ", "it goes on in its folder"

    # Begun on another text: not gone on with, and not left behind.
    (own / "kill").touch()
    edit(own / "config", "models.yaml", "smoke: 128", "smoke: 256")
    assert snakemake(own, "--cores", "1", BOTH[1]).returncode != 0
    (own / "my text" / "a.txt").write_text("Once upon another time.")
    (own / "kill").unlink()
    assert verbs(answers(own, BOTH[1])) == ["extend"]
    assert (own / ANSWERS / "extension" / "work").read_text() == "begun "
    assert not list((own / ANSWERS).glob("extension.????????"))

    # Killed when all was made: it only has to take its place.
    (own / "fail").touch()
    edit(own / "config", "models.yaml", "smoke: 256", "smoke: 512")
    assert snakemake(own, "--cores", "1", "--keep-going", *BOTH).returncode != 0
    (own / "fail").unlink()
    made = {path: path.stat().st_mtime_ns for path in (own / ANSWERS).rglob("*.json")}
    assert verbs(answers(own, *BOTH)) == ["diagnose", "extend"]
    assert {path.stat().st_mtime_ns for path in (own / ANSWERS).rglob("*.json")} < set(made.values())
    assert {path.name for path in (own / ANSWERS).iterdir()} == {"diagnosis", "extension"}


def gpus_asked_for(place: Path, mode: str = "DEFAULT", **config: object) -> dict[str, set[int]]:
    """Of the jobs that train, measure, answer: the GPUs that they ask for. Mode REMOTE: on a cluster."""
    code = (
        "import json, sys; from pathlib import Path; from snakemake.api import ConfigSettings, SnakemakeApi\n"
        "from snakemake.api import ResourceSettings, WorkflowSettings\n"
        "from snakemake_interface_executor_plugins.settings import ExecMode\n"
        "settings = {'config_settings': ConfigSettings(config=json.loads(sys.argv[2])),\n"
        "            'workflow_settings': WorkflowSettings(exec_mode=ExecMode[sys.argv[3]])}\n"
        "with SnakemakeApi() as api:\n"
        "    workflow = api.workflow(ResourceSettings(), **settings, snakefile=Path(sys.argv[1]))._workflow\n"
        "    rules = {rule.name: rule.resources['gpu'] for rule in workflow.rules if 'gpu' in rule.resources}\n"
        "    jobs = {'train': workflow.globals['PLAN'].runs, 'evaluate': workflow.globals['PLAN'].measurements,\n"
        "            'answer': workflow.globals['CHECKPOINTS']}\n"
        "    asked = {name: [gpu.evaluate(wildcards=[job]).value for job in jobs[name]]\n"
        "             for name, gpu in rules.items() if name in jobs}\n"
        "    print(json.dumps(asked))"
    )
    result = run(place, sys.executable, "-c", code, str(ROOT / "workflow/Snakefile"), json.dumps(config), mode)
    assert result.returncode == 0, result.stderr
    return {name: set(gpus) for name, gpus in json.loads(result.stdout.splitlines()[-1]).items()}


def test_the_gpu_is_one_job_at_a_time(own: Path) -> None:
    """`device: auto` on a machine with an NVIDIA driver: jobs that may use the GPU ask for it, and there is one."""
    all_do, none_does = ({rule: {gpu} for rule in ("train", "evaluate", "answer")} for gpu in (1, 0))
    assert gpus_asked_for(own, device="cuda") == all_do
    assert gpus_asked_for(own, device="auto") == none_does
    assert gpus_asked_for(own, cluster={"gpu_partition": "gpu"}) == all_do
    executable(own / ".venv/bin/nvidia-smi", "#!/bin/sh\n")
    assert gpus_asked_for(own, device="auto") == all_do
    assert gpus_asked_for(own, device="cpu") == none_does
    # A job's node says nothing.
    assert gpus_asked_for(own, "REMOTE", cluster={"gpu_partition": "gpu"}) == all_do
    assert gpus_asked_for(own, "REMOTE", device="cpu") == none_does
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


def test_a_run_on_several_gpus_is_as_many_processes_that_share_the_threads(place: Path) -> None:
    with (place / "config" / "config.yaml").open("a") as config:
        config.write("device: cuda\nthreads: 3\nhardware: {gpus_per_run: 2, hours_per_run: 1.0e-9}\n")
    dry = ["-n", "--printshellcmds", "lg_fig4"]
    for profile, asked in (
        (["--workflow-profile", "workflow/profiles/slurm"], " --processes 2 "),
        (["--cores", "6", "--resources", "gpu=2"], " --threads 3 --processes 2 "),
        (["--cores", "4", "--resources", "gpu=2"], " --threads 2 --processes 2 "),
        (["--cores", "6"], " --threads 3 --processes 1 "),  # the default profile knows one GPU
    ):
        result = snakemake(place, *profile, *dry)
        assert result.returncode == 0, result.stderr
        (command,) = re.findall(r"ssm train .*", result.stdout + result.stderr)
        assert asked in command


def test_targets_explain_themselves_and_a_mistyped_one_is_told_the_nearest(own: Path) -> None:
    listed = snakemake(own, "--list").stdout.splitlines()
    assert "lg_fig4 (Norm of the state)" in listed
    assert "diagnose_mine-1.3b (my model: up to where can it be trusted?)" in listed
    assert all("(" in line for line in listed), "a rule without a docstring"
    for wrong, right in (("lg_fig5x", "lg_fig5"), ("extend_mine-1.2b", "extend_mine-1.3b")):
        result = snakemake(own, "-n", wrong)
        assert result.returncode != 0
        assert result.stderr.endswith(f"Unknown target '{wrong}'; did you mean '{right}'?\n")


@pytest.mark.exhaustive
def test_dry_runs_of_this_projects_own_config() -> None:
    """The default target, a figure, `all`, other scales and the rehearsal all resolve to a graph of jobs."""
    rehearsal = ["--configfile", "config/config.yaml", "config/rehearsal.yaml"]
    paper = ["--config", "scale=paper", "figures=[lg_fig5]"]
    slurm = ["--workflow-profile", "workflow/profiles/slurm", *paper, "device=cuda"]
    for arguments in (["lg_fig5", "lg", "all"], rehearsal, paper, slurm):
        command = [*SNAKEMAKE, "-n", "--forceall", *arguments]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "Train mamba2-" in result.stdout
        assert "Write the report, with" in result.stdout


def test_a_config_mistake_is_told_in_one_line(place: Path) -> None:
    edit(place / "config", "figures/lg_fig5.yaml", "posttrain", "postrain")
    result = snakemake(place, "-n")
    assert result.returncode != 0
    says = "arms.state_passing.training: unknown recipe 'postrain'; did you mean 'posttrain'?"
    assert f"config/figures/lg_fig5.yaml: {says}" in result.stdout + result.stderr


@pytest.mark.exhaustive
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
