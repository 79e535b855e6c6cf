"""The arms of a figure, resolved to training runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ssm.base.errors import ConfigError, nearest
from ssm.claims.families import Member
from ssm.figures.figure import PUBLISHED, ArmEntry, FigureSpec
from ssm.plan.dry_run import capped_data, capped_repair, capped_training
from ssm.plan.library import Library
from ssm.plan.overrides import with_overrides
from ssm.specs.base import Spec
from ssm.specs.checkpoint import CheckpointSpec, PublishedSpec
from ssm.specs.tasks.base import Task
from ssm.specs.training import CheckpointRef, RunSpec, TrainingSpec


@dataclass(frozen=True)
class Resolved:
    """The weights of an arm for one panel and seed: a run, and a snapshot of it (None: the final weights)."""

    run: RunSpec
    snapshot: float | None = None


@dataclass(frozen=True)
class ArmResolver:
    """Resolves the arms of a figure to training runs."""

    library: Library
    figure: FigureSpec
    _specs: dict[tuple[str, str], dict[str, Spec]] = field(default_factory=dict)  # (arm, panel) -> specs of all seeds
    _resolved: dict[tuple[str, str, int], Resolved] = field(default_factory=dict)

    def resolve(self, arm: str, panel: str, seed: int) -> Resolved:
        """The weights of an arm. A parent is resolved for the same panel and seed.

        Raises:
            ConfigError: unknown recipe, initial state, model or data set; impossible override; arms in a circle.
        """
        key = (arm, panel, seed)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(arm, panel, seed, ())
        return self._resolved[key]

    def _resolve(self, arm: str, panel: str, seed: int, below: tuple[str, ...]) -> Resolved:
        entry = self._entry(arm)
        where = self._where(arm)
        if arm in below:
            raise ConfigError(f"{where}: the arms {' -> '.join((*below, arm))} form a cycle; change 'from' in one")
        if entry.snapshot_of is not None:
            taken_of = self._entry(entry.snapshot_of)
            if taken_of.training is None:
                what = "a snapshot itself" if taken_of.snapshot_of is not None else "not trained here"
                raise ConfigError(f"{where}.snapshot_of: '{entry.snapshot_of}' is {what}; name a trained arm")
            taken = self._resolve(entry.snapshot_of, panel, seed, (*below, arm)).run
            if taken.training.budget.steps == 0:
                raise ConfigError(f"{where}.snapshot_of: '{entry.snapshot_of}' has no steps; name a trained arm")
            return Resolved(taken, entry.at)
        parent = None
        if entry.parent is not None:
            if self._entry(entry.parent).snapshot_of is not None:
                raise ConfigError(f"{where}.from: '{entry.parent}' is a snapshot; training starts from final weights")
            parent = self._resolve(entry.parent, panel, seed, (*below, arm)).run
        content = self._specs_of(arm, panel) | {"seed": seed, "parent": parent, "layer": entry.layer}
        if entry.repair is not None:
            content["repair"] = capped_repair(entry.repair, self.library.workflow.dry_run)
        if entry.checkpoint is not None:
            content["checkpoint"] = CheckpointRef(name=self._weights(entry, panel, where)[0])
        run = RunSpec.parse(content, where)
        if parent is not None and run.layer is None and not run.data.is_spelled_like(parent.data):
            raise ConfigError(f"{where}: the tokens of '{run.data.name}' differ from the parent's '{parent.data.name}'")
        return Resolved(run)

    def _weights(self, entry: ArmEntry, panel: str, where: str) -> tuple[str, int]:
        """Where the weights of an untrained arm are, and the context T that they were trained on, in tokens.

        No file is read; the import job does that.
        """
        name, model, library = str(entry.checkpoint), entry.model or panel, self.library
        weights: PublishedSpec | CheckpointSpec | None = None
        if name == PUBLISHED:
            weights = library.published.get(model)
            if weights is None:
                models = ", ".join(library.published) or "none"
                raise ConfigError(
                    f"{where}.checkpoint: {library.folder / 'models.yaml'}: '{model}' has no key 'published'; "
                    f"models with this key: {models}"
                )
        elif "/" not in name:
            if name not in library.checkpoints:
                hint = nearest(name, [PUBLISHED, *library.checkpoints])
                raise ConfigError(
                    f"{where}.checkpoint: unknown checkpoint '{name}'; {hint}; the path of a folder needs a /"
                )
            weights = library.checkpoints[name]
        context = entry.context or (weights.context if weights else None)
        if context is None:
            raise ConfigError(f"{where}: give 'context', the tokens of a sequence that {name} was trained on")
        return weights.checkpoint if weights else name, context

    def _entry(self, arm: str) -> ArmEntry:
        entry = self.figure.arms[arm]
        assert entry is not None, "FigureSpec refuses references to an arm that this scale lacks"
        return entry

    def _where(self, arm: str) -> str:
        return f"{self.library.figure_file(self.figure.target)}: arms.{arm}"

    def _specs_of(self, arm: str, panel: str) -> dict[str, Any]:
        """The model, the data and the training of an arm. The values of a grid are set."""
        if (arm, panel) not in self._specs:
            entry, file = self._entry(arm), self.library.figure_file(self.figure.target)
            caps = self.library.workflow.dry_run
            model_key = f"{self._where(arm)}.model" if entry.model else f"{file}: models"
            model: Spec = self.library.models.get(entry.model or panel, model_key)
            data_key = f"{self._where(arm)}.data" if entry.data else f"{file}: data"
            data: Spec = capped_data(self.library.data.get(entry.data or str(self.figure.data), data_key), caps)
            # An arm that takes all weights of a parent also takes the values of the parent's grid. An arm that takes
            # single layers has its own model.
            parent_has_grid = entry.parent is not None and self._entry(entry.parent).member is not None
            if entry.parent is not None and entry.layer is None and (parent_has_grid or entry.repair is not None):
                above = self._specs_of(entry.parent, panel)
                model = above["model"]
                data = data if entry.data else above["data"]
            training = self._training(entry, panel, self._where(arm))
            specs = {"model": model, "data": data, "training": training, "initial_state": training.initial_state}
            if entry.member is not None:
                specs |= self._with_grid(entry, entry.member, specs, self._where(arm))
            specs["training"] = self._with_snapshots(arm, specs["training"], specs.pop("initial_state"))
            self._specs[arm, panel] = specs
        return dict(self._specs[arm, panel])

    def _with_grid(self, entry: ArmEntry, member: Member, specs: dict[str, Spec], where: str) -> dict[str, Spec]:
        """The specs with the values of a grid. They cannot set the training of weights that were trained elsewhere."""
        roots = ["model", "data"] if entry.training is None else list(specs)
        called = {"data": "task"} if isinstance(specs["data"], Task) else {}
        changed = with_overrides({called.get(root, root): specs[root] for root in roots}, member.sets, where)
        return {root: changed[called.get(root, root)] for root in roots}

    def _training(self, entry: ArmEntry, panel: str, where: str) -> TrainingSpec:
        """The arm's recipe with its overrides and its initial state. Published and repaired weights have zero steps."""
        if entry.checkpoint is not None:
            return TrainingSpec.of_zero_steps(self._weights(entry, panel, where)[1], where)
        if entry.repair is not None:
            return TrainingSpec.of_zero_steps(self._specs_of(str(entry.parent), panel)["training"].context, where)
        recipe = self.library.recipes.get(str(entry.training), f"{where}.training")
        state = self.library.initial_states.get(entry.initial_state, f"{where}.initial_state").model_dump()
        at_panel = entry.override_at.get(panel, {})
        override = entry.override | at_panel
        for key in override:
            if key not in TrainingSpec.model_fields:
                hint = nearest(key, TrainingSpec.model_fields)
                raise ConfigError(f"{where}.override: unknown key '{key}'; {hint}")
        for changed in (entry.override.get("initial_state", {}), at_panel.get("initial_state", {})):
            if not isinstance(changed, dict) or "policy" in changed:
                what = "expected keys of the initial state, without 'policy'"
                raise ConfigError(f"{where}.override.initial_state: {what}")
            state |= changed
        content = recipe.model_dump() | override | {"initial_state": state}
        return TrainingSpec.parse(content, f"{where}.override")

    def _with_snapshots(self, arm: str, training: Spec, initial_state: Spec) -> TrainingSpec:
        """The arm's training, with its initial state and the snapshots that the figure takes from it."""
        assert isinstance(training, TrainingSpec)
        taken = {other.at for other in self.figure.arms.values() if other and other.snapshot_of == arm}
        content = training.model_dump() | {"initial_state": initial_state.model_dump()}
        content["snapshots"] = sorted({*training.snapshots, *taken})
        return capped_training(TrainingSpec.parse(content, self._where(arm)), self.library.workflow.dry_run)
