"""The stages of an extension. Each stage writes its folder when it is complete, so that a stopped command continues."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ssm.base.checksum import sha256_of
from ssm.base.counting import counted
from ssm.base.errors import CheckpointError, OutputError
from ssm.base.files import atomic_folder, write_json, write_text
from ssm.base.provenance import provenance
from ssm.base.records import RUN_RECORD
from ssm.base.strict_parsing import read_json, shaped
from ssm.diagnosis import PAGE, diagnose_loaded, load_diagnosis, write_diagnosis, write_page
from ssm.diagnosis import RECORD as DIAGNOSIS
from ssm.diagnosis.outcome import NOT_DECIDED
from ssm.diagnosis.page import build_page
from ssm.diagnosis.result import Diagnosis, Extension
from ssm.diagnosis.verdict import sentence_of
from ssm.extension.choice import Candidate, best_of_trained, choose
from ssm.extension.export import as_exported, write_chosen
from ssm.extension.folder import Folder
from ssm.extension.losses import Factors, factors_between
from ssm.extension.outcome import (
    OF_TRAINING,
    Outcome,
    outcome_before,
    outcome_of,
    outcome_of_training,
)
from ssm.extension.parent_run import parent_folder
from ssm.extension.recipe import control_run, extended_run, given_a_state, peak_lr, unlike_the_paper
from ssm.extension.records import CandidateRecord
from ssm.extension.selection import candidates, weights_of
from ssm.extension.text import Text
from ssm.models.load import LoadedModel
from ssm.models.weights_file import load_model
from ssm.specs.extension import ExtensionSpec
from ssm.specs.training import RunSpec
from ssm.training.loop import train
from ssm.training.run_record import read_record

EXTENDED, CONTROL = "extended", "control"


class Stages:
    """One extension, from the original model to the written one."""

    advice = OF_TRAINING

    def __init__(
        self,
        loaded: LoadedModel,
        parent: RunSpec,
        text: Text,
        spec: ExtensionSpec,
        folder: Folder,
        device: torch.device,
    ):
        self.loaded, self.parent, self.text, self.spec = loaded, parent, text, spec
        self.folder, self.device = folder, device
        self.chosen: Candidate | None = None
        self.kept: Candidate | None = None  # the weights to write: the chosen ones, or the best trained ones
        self.measured: list[Candidate] = []
        self.diagnoses: dict[str, Diagnosis] = {}
        self.lost: dict[str, str] = {}  # arm -> why it has no diagnosis

    def work(self) -> dict[str, Any]:
        """Make all results that are missing. Returns the content of result.json."""
        before = self._diagnosed("before", self.loaded)
        self.loaded.model.to("cpu")
        # It may have been trained before, after a diagnosis on other windows with another verdict.
        trained = (self.folder.run(EXTENDED) / RUN_RECORD).exists()
        # If all windows were read, a stopped call has judged fewer before: the verdict on all of them comes last.
        reread = before.facts.all_windows
        outcome = None if reread else outcome_before(before, trained, self.advice)
        if outcome is None or trained:
            made = self._made_and_chosen()
            outcome = outcome or made
        change: Factors | None = None
        if outcome is None:
            assert self.chosen is not None
            change, outcome = self._judged(reread)
            more = outcome.word == NOT_DECIDED or any(arm.facts.all_windows for arm in self.diagnoses.values())
            if more:
                # Each diagnosis ended when its own verdict was decided, after 64 windows or more. The gain may need
                # more. With so many, the errors of two looks add up to less than 2.5% (`intervals.cautious`).
                change, outcome = self._judged(all_windows=True)
                outcome = outcome_before(self.diagnoses["before"], True, self.advice) or outcome
            if self.spec.control:
                self._control(self.chosen, more)
        if self.kept is not None:
            self._export(outcome)
        return self._result(outcome, change)

    @cached_property
    def runs(self) -> dict[str, RunSpec]:
        """The runs by arm."""
        spec, data, name = self.spec, self.text.train.spec, self.loaded.name
        made = {EXTENDED: extended_run, CONTROL: control_run}
        return {arm: run(spec, self.parent, data, name) for arm, run in made.items()}

    def _made_and_chosen(self) -> Outcome | None:
        """Train, and choose among the weights. Returns the outcome if there are no better weights to diagnose."""
        spec, record = self.spec, self._trained(EXTENDED)
        diverged = record["message"] if record["status"] == "diverged" else None
        if diverged is None:
            self.measured = self._candidates()
            self.chosen = choose(self.measured, spec.measure, spec.in_context_tolerance)
            trained = self.chosen is not self.measured[0]
            self.kept = self.chosen if trained else best_of_trained(self.measured, spec.measure)
        return outcome_of_training(diverged, self.measured, spec.measure, spec.in_context_tolerance)

    def _judged(self, all_windows: bool = False) -> tuple[Factors, Outcome]:
        """The change from the original to the chosen weights, and the outcome."""
        before = self._diagnosed("before", self.loaded, all_windows)
        self.loaded.model.to("cpu")
        after = self._diagnosed("after", self._chosen_model(), all_windows)
        change = factors_between(before, after)
        verdicts, allowed = (before.verdict.outcome, after.verdict.outcome), self.spec.in_context_tolerance
        return change, outcome_of(*verdicts, change, allowed, self.advice)

    def _control(self, chosen: Candidate, all_windows: bool) -> None:
        """Diagnose the control arm after as many steps as the chosen weights."""
        record = self._trained(CONTROL)
        if record["status"] == "diverged":
            self.lost[CONTROL] = f"Training {record['message']}."
        else:
            self._diagnosed(CONTROL, self._with_weights(CONTROL, chosen), all_windows)

    # --- Single stages ------------------------------------------------------------------------------------------------

    def _diagnosed(self, name: str, loaded: LoadedModel, all_windows: bool = False) -> Diagnosis:
        """A diagnosis on the page's windows, made if it is missing, or if it ended early and needs all windows."""
        folder = self.folder.diagnosis(name)
        known = diagnosis = self.diagnoses.get(name)
        if diagnosis is None and (folder / DIAGNOSIS).exists():
            diagnosis = load_diagnosis(folder)
        if diagnosis is None or (all_windows and self._ended_early(diagnosis)):
            self._say(f"diagnosis, {name}{', on all windows' if all_windows else ''}")
            spec, text = self.spec.diagnosis, self.text
            made = diagnose_loaded(loaded, text.page, spec, self.device, text=text.files, all_windows=all_windows)
            self.folder.delete([folder])
            with atomic_folder(folder) as temporary:
                write_diagnosis(made, temporary)
            diagnosis = load_diagnosis(folder)
        if diagnosis is not known:
            self.diagnoses[name] = diagnosis
            self._say(f"{name}: {sentence_of(diagnosis.readings, diagnosis.facts)}")
            if not (folder / PAGE).exists():
                write_page(diagnosis, folder)
        return diagnosis

    def _ended_early(self, diagnosis: Diagnosis) -> bool:
        """Whether its verdict was decided before all windows were read."""
        facts = diagnosis.facts
        all_read = facts.sequences >= self.spec.diagnosis.sequences or facts.windows <= facts.sequences
        return facts.stopped_by == "decided" and not all_read

    def _trained(self, arm: str) -> dict[str, Any]:
        """The record of an arm's run. The run is trained if it is not finished."""
        run, folder = self.runs[arm], self.folder.run(arm)
        if not (folder / RUN_RECORD).exists():
            self._say(f"training, {arm}: {counted(self.spec.steps, 'step')} of {self.spec.whole_batch_tokens:,} tokens")
            return train(run, self.text.train, folder, self.device, self._parent())
        record = read_record(folder)
        if record.get("spec") != run.content():
            raise CheckpointError(f"{folder}: has another run than this extension's; delete it, or give another -o")
        return record

    def _parent(self) -> Path:
        return parent_folder(self.loaded, self.parent, self.folder.run("imported"))

    def _candidates(self) -> list[Candidate]:
        path = self.folder.choice
        if not path.exists():
            self._say("choice among the original and the trained weights")
            run, folder = self.runs[EXTENDED], self.folder.run(EXTENDED)
            text, diagnosis = self.text.choice, self.spec.diagnosis
            measured = candidates(self.loaded, run, folder, self._parent(), text, diagnosis, self.device)
            write_json(path, [candidate.as_json() for candidate in measured])
        record = read_json(path, OutputError, "choice")
        values = shaped(record, list[CandidateRecord], f"{path}: not a choice", OutputError)
        return [Candidate.from_json(value) for value in values]

    def _with_weights(self, arm: str, chosen: Candidate) -> LoadedModel:
        """The model with the weights of an arm at the chosen step."""
        path = weights_of(chosen, self.folder.run(arm), self._parent())
        model = as_exported(self.loaded, load_model(path)[0], path.parent)
        return replace(self.loaded, model=model.eval(), fingerprint=sha256_of(path)[:16])

    def _chosen_model(self) -> LoadedModel:
        """The model with the chosen weights."""
        assert self.chosen is not None
        return self._with_weights(EXTENDED, self.chosen)

    def _export(self, outcome: Outcome) -> None:
        place = self._place(outcome)
        if not place.exists():
            self._say(f"export to {place}")
            self._write_model(place, outcome)

    def _place(self, outcome: Outcome) -> Path:
        return self.folder.model if outcome.gained else self.folder.candidate

    def _write_model(self, place: Path, outcome: Outcome) -> None:
        """Write the kept weights in the format of the original."""
        assert self.kept is not None
        run = self.folder.run(EXTENDED)
        weights = weights_of(self.kept, run, self._parent())
        write_chosen(self.loaded, weights, run, self.kept, place, self._changes(outcome))

    # --- Descriptions -------------------------------------------------------------------------------------------------

    def _training(self) -> dict[str, str]:
        """A description of the training, for the page and the model's card; empty without training."""
        if not self.folder.run(EXTENDED).exists():
            return {}
        run = self.runs[EXTENDED]
        training, steps, text = run.training, self.spec.steps, self.text.train
        taken = f"{self.kept.step} of " if self.kept is not None else ""
        rounds = steps * training.batch_tokens / text.train.n_tokens
        return {
            "original": f"{self.loaded.name} ({self.loaded.fingerprint})",
            "initial state": ", ".join(f"{key} {value}" for key, value in training.initial_state.content().items()),
            "layers given a state": given_a_state(run.model),
            "steps": f"{taken}{steps}, {training.batch_tokens:,} tokens each, context {training.context}",
            "peak learning rate": f"{peak_lr(self.spec, run.model):.3g}",
            "text": f"{text.train.n_tokens:,} tokens, read {rounds:.2g} times by the end",
            "held out": self.text.held_out.words,
            "SHA-256 of the text": text.manifest["corpus"]["sha256"],
            "unlike the paper": "; ".join(self._unlike_the_paper()),
        } | {f"{arm} arm": why for arm, why in self.lost.items()}

    def _left_out(self) -> list[str]:
        """Links in the original's folder to files outside of it: these are not copied."""
        return [] if self.loaded.source is None else list(self.loaded.source.outside)

    def _numbers(self) -> dict[str, Any] | None:
        """For a repair without training: the chosen numbers, and the layers of each number, counted from 0."""
        return None

    def _unlike_the_paper(self) -> tuple[str, ...]:
        return unlike_the_paper(self.spec, self.parent.model)

    def _changes(self, outcome: Outcome) -> dict[str, object]:
        """The entries of the model's card."""
        verdicts = {of: diagnosis.verdict.paragraph for of, diagnosis in self.diagnoses.items() if of != CONTROL}
        return {"outcome": outcome, **self._training(), **verdicts}

    def _result(self, outcome: Outcome, change: Factors | None) -> dict[str, Any]:
        """Write the page and result.json."""
        written = str(self._place(outcome).relative_to(self.folder.path)) if self.kept is not None else None
        result = {
            "outcome": outcome.word,
            "reason": outcome.reason,
            "model": written if outcome.gained else None,
            "candidate": None if outcome.gained else written,
            "library": self.loaded.library,
            "chosen": self.chosen and self.chosen.as_json(),
            "candidates": [candidate.as_json() for candidate in self.measured],
            "repair": self._numbers(),
            "change": change and change.as_json(),
            "verdicts": {name: made.verdict.paragraph for name, made in self.diagnoses.items()} | self.lost,
            "held_out": self.text.held_out.as_json(),
            "left_out": self._left_out() if written is not None else [],
            "unlike_the_paper": list(self._unlike_the_paper()),
            "spec": self.spec.content(),
            "original": {"name": self.loaded.name, "fingerprint": self.loaded.fingerprint},
            "provenance": provenance(),
        }
        write_text(self.folder.page, self._page(outcome, written))
        write_json(self.folder.result, result)
        return result

    def _page(self, outcome: Outcome, written: str | None) -> str:
        """The page with the diagnoses before and after, or with the first one if there is no other."""
        before, after = self.diagnoses["before"], self.diagnoses.get("after")
        extension = Extension(
            outcome=outcome.word,
            reason=outcome.reason,
            gained=outcome.gained,
            training=tuple(self._training().items()),
            control=self.diagnoses.get(CONTROL),
            written=written,
            held_out=self.text.held_out.line,
            links=tuple((name, f"{name}/index.html") for name in self.diagnoses),
        )
        return build_page(after or before, before if after else None, extension)

    def _say(self, what: str) -> None:
        print(f"extend {self.loaded.title}: {what}", file=sys.stderr, flush=True)
