"""Weights that were trained elsewhere, as entries of config/models.yaml: a user's own, and those of a named model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator

from ssm.base.strict_parsing import problem_words
from ssm.specs.base import Name, Spec
from ssm.specs.diagnosis import DiagnosisSpec
from ssm.specs.extension import (
    OF_A_REPAIR,
    OF_A_STATE,
    OF_TRAINING,
    POLICIES,
    STEPS,
    USUAL_POLICY,
    ExtensionSpec,
    how,
    needless,
)
from ssm.specs.repairs import SPECS as REPAIRS
from ssm.specs.repairs.base import OfLayers

ANY_CONTEXT = 2048  # stands for the model's own where an entry gives none and is checked
Paths = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False, min_length=1)]
DIAGNOSIS = ("tokenizer", "context", "length", "tolerance", "budget", "sequences", "passkey", "precision", "seed")
HOW = (*OF_A_STATE, *OF_A_REPAIR, *OF_TRAINING)
EXTENSION = ("held_out", "policy", *HOW, "measure", "in_context_tolerance")
if TYPE_CHECKING:
    Policy = str
else:  # the registries are the only list
    Policy = Literal[POLICIES]


class PublishedSpec(Spec):
    """The weights of a named model that somebody has published: what an arm with `checkpoint: published` is."""

    checkpoint: Annotated[str, Field(min_length=1)]  # as of CheckpointSpec; a revision behind @ pins a name of the hub
    context: PositiveInt  # T, tokens that they were trained on


class CheckpointSpec(Spec):
    """Weights that were trained elsewhere, and the text that they are read on.

    The keys are the options of `ssm diagnose` and `ssm extend`; what is None is left to these. Relative paths start
    where snakemake runs.
    """

    name: Name
    checkpoint: Annotated[str, Field(min_length=1)]  # a folder, a file of weights, a name of the hub, or a run of ssm
    text: Paths  # files, folders or globs that the model has not seen
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    context: PositiveInt | None = None  # T
    length: PositiveInt | None = None  # the tokens up to which it is read
    tolerance: float | None = None
    budget: Annotated[float, Field(gt=0)] = 10.0  # minutes of a diagnosis
    sequences: int | None = None
    passkey: bool = True
    precision: Literal["float32", "bfloat16"] | None = None
    seed: int | None = None
    held_out: Paths | None = None  # the extension measures on these; None: on a part of `text`
    policy: Policy = USUAL_POLICY
    p_zero: float | None = None
    sigma: float | None = None
    by: Literal["model", "layer"] | None = None
    steps: int | None = None
    lr: float | None = None
    batch_tokens: int | None = None
    micro_batch_tokens: int | None = None
    activation_checkpointing: bool = False
    control: bool = False
    measure: Literal["far_perplexity", "paired_ratio"] | None = None
    in_context_tolerance: float | None = None

    @field_validator("name")
    @classmethod
    def _a_folder_and_a_target(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError("a checkpoint's name is that of a folder and of targets: letters, digits, '.', '_', '-'")
        return name

    @model_validator(mode="after")
    def _as_asked_of_the_command_line(self) -> CheckpointSpec:
        """What the command line would refuse is refused here, before a job starts."""
        context = self.context or ANY_CONTEXT
        length = self.length if self.length is not None and self.context is not None else 2 * context
        diagnosis = {"context": context, "length": length, **self._given("tolerance", "sequences")}
        options, choice = self._given(*HOW), self._given("measure", "in_context_tolerance")
        unused = needless(self.policy, options)
        if unused is not None:
            why = ": it trains nothing" if self.trains_nothing else ""
            raise ValueError(f"policy '{self.policy}' has no use for the key {unused}{why}")
        content = how(self.policy, options) | choice
        try:
            ExtensionSpec.model_validate({"diagnosis": DiagnosisSpec.model_validate(diagnosis), **content})
        except ValidationError as error:
            raise ValueError(self._in_own_words(error)) from None
        return self

    @property
    def trains_nothing(self) -> bool:
        """Its extension is a repair without training."""
        return self.policy in REPAIRS

    @property
    def training_steps(self) -> int:
        """Of its extension, an arm."""
        return 0 if self.trains_nothing else self.steps or STEPS

    def trials(self, layers: int) -> int:
        """Of a repair's numbers, and the model as it is; `layers` of it can be repaired."""
        repair = REPAIRS[self.policy].model_validate({"kind": self.policy, **self._given(*OF_A_REPAIR)})
        assert isinstance(repair, OfLayers)
        return 1 + len(repair.tried) * (1 + layers * (repair.by == "layer"))

    @property
    def targets(self) -> tuple[str, str]:
        """What the workflow calls its diagnosis and its extension."""
        return f"diagnose_{self.name}", f"extend_{self.name}"

    @property
    def diagnose_words(self) -> tuple[str, ...]:
        """The arguments of `ssm diagnose`, but for --out, --device and --threads."""
        return ("diagnose", *self._words(DIAGNOSIS))

    @property
    def extend_words(self) -> tuple[str, ...]:
        """The arguments of `ssm extend`, but for --out, --device and --threads."""
        return ("extend", *self._words(DIAGNOSIS + EXTENSION))

    def _words(self, options: tuple[str, ...]) -> tuple[str, ...]:
        at_home = self.checkpoint.startswith("~")
        words = [str(Path(self.checkpoint).expanduser()) if at_home else self.checkpoint, "--text", *self.text]
        for name in options:
            value, option = getattr(self, name), f"--{name.replace('_', '-')}"
            if name == "passkey":
                words += [] if value else ["--no-passkey"]
            elif isinstance(value, tuple):
                words += [option, *value]
            elif value is True:
                words.append(option)
            elif value is not None and value is not False:
                words += [option, str(value)]
        return tuple(words)

    def _given(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _in_own_words(self, error: ValidationError) -> str:
        """A problem of the specs that this one stands for, under this one's keys."""
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][-1] if problem["loc"] else "")
        if problem["type"] == "missing":
            return f"policy '{self.policy}' needs the key {key}"
        if problem["type"] == "unknown_key":
            return f"policy '{self.policy}' has no key {problem['ctx']['key']}"
        text = problem_words(problem)
        return f"{key}: {text}" if key in type(self).model_fields else text
