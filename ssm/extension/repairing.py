"""An extension without training: it chooses the numbers of a repair in the way that others choose a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from ssm.base.errors import OutputError
from ssm.base.files import write_json
from ssm.base.strict_parsing import read_json, shaped
from ssm.evaluation.repairing import best_trial, search
from ssm.extension.choice import ORIGINAL, REPAIRED_MODEL, Candidate, admitted, choose
from ssm.extension.export import as_exported, trial_as_exported, write_exported
from ssm.extension.outcome import NOTHING, OF_REPAIRING, WORDS, Outcome
from ssm.extension.records import Repaired, TriedRecord
from ssm.extension.selection import measured
from ssm.extension.stages import Stages
from ssm.models.load import LoadedModel
from ssm.models.repairs import repaired_copy
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs.base import OfLayers, Point


class Repairing(Stages):
    """The stages of an extension without runs: the original and the repaired model, diagnosed on the same windows."""

    advice = OF_REPAIRING

    @property
    def repair(self) -> OfLayers:
        assert isinstance(self.spec.repair, OfLayers)
        return self.spec.repair

    def _made_and_chosen(self) -> Outcome | None:
        self.measured = [Candidate.from_json(value) for value in self._found["candidates"]]
        self.chosen = choose(self.measured, self.spec.measure, self.spec.in_context_tolerance)
        if self.chosen.name != ORIGINAL:
            self.kept = self.chosen
            return None
        allowed = f"{100 * self.spec.in_context_tolerance:g}%"
        tried = f"none of {self._found['trials']} trials has a lower {WORDS[self.spec.measure]}"
        return Outcome(NOTHING, f"{tried} at no more than {allowed} more perplexity in context")

    @cached_property
    def _found(self) -> Repaired:
        """The result of the search. It is repeated if the rules of the choice have changed."""
        rules = [self.spec.measure, self.spec.in_context_tolerance]
        result = self._read() if self.folder.repair.exists() else None
        if result is not None and result["rules"] == rules:
            return result
        self._say(f"choice of the numbers of {self.repair.words}")
        self._search(rules)
        return self._read()

    def _read(self) -> Repaired:
        path = self.folder.repair
        record = read_json(path, OutputError, "search of a repair")
        read = shaped(record, Repaired, f"{path}: not the search of a repair", OutputError)
        places = len(self.repair.start(self.loaded.spec))
        if len(read["chosen"]) != places:
            raise OutputError(f"{path}: not the search of a repair: chosen: expected {places} numbers")
        return read

    def _search(self, rules: list[Any]) -> None:
        """Search the numbers with the lowest measure. Trials above the tolerance in context count as infinitely bad.

        Each trial is stored when it is measured, so that a search that was stopped continues.
        """
        model, context = self.loaded.spec, self.spec.diagnosis.context
        start, most = self.repair.start(model), self.repair.most_trials(model, context)
        known, asked = self._known(), list[Point]()

        def loss(point: Point) -> float:
            asked.append(point)
            if point not in known:
                name = ORIGINAL if point == start else REPAIRED_MODEL
                found = self._measured(Candidate(name, 0), point, f"trial {len(asked)} of at most {most}")
                known[point] = Candidate.from_json(found.as_json())  # as another call reads it
                self._store(known)
            found = known[point]
            allowed = admitted(found, known[start], self.spec.measure, self.spec.in_context_tolerance)
            return float(getattr(found, self.spec.measure)) if allowed else inf

        tried = search(self.repair, model, context, loss)
        best = best_trial(tried)
        kept = [start] if best is tried[0] else [start, best.point]
        content = {
            "rules": rules,
            "chosen": list(best.point),
            "trials": len(tried),
            "candidates": [known[point].as_json() for point in kept],
        }
        write_json(self.folder.repair, content)

    def _measured(self, candidate: Candidate, point: Point, what: str) -> Candidate:
        own = trial_as_exported(self.loaded, self._repaired(point), self.folder.repair.parent).to(self.device)
        return measured(candidate, own, self.text.choice, self.spec.diagnosis, self.device, what)

    def _known(self) -> dict[Point, Candidate]:
        """The trials of an earlier search, also of one that was stopped or had other rules of the choice."""
        path = self.folder.trials
        if not path.exists():
            return {}
        values = shaped(read_json(path, OutputError, "trials"), list[TriedRecord], f"{path}: not trials", OutputError)
        return {tuple(value["at"]): Candidate.from_json(value["candidate"]) for value in values}

    def _store(self, trials: Mapping[Point, Candidate]) -> None:
        values = [{"at": list(point), "candidate": candidate.as_json()} for point, candidate in trials.items()]
        write_json(self.folder.trials, values)

    def _repaired(self, point: Point) -> TrainableModel:
        model = repaired_copy(self.loaded.model, self.repair, point)
        assert isinstance(model, TrainableModel)
        return model

    def _model(self) -> TrainableModel:
        model = self._repaired(tuple(self._found["chosen"]))
        return as_exported(self.loaded, model, self.folder.repair.parent).eval()

    def _chosen_model(self) -> LoadedModel:
        said = f"{self.loaded.fingerprint} {self.repair.content()} {self._found['chosen']}"
        fingerprint = hashlib.sha256(said.encode()).hexdigest()[:16]
        return replace(self.loaded, model=self._model().to(self.device), fingerprint=fingerprint)

    def _write_model(self, place: Path, outcome: Outcome) -> None:
        write_exported(self.loaded, self._model(), place, self._changes(outcome))

    def _training(self) -> dict[str, str]:
        """A description of the repair, for the page and the model's card."""
        if not self.folder.repair.exists():
            return {}
        diagnosis, text = self.spec.diagnosis, self.text.choice
        return {
            "original": f"{self.loaded.name} ({self.loaded.fingerprint})",
            "repair": f"{self.repair.words}, without training",
            "chosen": self.repair.said(self.loaded.spec, tuple(self._found["chosen"])),
            "trials": f"{self._found['trials']}, windows of {diagnosis.length:,} tokens, context {diagnosis.context}",
            "text": f"{text.held_out.n_tokens:,} tokens for the choice, which the page does not measure on",
            "held out": self.text.held_out.words,
            "SHA-256 of the text": text.manifest["corpus"]["sha256"],
        }

    def _numbers(self) -> dict[str, Any] | None:
        if not self.folder.repair.exists():
            return None
        layers = list(self.repair.layers(self.loaded.spec))
        return {"layers": layers, "numbers": self._found["chosen"], "trials": self._found["trials"]}

    def _unlike_the_paper(self) -> tuple[str, ...]:
        return ("nothing is trained",)
