"""Weights that were trained elsewhere, as entries of config/models.yaml: your own, or published ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, ValidationError, WithJsonSchema, field_validator, model_validator

from ssm.base.paths import home_expanded
from ssm.base.strict_parsing import option, problem_words
from ssm.specs.base import Name, Spec
from ssm.specs.diagnosis import DiagnosisSpec
from ssm.specs.diagnosis_defaults import BUDGET
from ssm.specs.extension import (
    INTERVENTIONS,
    POLICIES,
    POLICY_OPTIONS,
    REPAIR_OPTIONS,
    STEPS,
    STORED_REPAIRS,
    USUAL_POLICY,
    ExtensionSpec,
    Measure,
    policy_fields,
    unused_option,
)
from ssm.specs.repairs import SPECS as REPAIRS
from ssm.specs.repairs.base import OfLayers

ANY_CONTEXT = 2048  # used to check an entry without a context; the real one is read from the checkpoint
Paths = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False, min_length=1)]
READ = ("text_key", "tokenizer")
DIAGNOSIS = (*READ, "context", "length", "tolerance", "budget", "sequences", "passkey", "precision", "seed")
EXTENSION = ("held_out", "policy", *POLICY_OPTIONS, "measure", "in_context_tolerance")
if TYPE_CHECKING:
    Policy = str
else:  # the registries are the only list
    # Repairs that no checkpoint can hold pass: `ExtensionSpec` says why it refuses them.
    Policy = Annotated[Literal[POLICIES], WithJsonSchema({"enum": [*INTERVENTIONS, *STORED_REPAIRS], "type": "string"})]


class PublishedSpec(Spec):
    """The published weights of a named model. A figure uses them in an arm with `checkpoint: published`."""

    # Folder, weight file or name on the Hugging Face hub. `owner/model@revision` pins a revision.
    checkpoint: Annotated[str, Field(min_length=1)]
    context: PositiveInt  # T, tokens of a training sequence


class CheckpointSpec(Spec):
    """Weights that were trained elsewhere, and the text to read them on.

    The keys are the options of `ssm diagnose` and `ssm extend`, and without a value their defaults apply. Relative
    paths start in the folder where snakemake runs.
    """

    later: ClassVar[frozenset[str]] = frozenset({"text_key"})
    name: Name
    checkpoint: Annotated[str, Field(min_length=1)]  # folder, weight file, name on the hub, or folder of an ssm run
    text: Paths  # files, folders or globs with text that the model has not seen
    # JSON key or Parquet column with the text; default: `text`
    text_key: Annotated[str, Field(min_length=1)] | None = None
    # A tokenizer.json or its folder, a name on the hub, or `bytes`. By default, the tokenizer of the model.
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    context: PositiveInt | None = None  # T, the training context in tokens; by default from the checkpoint
    length: PositiveInt | None = None  # read up to this number of tokens; default: 16 contexts
    tolerance: float | None = None  # paired ratio of perplexities above which the model counts as broken; default 1.1
    budget: Annotated[float, Field(gt=0)] = BUDGET  # minutes for the measurements of a diagnosis
    sequences: int | None = None  # maximum number of windows; default 256
    passkey: bool = True  # also test retrieval: passkeys, needles and prompts of RULER
    # `bfloat16`: autocast; scans stay in float32, except in some models of transformers, such as MiniMax and xLSTM. By
    # default bfloat16 on a GPU, and float32 on a CPU and for these models.
    precision: Literal["float32", "bfloat16"] | None = None
    seed: int | None = None  # of the order of windows, the prompts of retrieval, and the training batches; default 1
    held_out: Paths | None = None  # files on which the extension is measured; by default, part of `text` is held out
    policy: Policy = USUAL_POLICY  # how to extend: an initial state for post-training, or a repair without training
    p_zero: float | None = None  # fraction of training sequences that start from the zero state
    sigma: float | None = None  # standard deviation of `random_noise`
    by: Literal["model", "layer"] | None = None  # repairs: one value for the model, or one for each layer
    steps: int | None = None  # optimizer steps of post-training; default 100
    lr: float | None = None  # peak learning rate; default: a tenth of the pre-training rate for models of this size
    batch_tokens: int | None = None  # tokens of an optimizer step; default: 32 contexts
    micro_batch_tokens: int | None = None  # tokens of a forward pass; default: at most 8,192
    activation_checkpointing: bool = False  # recompute blocks in the backward pass: less memory, more time
    control: bool = False  # also train the same number of steps from zero states
    # The extension keeps the checkpoint with the lowest value of this. Default: far_perplexity.
    measure: Measure | None = None
    in_context_tolerance: float | None = None  # allowed relative increase of the perplexity in context; default 0.02

    @field_validator("name")
    @classmethod
    def _a_folder_and_a_target(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError("the name becomes a folder and a target: use letters, digits, '.', '_' and '-'")
        return name

    @model_validator(mode="after")
    def _valid_for_the_command_line(self) -> CheckpointSpec:
        """Report errors of the command line's options here, before a job starts."""
        context = self.context or ANY_CONTEXT
        length = self.length if self.length is not None and self.context is not None else 2 * context
        diagnosis = {"context": context, "length": length, **self._given("tolerance", "sequences")}
        options, choice = self._given(*POLICY_OPTIONS), self._given("measure", "in_context_tolerance")
        unused = unused_option(self.policy, options)
        if unused is not None:
            name, why = unused
            raise ValueError(f"policy '{self.policy}' does not use the key {name}{why}")
        content = policy_fields(self.policy, options) | choice
        try:
            ExtensionSpec.model_validate({"diagnosis": DiagnosisSpec.model_validate(diagnosis), **content})
        except ValidationError as error:
            raise ValueError(self._message(error)) from None
        return self

    @property
    def trains_nothing(self) -> bool:
        """Whether the extension is a repair without training."""
        return self.policy in REPAIRS

    @property
    def training_steps(self) -> int:
        """Optimizer steps of each arm of the extension."""
        return 0 if self.trains_nothing else self.steps or STEPS

    def trials(self, layers: int) -> int:
        """Number of evaluations in the search of a repair, the unchanged model included.

        Args:
            layers: number of layers that can be repaired.
        """
        repair = REPAIRS[self.policy].model_validate({"kind": self.policy, **self._given(*REPAIR_OPTIONS)})
        assert isinstance(repair, OfLayers)
        return repair.trials_of(layers)

    @property
    def targets(self) -> tuple[str, str]:
        """Names of the diagnosis and of the extension in the workflow."""
        return f"diagnose_{self.name}", f"extend_{self.name}"

    @property
    def diagnose_words(self) -> tuple[str, ...]:
        """The arguments of `ssm diagnose`, without --out, --device and --threads."""
        return ("diagnose", *self._words(DIAGNOSIS))

    @property
    def extend_words(self) -> tuple[str, ...]:
        """The arguments of `ssm extend`, without --out, --device and --threads."""
        return ("extend", *self._words(DIAGNOSIS + EXTENSION))

    def _words(self, options: tuple[str, ...]) -> tuple[str, ...]:
        in_home_folder = self.checkpoint.startswith("~")
        words = [str(home_expanded(self.checkpoint)) if in_home_folder else self.checkpoint, "--text", *self.text]
        for name in options:
            value = getattr(self, name)
            if name == "passkey":
                words += [] if value else ["--no-passkey"]
            elif isinstance(value, tuple):  # paths: ssm extend would read a number as a share, and "-" as an option
                words += [option(name), *(f"./{path}" if re.match(r"[-+.\d]", path) else path for path in value)]
            elif value is True:
                words.append(option(name))
            elif value is not None and value is not False:
                words += [option(name), str(value)]
        return tuple(words)

    def _given(self, *names: str) -> dict[str, object]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _message(self, error: ValidationError) -> str:
        """The first problem of an `ExtensionSpec` or a `DiagnosisSpec`, with the keys of this spec."""
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][-1] if problem["loc"] else "")
        if problem["type"] == "missing":
            return f"policy '{self.policy}' needs the key {key}"
        text = problem_words(problem)
        return f"{key}: {text}" if key in type(self).model_fields else text
