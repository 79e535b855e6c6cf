"""The named things of the config folder, at one scale: models, data, recipes, initial states, figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from ssm.base.errors import ConfigError, nearest, shown
from ssm.base.names import natural
from ssm.base.strict_parsing import pointless_numbers
from ssm.claims.preregistration import Preregistrations
from ssm.figures.figure import FigureSpec
from ssm.plan.read import choose_scale, read_yaml
from ssm.specs.base import Prose, Spec
from ssm.specs.checkpoint import CheckpointSpec, PublishedSpec
from ssm.specs.config import WorkflowConfig
from ssm.specs.data import Data
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.model import ModelSpec
from ssm.specs.tasks import parse_data
from ssm.specs.training import TrainingSpec

T = TypeVar("T")
PREREGISTERED = "registered.json"


class TrainingFile(Spec):
    """config/training.yaml."""

    recipes: dict[str, TrainingSpec] = Field(default_factory=dict)
    initial_states: dict[str, InitialStateSpec] = Field(default_factory=dict)


class NamedModel(ModelSpec):
    """An entry of config/models.yaml that figures train; where its weights are published is no part of what it is."""

    published: PublishedSpec | None = None
    title: Prose | None = None  # its name in pictures, tables and pages; none: the names of its systems

    @property
    def model(self) -> ModelSpec:
        return ModelSpec.model_validate({name: getattr(self, name) for name in ModelSpec.model_fields})


@dataclass(frozen=True)
class ConfigSection(Generic[T]):
    """Named things of one file. A thing without a value for this scale is an error only where it is asked for."""

    what: str  # "model", "data set" ...
    things: dict[str, T | ConfigError]

    def get(self, name: str, where: str) -> T:
        """The thing of that name.

        Raises:
            ConfigError: there is none, with `where` it was asked for and its nearest name; or it has no value here.
        """
        if name not in self.things:
            raise ConfigError(f"{where}: unknown {self.what} '{name}'; {nearest(name, self.things)}")
        thing = self.things[name]
        if isinstance(thing, ConfigError):
            raise ConfigError(f"{thing} (asked for by {where})")
        return thing


@dataclass(frozen=True)
class Library:
    """Everything that the config folder says, at the scale of its workflow configuration."""

    folder: Path
    workflow: WorkflowConfig
    models: ConfigSection[ModelSpec]
    checkpoints: dict[str, CheckpointSpec]  # the entries of models.yaml that were trained elsewhere
    published: dict[str, PublishedSpec]  # named model -> its published weights, of those that have some
    titles: dict[str, str]  # named model -> its title for readers
    data: ConfigSection[Data]
    recipes: ConfigSection[TrainingSpec]
    initial_states: ConfigSection[InitialStateSpec]
    figures: dict[str, FigureSpec]  # by target: the wanted ones, and those that they collect
    wanted: tuple[str, ...]  # the targets that are planned
    preregistrations: Preregistrations  # what was registered of all figures, at all scales

    @property
    def scale(self) -> str:
        return self.workflow.scale

    def figure_file(self, target: str) -> Path:
        """Where a figure is described: the first word of an error about it."""
        return self.folder / "figures" / f"{target}.yaml"


def load_config(
    folder: str | Path = "config",
    scale: str | None = None,
    figures: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Library:
    """Read and check the config folder.

    Args:
        folder: holds config.yaml, models.yaml, data.yaml, training.yaml and figures/.
        scale: instead of config.yaml's.
        figures: targets instead of config.yaml's `figures`.
        overrides: keys of config.yaml with other values.

    Raises:
        ConfigError: one line with the file, the key, what was expected and the nearest valid name.
    """
    folder = Path(folder)
    workflow = _workflow(folder, scale, figures, overrides or {})
    scale = workflow.scale
    wanted = _wanted(folder, workflow)
    models, checkpoints, published, titles = _models(folder / "models.yaml", scale)
    training = folder / "training.yaml"
    sections = read_yaml(training)
    TrainingFile.parse({section: {} for section in sections}, str(training))  # refuses unknown sections
    return Library(
        folder=folder,
        workflow=workflow,
        models=models,
        checkpoints=checkpoints,
        published=published,
        titles=titles,
        data=ConfigSection("data set", _named(folder / "data.yaml", parse_data, scale)),
        recipes=ConfigSection("recipe", _each(sections.get("recipes"), training, "recipes", scale, _recipe)),
        initial_states=ConfigSection(
            "initial state", _each(sections.get("initial_states"), training, "initial_states", scale, _initial_state)
        ),
        figures=_figures(folder, wanted, scale),
        wanted=wanted,
        preregistrations=read_preregistrations(folder),
    )


def read_preregistrations(folder: Path) -> Preregistrations:
    """config/registered.json; without the file nothing is registered.

    Raises:
        ConfigError: it is no such file.
    """
    path = folder / PREREGISTERED
    return Preregistrations.load(path) if os.path.isfile(path) else Preregistrations()  # noqa: PTH113 (a name may be too long)


def figure_targets(folder: Path) -> tuple[str, ...]:
    """The targets that have a file in config/figures, in natural order (lg_fig2 before lg_fig11)."""
    return tuple(sorted((path.stem for path in (folder / "figures").glob("*.yaml")), key=natural))


def _workflow(
    folder: Path, scale: str | None, figures: Sequence[str] | None, overrides: Mapping[str, Any]
) -> WorkflowConfig:
    path = folder / "config.yaml"
    given = pointless_numbers(dict(overrides))  # Snakemake's own reader keeps to the letter of YAML 1.1
    if scale is not None:
        given["scale"] = scale
    if figures is not None:
        given["figures"] = list(figures)
    written = read_yaml(path)
    content = written | given
    changed = sorted(key for key in given if key not in written or written[key] != given[key])
    source = f"{path} with {', '.join(changed)} given" if changed else str(path)
    wanted = content.get("figures", "all")
    if (isinstance(wanted, str) and wanted != "all") or not wanted:
        raise ConfigError(
            f"{source}: figures: expected 'all' or a list of targets such as [lg_fig5], got {shown(wanted)}"
        )
    return WorkflowConfig.parse(content, source)


def _wanted(folder: Path, workflow: WorkflowConfig) -> tuple[str, ...]:
    existing = figure_targets(folder)
    if workflow.figures == "all":
        return existing
    for target in workflow.figures:
        if target not in existing:
            raise ConfigError(
                f"{folder / 'config.yaml'}: figures: unknown figure '{target}'; {nearest(target, existing)}"
            )
    return tuple(target for target in existing if target in workflow.figures)


def _figures(folder: Path, wanted: tuple[str, ...], scale: str) -> dict[str, FigureSpec]:
    """The wanted figures, and those that they collect: one that collects is the same whatever is wanted."""
    figures = {target: _figure(folder, target, scale) for target in wanted}
    existing = figure_targets(folder)
    for target in wanted:
        for other in figures[target].collect:
            where = f"{folder / 'figures' / f'{target}.yaml'}: collect"
            if other not in existing:
                raise ConfigError(f"{where}: unknown figure '{other}'; {nearest(other, existing)}")
            figures[other] = figures.get(other) or _figure(folder, other, scale)
            if figures[other].collect:
                raise ConfigError(f"{where}: '{other}' is a figure that collects")
    return figures


def _figure(folder: Path, target: str, scale: str) -> FigureSpec:
    path = folder / "figures" / f"{target}.yaml"
    content = {"target": target} | choose_scale(read_yaml(path), scale, str(path))
    if content["target"] != target:
        raise ConfigError(f"{path}: target: expected '{target}' as the file is named, got {shown(content['target'])}")
    return FigureSpec.parse(content, str(path))


def _each(
    entries: Any, path: Path, section: str, scale: str, parse: Callable[[str, Any, Path], T]
) -> dict[str, T | ConfigError]:
    """Every entry of a section, checked now; one without a value for this scale keeps its error for later."""
    found: dict[str, T | ConfigError] = {}
    if not isinstance(entries or {}, dict):
        raise ConfigError(f"{path}: {section or 'file'}: expected a mapping of names, got {type(entries).__name__}")
    for name, entry in (entries or {}).items():
        try:
            chosen = choose_scale(entry, scale, str(path), f"{section}.{name}" if section else name)
        except ConfigError as error:
            found[name] = error
            continue
        found[name] = parse(name, chosen, path)
    return found


def _named(path: Path, kind: Callable[[Any, str], T], scale: str) -> dict[str, T | ConfigError]:
    """A file of entries whose name is their key."""

    def parse(name: str, content: Any, path: Path) -> T:
        if not isinstance(content, dict) or "name" in content:
            raise ConfigError(f"{path}: {name}: expected a mapping without 'name', which is its key")
        return kind(content | {"name": name}, f"{path}: {name}")

    return _each(read_yaml(path), path, "", scale, parse)


def _models(
    path: Path, scale: str
) -> tuple[ConfigSection[ModelSpec], dict[str, CheckpointSpec], dict[str, PublishedSpec], dict[str, str]]:
    """models.yaml: the models that figures train, the checkpoints, and the published weights and titles of models."""
    checkpoints: dict[str, CheckpointSpec] = {}
    published: dict[str, PublishedSpec] = {}
    titles: dict[str, str] = {}
    things: dict[str, ModelSpec | ConfigError] = {}
    for name, thing in _named(path, _model_or_checkpoint, scale).items():
        if isinstance(thing, CheckpointSpec):
            checkpoints[name] = thing
            things[name] = ConfigError(
                f"{path}: '{name}' is a checkpoint ({thing.checkpoint}) and no model: an arm may have it as its "
                f"'checkpoint'; its targets are {' and '.join(thing.targets)}"
            )
        elif isinstance(thing, ConfigError):
            things[name] = thing
        else:
            things[name] = thing.model
            titles[name] = thing.title or " and ".join(dict.fromkeys(mixer.taxonomy.system for mixer in thing.mixers()))
            if thing.published is not None:
                published[name] = thing.published
    return ConfigSection("model", things), checkpoints, published, titles


def _model_or_checkpoint(content: Any, source: str) -> NamedModel | CheckpointSpec:
    """By its keys: an architecture reads no text of its own."""
    kind = CheckpointSpec if content.keys() & {"checkpoint", "text"} else NamedModel
    return kind.parse(content, source)


def _recipe(name: str, content: Any, path: Path) -> TrainingSpec:
    if isinstance(content, dict) and "initial_state" in content:
        raise ConfigError(f"{path}: recipes.{name}.initial_state: a recipe has none; a figure's arm names it")
    return TrainingFile.parse({"recipes": {name: content}}, str(path)).recipes[name]


def _initial_state(name: str, content: Any, path: Path) -> InitialStateSpec:
    return TrainingFile.parse({"initial_states": {name: content}}, str(path)).initial_states[name]
