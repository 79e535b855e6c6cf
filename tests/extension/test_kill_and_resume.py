"""An extension that was stopped anywhere ends bitwise like one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diagnosis.fabricated import diagnosis, tables
from extension.world import extended
from forked_processes import PROCESSES
from small import content

from ssm.base.exit_codes import REQUEUE
from ssm.base.files import remove_leftovers
from ssm.base.records import RUN_RECORD
from ssm.base.tables import read_table
from ssm.cli import main as command_line
from ssm.diagnosis import load_diagnosis, write_diagnosis
from ssm.diagnosis.outcome import NOT_DECIDED
from ssm.diagnosis.result import Diagnosis
from ssm.extension.choice import END, Candidate
from ssm.extension.folder import Folder
from ssm.extension.losses import Factors
from ssm.extension.outcome import IMPROVED, NOTHING, Outcome
from ssm.extension.stages import CONTROL, EXTENDED, Stages
from ssm.models.weights_file import load_tensors
from ssm.specs.diagnosis import ENOUGH
from ssm.training import step as training_step

pytestmark = pytest.mark.usefixtures("without_plots")


class KilledError(Exception):
    """A kill."""


def assert_same(whole: Path, stopped: Path) -> None:
    """Weights, tables and the written model, for an exact comparison."""
    files = [content(out) for out in (whole, stopped)]
    for found in files:
        for name in [name for name in found if name.endswith((".lock", "progress.json"))]:
            del found[name]
    assert sorted(files[0]) == sorted(files[1])
    for name, there in files[0].items():
        here = files[1][name]
        if name.startswith("model/") or name == "work/choice.json" or name.endswith(".tokens"):
            assert here == there, name
        elif name.endswith(".parquet"):
            assert read_table(whole / name).equals(read_table(stopped / name)), name
        elif name.endswith(".safetensors"):
            (one, header), (other, its_header) = load_tensors(whole / name), load_tensors(stopped / name)
            assert {**header, "seconds": 0} == {**its_header, "seconds": 0}
            assert {key: tensor.numpy().tobytes() for key, tensor in one.items()} == {
                key: tensor.numpy().tobytes() for key, tensor in other.items()
            }, name
    results = [json.loads(found["result.json"]) for found in files]
    for result in results:
        del result["provenance"]
    assert results[0] == results[1]


def test_stopped_between_any_two_stages(
    world: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, said, begun = tmp_path / "out", Stages._say, []

    def stopping(self: Stages, what: str) -> None:
        stage = what.partition(":")[0]
        if stage not in begun and stage not in ("before", "after", "control"):
            begun.append(stage)
            raise KilledError
        said(self, what)

    monkeypatch.setattr(Stages, "_say", stopping)
    while True:
        try:
            extended(world, out, control=True)
            break
        except KilledError:
            (out / f".{len(begun)}.tmp").write_text("as a killed process leaves it")
    assert [stage.partition(" to ")[0] for stage in begun] == [
        "diagnosis, before",
        "training, extended",
        "choice among the original and the trained weights",
        "diagnosis, after",
        "training, control",
        "diagnosis, control",
        "export",
    ]
    assert_same(whole, out)


class Stubbed(Stages):
    """The order of the stages, without models."""

    def _trained(self, arm: str) -> dict[str, Any]:
        self.folder.run(arm).mkdir(parents=True, exist_ok=True)
        (self.folder.run(arm) / RUN_RECORD).touch()
        return {"status": "finished"}

    def _made_and_chosen(self) -> None:
        self._trained(EXTENDED)
        self.chosen = Candidate(END, 4)

    def _with_weights(self, arm: str, chosen: Candidate) -> Any:
        return SimpleNamespace(title=arm)

    def _result(self, outcome: Outcome, change: Factors | None) -> dict[str, Any]:
        read = {name: diagnosis.facts.sequences for name, diagnosis in self.diagnoses.items()}
        return {"outcome": outcome, "change": change and change.sequences, "read": read}


@pytest.mark.parametrize(
    ("decided", "holds"),
    [
        (("original", EXTENDED, CONTROL), False),
        (("original", EXTENDED, CONTROL), True),
        ((EXTENDED, CONTROL), False),
    ],
)
def test_killed_after_a_diagnosis_on_all_windows(
    decided: tuple[str, ...], holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gain needs more windows than some verdicts. With all windows, the original may hold."""
    few, many = tables(sequences=ENOUGH), tables(sequences=ENOUGH + 1)

    def called(out: Path, kill: int | None = None) -> dict[str, Any]:
        calls = count()

        def measured(loaded: Any, *_: Any, all_windows: bool = False, **_settings: Any) -> Diagnosis:
            if next(calls) == kill:
                raise KilledError
            if loaded.title in decided and not all_windows:
                return diagnosis(few)
            return diagnosis(many, stopped_by="sequences", all_windows=all_windows)

        monkeypatch.setattr("ssm.extension.stages.diagnose_loaded", measured)
        loaded = SimpleNamespace(title="original", model=torch.nn.Identity())
        text = SimpleNamespace(page=None, files="")
        spec = SimpleNamespace(control=True, diagnosis=SimpleNamespace(sequences=ENOUGH + 1), in_context_tolerance=0.02)
        return Stubbed(loaded, None, text, spec, Folder(out), torch.device("cpu")).work()

    def outcome_of(before: str, after: str, change: Factors, *_: Any) -> Outcome:
        return Outcome(NOT_DECIDED if change.sequences == ENOUGH else IMPROVED, "the number of windows")

    def outcome_before(before: Diagnosis, *_: Any) -> Outcome | None:
        return Outcome(NOTHING, "it holds") if holds and before.facts.all_windows else None

    monkeypatch.setattr("ssm.extension.stages.outcome_of", outcome_of)
    monkeypatch.setattr("ssm.extension.stages.outcome_before", outcome_before)
    whole = called(tmp_path / "whole")
    assert whole["read"] == dict.fromkeys(("before", "after", "control"), ENOUGH + 1)
    for kill in range(2 + len(decided)):  # in each diagnosis
        with pytest.raises(KilledError):
            called(tmp_path / f"{kill}", kill)
        assert called(tmp_path / f"{kill}") == whole


def test_killed_while_an_old_diagnosis_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call measures again, on all windows too."""
    decided, all_read = (diagnosis(tables(), stopped_by=reason) for reason in ("decided", "text"))
    write_diagnosis(decided, tmp_path / "before")

    def measured(monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setattr("ssm.extension.stages.diagnose_loaded", lambda *_args, **_settings: all_read)
        loaded, text, spec = SimpleNamespace(title="m"), SimpleNamespace(page=None, files=""), SimpleNamespace()
        spec.diagnosis = SimpleNamespace(sequences=256)
        stages = Stages(loaded, None, text, spec, Folder(tmp_path), torch.device("cpu"))
        return stages._diagnosed("before", loaded, all_windows=True).facts.stopped_by

    def killed(path: Path, **_settings: Any) -> None:
        (path / "tables" / "position_loss.parquet").unlink()
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KilledError):
            measured(patch)
    remove_leftovers(tmp_path)
    assert measured(monkeypatch) == "text"
    assert load_diagnosis(tmp_path / "before").facts.stopped_by == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["before"]


def test_an_error_while_drawing_loses_no_diagnosis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    def measured(*_: Any, **_settings: Any) -> Diagnosis:
        calls.append("measured")
        return diagnosis(tables())

    def drawn(*_: Any) -> list[Any]:
        calls.append("drawn")
        if len(calls) == 2:
            raise KilledError
        return []

    def work() -> None:
        loaded, text, spec = SimpleNamespace(title="m"), SimpleNamespace(page=None, files=""), SimpleNamespace()
        spec.diagnosis = None
        Stages(loaded, None, text, spec, Folder(tmp_path), torch.device("cpu"))._diagnosed("before", loaded)

    monkeypatch.setattr("ssm.extension.stages.diagnose_loaded", measured)
    monkeypatch.setattr("ssm.diagnosis.page.plots", drawn)
    with pytest.raises(KilledError):
        work()
    work()
    assert calls == ["measured", "drawn", "drawn"]
    assert (tmp_path / "before" / "index.html").exists()


def test_of_a_link_to_an_old_diagnosis_only_the_link_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "disk" / "tables").mkdir(parents=True)
    folder = Folder(tmp_path / "out")
    folder.path.mkdir()
    folder.diagnosis("before").symlink_to(tmp_path / "disk")
    folder.delete([folder.diagnosis("before")])
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["disk", "disk/tables", "out"]


def job(world: Path, out: Path, log: Path, begun: Connection) -> None:
    """The same extension in a process that can be killed. It reports when all imports are done."""
    begun.send(True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 2)
    extended(world, out, control=True)


def test_killed_at_random_moments(world: Path, whole: Path, tmp_path: Path) -> None:
    moments, kills = random.Random(1), 0
    while True:
        told, tells = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=job, args=(world, tmp_path / "out", tmp_path / "log", tells))
        process.start()
        told.recv()
        timer = threading.Timer(moments.uniform(0.1, 0.6), process.kill)  # where it is by then, nobody knows
        if kills < 2:
            timer.start()
        process.join()
        timer.cancel()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL, (tmp_path / "log").read_text()
        kills += 1
    assert kills
    assert not list((tmp_path / "out").rglob(".*.tmp"))
    assert_same(whole, tmp_path / "out")


@pytest.mark.parametrize(
    "during",
    [pytest.param("diagnosis", marks=pytest.mark.exhaustive), "training", "choice"],
)
def test_a_signal_is_one_line_and_code_75(
    during: str,
    world: Path,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said, loss_of = Stages._say, training_step.loss_of
    steps = 0

    def signalled(self: Stages, what: str) -> None:
        said(self, what)
        if what.startswith(during) and during != "training":
            os.kill(os.getpid(), signal.SIGTERM)

    def signalled_at_15(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 15 and during == "training":
            os.kill(os.getpid(), signal.SIGTERM)
        return loss_of(*arguments)

    arguments = ["extend", str(world / "theirs"), "--text", str(world / "texts"), "-o", str(tmp_path / "out")]
    arguments += ["--context", "16", "--length", "128", "--sequences", "64", "--no-passkey"]
    arguments += ["--in-context-tolerance", "1"]
    arguments += ["--steps", "40", "--lr", "3e-3", "--device", "cpu", "--threads", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(Stages, "_say", signalled)
        patch.setattr(training_step, "loss_of", signalled_at_15)
        assert command_line.main(arguments) == REQUEUE
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ssm extend: ")]
    assert len(lines) == 1
    assert "stopped by SIGTERM" in lines[0]
    assert "the same command" in lines[0]
    assert not list((tmp_path / "out").rglob(".*.tmp"))
    if during == "training":
        assert (
            load_tensors(tmp_path / "out/work/runs/extended/checkpoint.safetensors")[1]["step"] == 20
        )  # it looks every ten
    assert command_line.main(arguments) == 0
    assert content(tmp_path / "out/model")["model.safetensors"] == content(whole / "model")["model.safetensors"]
