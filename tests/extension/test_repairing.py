"""The search of a repair: its damaged record, and the models of its trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from models.test_foreign import made

from ssm.base.errors import OutputError
from ssm.extension.choice import Candidate
from ssm.extension.export import as_exported
from ssm.extension.folder import Folder
from ssm.extension.repairing import Repairing
from ssm.models.foreign import ForeignModel, write_weights
from ssm.models.load import LoadedModel, load_any_model
from ssm.models.repairs import repaired_copy
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs.scale_a import ScaleA


def test_a_damaged_record_gives_one_line(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repairing = Repairing.__new__(Repairing)
    repairing.folder, repairing.loaded = Folder(tmp_path), load_any_model(world / "theirs")
    monkeypatch.setattr(Repairing, "repair", ScaleA())
    path = repairing.folder.repair
    path.parent.mkdir(parents=True)

    def chosen(*numbers: float | None) -> list[float | None]:
        record = {"rules": ["far_perplexity", 1.0], "chosen": numbers, "trials": 1, "candidates": []}
        path.write_text(json.dumps(record))
        return repairing._read()["chosen"]

    assert chosen(2.0, None) == [2.0, None]
    made("Bamba").save_pretrained(tmp_path / "theirs")  # that ssm does not convert: two layers have a state
    for model in (world / "theirs", tmp_path / "theirs"):
        repairing.loaded = load_any_model(model)
        assert chosen(2.0, 4.0) == [2.0, 4.0]
    for numbers, said in (
        ((2.0,), "chosen: expected 2 numbers"),
        ((2.0, -1.0), "chosen.1: expected a number above 0, got -1.0"),
    ):
        with pytest.raises(OutputError, match=f"^{path}: not the search of a repair: {said}"):
            chosen(*numbers)
    repairing.folder.trials.write_text('[{"at": [2.0]}]')
    with pytest.raises(OutputError, match=f"^{repairing.folder.trials}: not trials: 0.candidate"):
        repairing._known()


def searching(loaded: LoadedModel, scale: ScaleA, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Repairing:
    """An extension that can only search."""
    repairing = Repairing.__new__(Repairing)
    repairing.folder, repairing.loaded, repairing.device = Folder(folder), loaded, torch.device("cpu")
    repairing.text = SimpleNamespace(choice=None)  # type: ignore[assignment]
    repairing.spec = SimpleNamespace(  # type: ignore[assignment]
        diagnosis=SimpleNamespace(context=16), measure="far_perplexity", in_context_tolerance=0.1
    )
    repairing.folder.repair.parent.mkdir(parents=True)
    monkeypatch.setattr(Repairing, "repair", scale)
    return repairing


@pytest.mark.parametrize("renamed", [False, True])
def test_trials_of_a_foreign_model_equal_the_written_model_without_writing(
    renamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except if a file has another name for A_log. Then its type is known only when it is written."""
    made("Bamba").bfloat16().save_pretrained(tmp_path / "theirs")
    loaded = load_any_model(tmp_path / "theirs")
    scale, trials, written = ScaleA(factors=(3.0, 5.0)), [], []
    repairing = searching(loaded, scale, tmp_path, monkeypatch)

    def measured(candidate: Candidate, model: TrainableModel, *_: Any) -> Candidate:
        trials.append(model)
        return replace(candidate, in_context=1.0, far_perplexity=1.0 / len(trials), paired_ratio=1.0)

    def writing(*given: Any) -> None:
        written.append(given)
        write_weights(*given)

    monkeypatch.setattr("ssm.extension.repairing.measured", measured)
    monkeypatch.setattr("ssm.extension.export.write_weights", writing)
    if renamed:
        monkeypatch.setattr("ssm.models.foreign.write.is_a_log", lambda *_: False)
    repairing._search([])
    points: list[tuple[float | None, ...]] = [(None, None), (3.0, 3.0), (5.0, 5.0)]
    assert len(written) == (3 if renamed else 0)
    for point, trial in zip(points, trials, strict=True):
        moved = repaired_copy(loaded.model, scale, point)
        assert isinstance(moved, ForeignModel)
        theirs = as_exported(loaded, moved, tmp_path).state_dict()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in trial.state_dict().items())


def test_a_search_that_was_stopped_continues_with_the_next_trial(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, scale, said = load_any_model(world / "theirs"), ScaleA(by="layer", factors=(3.0, 5.0)), list[str]()

    def measuring(stopped_at: int) -> Callable[..., Candidate]:
        def measured(candidate: Candidate, _model: TrainableModel, *others: Any) -> Candidate:
            said.append(others[-1])
            number = int(others[-1].split()[1])
            if number == stopped_at:
                raise KeyboardInterrupt
            return replace(candidate, in_context=1.0, far_perplexity=1 / number, paired_ratio=1.0)

        return measured

    whole, stopped = (searching(loaded, scale, tmp_path / name, monkeypatch) for name in ("whole", "stopped"))
    monkeypatch.setattr("ssm.extension.repairing.measured", measuring(0))
    whole._search([])
    every = [f"trial {number} of at most 7" for number in range(1, 7)]  # the best point is not tried again
    assert said == every
    said.clear()
    monkeypatch.setattr("ssm.extension.repairing.measured", measuring(4))
    with pytest.raises(KeyboardInterrupt):
        stopped._search([])
    monkeypatch.setattr("ssm.extension.repairing.measured", measuring(0))
    stopped._search([])
    assert said == [*every[:4], *every[3:]]
    assert stopped.folder.repair.read_bytes() == whole.folder.repair.read_bytes()


def test_trials_with_other_settings_are_deleted(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    repair = {"spec": {"diagnosis": {}, "repair": {"kind": "scale_a"}}, "divided": True, "share": None}
    settings = repair | {"text": [], "text_files": "", "held_out": [], "held_out_files": ""}

    def kept(**changes: Any) -> bool:
        folder.record_settings(settings)
        for path in (folder.trials, folder.repair):
            path.parent.mkdir(exist_ok=True)
            path.write_text("[]")
        folder.record_settings(settings | changes)
        assert folder.trials.exists() == folder.repair.exists()
        return folder.trials.exists()

    assert kept()
    assert not kept(spec={"diagnosis": {}, "repair": {"kind": "clip_dt"}})
    folder.record_settings(settings)
    folder.diagnosis("before").mkdir()
    assert kept(spec={"diagnosis": {"budget_seconds": 60.0}, "repair": {"kind": "scale_a"}})
    assert not kept(held_out=["other.txt"], held_out_files="other")
