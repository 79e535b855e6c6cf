"""The content of the config folder at one scale: models, data, recipes, initial states and figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from ssm.base.errors import ConfigError, nearest, shown
from ssm.base.names import natural
from ssm.base.strict_parsing import parse_yaml
from ssm.claims.preregistration import Preregistrations, read_preregistrations
from ssm.claims.statements import ALL, figures_named, paper_of
from ssm.figures.figure import TARGET, FigureSpec
from ssm.plan.read import choose_scale, read_config
from ssm.specs.base import INHERITED, SCALES, Prose, Spec
from ssm.specs.checkpoint import CheckpointSpec, PublishedSpec
from ssm.specs.config import WorkflowConfig
from ssm.specs.data import Data
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.model import ModelSpec
from ssm.specs.tasks import parse_data
from ssm.specs.training import TrainingSpec

T = TypeVar("T")
MODELS = "models.yaml"  # in the config folder


class TrainingFile(Spec):
    """config/training.yaml."""

    recipes: dict[str, TrainingSpec] = Field(default_factory=dict)  # name -> a recipe, for the key `training` of an arm
    # name -> an initial-state policy, for the key `initial_state` of an arm
    initial_states: dict[str, InitialStateSpec] = Field(default_factory=dict)


class NamedModel(ModelSpec):
    """An entry of config/models.yaml that figures train. `published` and `title` do not change its id."""

    published: PublishedSpec | None = None  # its official weights, for arms with `checkpoint: published`
    title: Prose | None = None  # its name in pictures, tables and pages; none: the names of its systems

    @property
    def model(self) -> ModelSpec:
        return ModelSpec.model_validate({name: getattr(self, name) for name in ModelSpec.model_fields})


@dataclass(frozen=True)
class ConfigSection(Generic[T]):
    """The named entries of a file. An entry without a value for this scale is an error only if it is used."""

    what: str  # "model", "data set" ...
    entries: dict[str, T | ConfigError]

    def get(self, name: str, where: str) -> T:
        """The entry of a name.

        Args:
            where: the place that uses it, for errors.

        Raises:
            ConfigError: the name is unknown (with the nearest name), or the entry has no value for this scale.
        """
        if name not in self.entries:
            raise ConfigError(f"{where}: unknown {self.what} '{name}'; {nearest(name, self.entries)}")
        entry = self.entries[name]
        if isinstance(entry, ConfigError):
            raise ConfigError(f"{entry} (used by {where})")
        return entry


@dataclass(frozen=True)
class Library:
    """The content of the config folder, at the scale of its workflow configuration."""

    folder: Path
    workflow: WorkflowConfig
    models: ConfigSection[ModelSpec]
    checkpoints: dict[str, CheckpointSpec]  # entries of models.yaml that were trained elsewhere
    published: dict[str, PublishedSpec]  # named model -> its published weights, if there are any
    titles: dict[str, str]  # named model -> its title for readers
    data: ConfigSection[Data]
    recipes: ConfigSection[TrainingSpec]
    initial_states: ConfigSection[InitialStateSpec]
    figures: dict[str, FigureSpec]  # by target: the wanted figures, and the figures that they collect from
    wanted: tuple[str, ...]  # the targets that are planned
    left_out: tuple[str, ...]  # the targets that this scale does not have
    preregistrations: Preregistrations  # of all figures at all scales

    @property
    def scale(self) -> str:
        return self.workflow.scale

    def figure_file(self, target: str) -> Path:
        """The file of a figure. An error about the figure starts with it."""
        return _figure_file(self.folder, target)

    def why_left_out(self, target: str) -> str | None:
        """Why an existing figure is not planned: one line. None: it is planned, or this is no figure."""
        if target in self.wanted or target not in figure_targets(self.folder):
            return None
        if target not in self.left_out:
            return f"'{target}' is not planned, because 'figures' of config.yaml (or of --config) does not name it"
        content = read_config(self.figure_file(target))
        having = ", ".join(scale for scale in SCALES if _takes_part(content, scale))
        near = nearest(target, self.wanted, f"`ssm plan --scale {self.scale}` lists its figures")
        return (
            f"'{target}' is no figure of the scale '{self.scale}': its file has no seeds for it. Scales with this "
            f"figure: {having}. Figures of this scale: {near}"
        )

    def why_no_checkpoint(self, target: str) -> str | None:
        """Why this scale lacks `diagnose_NAME` or `extend_NAME`: one line. None: this is no target of a checkpoint."""
        kind, _, name = target.partition("_")
        problem = self.models.entries.get(name)
        if kind not in ("diagnose", "extend") or not isinstance(problem, ConfigError) or name in self.checkpoints:
            return None
        content = read_config(self.folder / MODELS)[name]
        return f"'{target}' cannot be made: {problem}" if _is_checkpoint(content) else None


def load_config(
    folder: str | Path = "config",
    scale: str | None = None,
    figures: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Library:
    """Read and check the config folder.

    Args:
        folder: holds config.yaml, models.yaml, data.yaml, training.yaml and figures/.
        scale: replaces the scale in config.yaml.
        figures: targets, papers such as `lg`, or `all`, that replace `figures` in config.yaml.
        overrides: keys of config.yaml with new values.

    Raises:
        ConfigError: one line with the file, the key, what was expected and the nearest valid name.
    """
    folder = Path(folder)
    existing = figure_targets(folder)
    workflow, source = _workflow(folder, existing, scale, figures, overrides or {})
    scale = workflow.scale
    # A figure that was named by itself stays: its seeds of this scale are missing, which is an error.
    names = () if workflow.figures == ALL else workflow.figures  # of figures and of papers
    named = figures_named(names or [ALL], existing, f"{source}: figures")
    contents = {target: read_config(_figure_file(folder, target)) for target in named}
    left_out = tuple(target for target in _left_out(contents, scale) if target not in names)
    wanted = tuple(target for target in named if target not in left_out)
    for name in names:
        if name not in existing and name not in map(paper_of, wanted):
            raise ConfigError(f"{source}: figures: '{name}' has no figure of the scale '{scale}'")
    models, checkpoints, published, titles = _models(folder / MODELS, scale)
    training = folder / "training.yaml"
    sections = read_config(training)
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
        figures=_figures(folder, wanted, contents, existing, scale),
        wanted=wanted,
        left_out=left_out,
        preregistrations=read_preregistrations(folder),
    )


def given_settings(pairs: Sequence[str], option: str, files: Sequence[Path] = ()) -> dict[str, Any]:
    """Keys of config.yaml with new values, from a command line. What is given later has priority.

    Args:
        pairs: "KEY=VALUE", with a value in YAML.
        option: the option that gives them, for errors.
        files: YAML files, which are read first.

    Raises:
        ConfigError: a pair has no "=", or something is not valid YAML.
    """
    settings: dict[str, Any] = {}
    for file in files:
        settings = _merged(settings, read_config(file))
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"{option} {pair}: expected KEY=VALUE")
        settings = _merged(settings, {key: parse_yaml(text, f"{option} {key}", ConfigError)})
    return settings


def require_config(folder: Path) -> None:
    """Raise ConfigError if there is no config folder."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; start the command in the clone, or give --config")


def figure_targets(folder: Path) -> tuple[str, ...]:
    """The targets that have a file in config/figures, in natural order (lg_fig2 before lg_fig11).

    Raises:
        ConfigError: there is no config folder.
    """
    require_config(folder)
    return tuple(sorted((path.stem for path in (folder / "figures").glob("*.yaml")), key=natural))


def targets_of(folder: Path, names: Sequence[str], scale: str) -> tuple[str, ...]:
    """The figures that names mean (`figures_named`), without those that the scale does not have.

    A scale that inherits has the figures that give it seeds of their own. So it never reads seeds that were read
    before.

    Raises:
        ConfigError: a name is unknown, or the file of a figure is broken.
    """
    targets = figures_named(names, figure_targets(folder), str(folder))
    left_out = _left_out({target: read_config(_figure_file(folder, target)) for target in targets}, scale)
    return tuple(target for target in targets if target not in left_out)


def _left_out(contents: Mapping[str, Mapping[str, Any]], scale: str) -> tuple[str, ...]:
    return tuple(target for target, content in contents.items() if not _takes_part(content, scale))


def _takes_part(content: Mapping[str, Any], scale: str) -> bool:
    seeds = content.get("seeds")
    return scale not in INHERITED or (isinstance(seeds, dict) and scale in seeds)


def _figure_file(folder: Path, target: str) -> Path:
    return folder / "figures" / f"{target}.yaml"


def _workflow(
    folder: Path,
    existing: tuple[str, ...],
    scale: str | None,
    figures: Sequence[str] | None,
    overrides: Mapping[str, Any],
) -> tuple[WorkflowConfig, str]:
    """The workflow configuration, and its source for errors."""
    path = folder / "config.yaml"
    given = dict(overrides)
    if scale is not None:
        given["scale"] = scale
    if figures is not None:
        given["figures"] = list(figures)
    written = read_config(path)
    content = _merged(written, given)
    wanted = content.get("figures", ALL)
    if isinstance(wanted, list) and ALL in wanted:
        figures_named([str(name) for name in wanted], existing, f"{path}: figures")
        wanted = content["figures"] = ALL
    changed = sorted(key for key in given if written.get(key) != content[key])
    source = f"{path} with {', '.join(changed)} given" if changed else str(path)
    if (isinstance(wanted, str) and wanted != ALL) or not wanted:
        raise ConfigError(
            f"{source}: figures: expected 'all' or a list of figures such as [lg_fig5], got {shown(wanted)}"
        )
    return WorkflowConfig.parse(content, source), source


def _merged(written: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`written` with the given values. A section keeps the keys that are not given, as with `snakemake --config`."""
    content = dict(written)
    for key, value in given.items():
        own = written.get(key)
        content[key] = _merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return content


def _figures(
    folder: Path,
    wanted: tuple[str, ...],
    contents: Mapping[str, Mapping[str, Any]],
    existing: tuple[str, ...],
    scale: str,
) -> dict[str, FigureSpec]:
    """The wanted figures, and all figures that they collect from, wanted or not."""
    figures = {target: _figure(_figure_file(folder, target), contents[target], scale) for target in wanted}
    for target in wanted:
        for other in figures[target].collect:
            where = f"{_figure_file(folder, target)}: collect"
            if other not in existing:
                raise ConfigError(f"{where}: unknown figure '{other}'; {nearest(other, existing)}")
            if other not in figures:
                path = _figure_file(folder, other)
                figures[other] = _figure(path, read_config(path), scale)
            if figures[other].collect:
                raise ConfigError(f"{where}: '{other}' has 'collect' itself; name the figures that it collects from")
    return figures


def _figure(path: Path, content: Mapping[str, Any], scale: str) -> FigureSpec:
    target = path.stem
    if re.fullmatch(TARGET, target) is None:
        paper, _, name = target.partition("_")
        valid = f"{paper if name else 'x'}_{re.sub('[^A-Za-z0-9]', '', name or target)}"
        raise ConfigError(
            f"{path}: the file's name is the target: expected a paper, '_', then letters and digits only, such as "
            f"{valid if re.fullmatch(TARGET, valid) else 'x_mine'}.yaml"
        )
    if not _takes_part(content, scale):
        raise ConfigError(
            f"{path}: seeds: no value for the scale '{scale}', which needs unread seeds; add {scale}: [...]"
        )
    content = {"target": target} | choose_scale(content, scale, str(path))
    if content["target"] != target:
        raise ConfigError(f"{path}: target: expected '{target}', the name of the file, got {shown(content['target'])}")
    return FigureSpec.parse(content, str(path))


def _each(
    entries: Any, path: Path, section: str, scale: str, parse: Callable[[str, Any, Path], T]
) -> dict[str, T | ConfigError]:
    """Parse every entry of a section. An entry without a value for this scale keeps its error for later."""
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
    """Parse a file in which the key of each entry is its name."""

    def parse(name: str, content: Any, path: Path) -> T:
        if not isinstance(content, dict) or "name" in content:
            raise ConfigError(f"{path}: {name}: expected a mapping without 'name', which is its key")
        return kind(content | {"name": name}, f"{path}: {name}")

    return _each(read_config(path), path, "", scale, parse)


def _models(
    path: Path, scale: str
) -> tuple[ConfigSection[ModelSpec], dict[str, CheckpointSpec], dict[str, PublishedSpec], dict[str, str]]:
    """models.yaml: models that figures train, checkpoints, and the published weights and titles of models."""
    checkpoints: dict[str, CheckpointSpec] = {}
    published: dict[str, PublishedSpec] = {}
    titles: dict[str, str] = {}
    models: dict[str, ModelSpec | ConfigError] = {}
    for name, entry in _named(path, _model_or_checkpoint, scale).items():
        if isinstance(entry, CheckpointSpec):
            checkpoints[name] = entry
            models[name] = ConfigError(
                f"{path}: '{name}' is a checkpoint ({entry.checkpoint}), not a model. Name it as 'checkpoint' of an "
                f"arm, or make its targets {' and '.join(entry.targets)}"
            )
        elif isinstance(entry, ConfigError):
            models[name] = entry
        else:
            models[name] = entry.model
            titles[name] = entry.title or " and ".join(dict.fromkeys(mixer.taxonomy.system for mixer in entry.mixers()))
            if entry.published is not None:
                published[name] = entry.published
    return ConfigSection("model", models), checkpoints, published, titles


def _model_or_checkpoint(content: Any, source: str) -> NamedModel | CheckpointSpec:
    """The keys decide which it is: only a checkpoint names its own text."""
    kind = CheckpointSpec if _is_checkpoint(content) else NamedModel
    return kind.parse(content, source)


def _is_checkpoint(content: Any) -> bool:
    return isinstance(content, dict) and not content.keys().isdisjoint(("checkpoint", "text"))


def _recipe(name: str, content: Any, path: Path) -> TrainingSpec:
    if isinstance(content, dict) and "initial_state" in content:
        raise ConfigError(f"{path}: recipes.{name}.initial_state: not a key of a recipe; set it in the arm of a figure")
    return TrainingFile.parse({"recipes": {name: content}}, str(path)).recipes[name]


def _initial_state(name: str, content: Any, path: Path) -> InitialStateSpec:
    return TrainingFile.parse({"initial_states": {name: content}}, str(path)).initial_states[name]
