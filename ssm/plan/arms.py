"""The arms of a figure, resolved to training runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from ssm.base.errors import ConfigError, nearest
from ssm.plan.library import Library
from ssm.plan.rehearsal import capped_data, capped_training
from ssm.specs.figure import ArmEntry, FigureSpec
from ssm.specs.training import RunSpec, TrainingSpec


@dataclass(frozen=True)
class Resolved:
    """What one arm means for one panel and seed: a run, and the snapshot of it (None: its final weights)."""

    run: RunSpec
    snapshot: float | None = None


@dataclass(frozen=True)
class ArmResolver:
    """Resolves the arms of one figure."""

    library: Library
    figure: FigureSpec
    _trainings: dict[tuple[str, str], TrainingSpec] = field(default_factory=dict)  # (arm, panel): of all seeds
    _resolved: dict[tuple[str, str, int], Resolved] = field(default_factory=dict)

    def resolve(self, arm: str, panel: str, seed: int) -> Resolved:
        """The run of an arm; an arm with a parent takes the parent's panel and seed.

        Raises:
            ConfigError: an unknown recipe, initial state, model or data set; an impossible override; a circle of arms.
        """
        key = (arm, panel, seed)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(arm, panel, seed, ())
        return self._resolved[key]

    def _resolve(self, arm: str, panel: str, seed: int, below: tuple[str, ...]) -> Resolved:
        entry = self._entry(arm)
        where = self._where(arm)
        if arm in below:
            raise ConfigError(f"{where}: the arms {' -> '.join((*below, arm))} stand in a circle")
        if entry.snapshot_of is not None:
            if self._entry(entry.snapshot_of).snapshot_of is not None:
                raise ConfigError(
                    f"{where}.snapshot_of: '{entry.snapshot_of}' is a snapshot itself; name a trained arm"
                )
            return Resolved(self._resolve(entry.snapshot_of, panel, seed, (*below, arm)).run, entry.at)
        parent = None
        if entry.parent is not None:
            if self._entry(entry.parent).snapshot_of is not None:
                raise ConfigError(f"{where}.from: '{entry.parent}' is a snapshot; training starts from final weights")
            parent = self._resolve(entry.parent, panel, seed, (*below, arm)).run
        model_key = f"{where}.model" if entry.model else f"{self.library.figure_file(self.figure.target)}: models"
        content = {
            "model": self.library.models.get(entry.model or panel, model_key),
            "data": capped_data(
                self.library.data.get(
                    entry.data or str(self.figure.data),
                    f"{where}.data" if entry.data else f"{self.library.figure_file(self.figure.target)}: data",
                ),
                self.library.workflow.rehearsal,
            ),
            "training": self._training(arm, panel),
            "seed": seed,
            "parent": parent,
        }
        return Resolved(RunSpec.parse(content, where))

    def _entry(self, arm: str) -> ArmEntry:
        entry = self.figure.arms[arm]
        assert entry is not None, "FigureSpec refuses references to an arm that this scale lacks"
        return entry

    def _where(self, arm: str) -> str:
        return f"{self.library.figure_file(self.figure.target)}: arms.{arm}"

    def _training(self, arm: str, panel: str) -> TrainingSpec:
        """The arm's recipe with its overrides, its initial state, and the snapshots that the figure takes of it."""
        if (arm, panel) in self._trainings:
            return self._trainings[arm, panel]
        entry, where = self._entry(arm), self._where(arm)
        recipe = self.library.recipes.get(str(entry.training), f"{where}.training")
        state = self.library.initial_states.get(entry.initial_state, f"{where}.initial_state").model_dump()
        override = entry.override | entry.override_at.get(panel, {})
        for key in override:
            if key not in TrainingSpec.model_fields:
                hint = nearest(key, TrainingSpec.model_fields)
                raise ConfigError(f"{where}.override: unknown key '{key}'; {hint}")
        changed = override.pop("initial_state", {})
        if not isinstance(changed, dict) or "policy" in changed:
            raise ConfigError(f"{where}.override.initial_state: expected values of the initial state, without 'policy'")
        content = recipe.model_dump() | override | {"initial_state": state | changed}
        training = TrainingSpec.parse(content, f"{where}.override")
        taken = {other.at for other in self.figure.arms.values() if other and other.snapshot_of == arm}
        content["snapshots"] = sorted({*training.snapshots, *taken})
        training = TrainingSpec.parse(content, where)
        self._trainings[arm, panel] = capped_training(training, self.library.workflow.rehearsal)
        return self._trainings[arm, panel]
