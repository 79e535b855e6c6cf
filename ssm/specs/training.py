"""Training recipes and runs. Interventions differ only in their initial state."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ssm.base.errors import ConfigError, shown
from ssm.specs.base import Ascending, Spec, slug
from ssm.specs.data import DataSpec
from ssm.specs.foreign import AnyModel, ForeignSpec
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.model import ModelSpec
from ssm.specs.repairs import RepairSpec
from ssm.specs.tasks import AnyData

TOKENS_PER_PARAMETER = 20  # 1x Chinchilla (Hoffmann et al. 2022); lg: 45m at 25x is 22.5B tokens


class Budget(Spec):
    """The length of a training. Give exactly one of the three keys."""

    # Number of optimizer steps. 0: the model stays as it is initialized, or as its checkpoint has it.
    steps: NonNegativeInt | None = None
    tokens: PositiveInt | None = None  # number of training tokens
    chinchilla: PositiveFloat | None = None  # training tokens, as a multiple of 20 tokens per parameter

    @model_validator(mode="after")
    def _exactly_one(self) -> Budget:
        if sum(value is not None for value in (self.steps, self.tokens, self.chinchilla)) != 1:
            raise ValueError("give exactly one of steps, tokens, chinchilla")
        return self

    def optimizer_steps(self, batch_tokens: int, parameters: int) -> int:
        """Number of optimizer steps; at least one if the budget is in tokens."""
        if self.steps is not None:
            return self.steps
        tokens = self.tokens or (self.chinchilla or 0) * TOKENS_PER_PARAMETER * parameters
        return max(1, round(tokens / batch_tokens))


Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingSpec(Spec):
    """A recipe for pre-training or post-training with AdamW.

    The defaults are those of lg App. B.1: betas (0.9, 0.95), clipping at 1.0, cosine schedule with 10% warm-up, peak
    weight decay 0.01.
    """

    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"micro_batch_tokens", "compile", "activation_checkpointing", "snapshots"}
    )
    context: PositiveInt  # T, tokens of a training sequence
    batch_tokens: PositiveInt  # tokens of an optimizer step, a multiple of T
    micro_batch_tokens: PositiveInt | None = None  # tokens of a forward pass; without it, `batch_tokens`
    budget: Budget  # how long to train
    lr_scale: PositiveFloat = 1.0  # factor on the model's `peak_lr`; lg uses 0.1 for post-training
    schedule: Literal["cosine", "constant"] = "cosine"  # learning rate after the warm-up
    warmup: NonNegativeFloat = 0.1  # below 1: fraction of the steps; from 1: number of steps
    min_lr: NonNegativeFloat = 1e-5  # learning rate at the end of the cosine
    weight_decay: NonNegativeFloat = 0.01  # peak; only matrices decay
    weight_decay_schedule: Literal["with_lr", "constant"] = "with_lr"  # `with_lr`: proportional to the learning rate
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)  # decay rates of AdamW's two averages
    eps: PositiveFloat = 1e-8  # epsilon of AdamW
    clip_norm: PositiveFloat = 1.0  # gradients are clipped to this norm
    precision: Literal["float32", "bfloat16"] = "float32"  # `bfloat16`: autocast; scans stay in float32
    compile: bool = False  # use torch.compile
    activation_checkpointing: bool = False  # recompute blocks in the backward pass: less memory, more time
    initial_state: InitialStateSpec = ZeroState()  # the states from which training sequences start
    # fractions of the steps after which weights are saved, in ascending order
    snapshots: Annotated[tuple[float, ...], Field(strict=False), Ascending] = ()

    @model_validator(mode="after")
    def _sizes_fit(self) -> TrainingSpec:
        if self.batch_tokens % self.context:
            raise ValueError(f"batch_tokens {self.batch_tokens} must be a multiple of context {self.context}")
        micro = self.micro_batch_tokens
        if micro is not None and (micro % self.context or self.batch_tokens % micro):
            raise ValueError(
                f"micro_batch_tokens {micro} must be a multiple of context {self.context} and divide "
                f"batch_tokens {self.batch_tokens}"
            )
        if any(not 0 < fraction < 1 for fraction in self.snapshots):
            raise ValueError("snapshots are fractions between 0 and 1")
        return self

    @classmethod
    def of_zero_steps(cls, context: int, source: str) -> TrainingSpec:
        """A recipe for weights that were not trained here, of which only the context T is known.

        Raises:
            ConfigError: T is not a valid number of tokens; the error begins with `source`.
        """
        return cls.parse({"context": context, "batch_tokens": context, "budget": {"steps": 0}}, source)

    @property
    def batch_size(self) -> int:
        """B: sequences in an optimizer step."""
        return self.batch_tokens // self.context

    @property
    def micro_batch_size(self) -> int:
        """Sequences in a forward pass."""
        return (self.micro_batch_tokens or self.batch_tokens) // self.context

    @property
    def passes(self) -> int:
        """Cost of a training token in forward passes: one forward, two backward, and one if blocks are recomputed."""
        return 4 if self.activation_checkpointing else 3


def _layer(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not (number or value == "own" or value is None):
        raise ValueError("expected a layer's number (1, 2, ...) or 'own'")
    return value


Layer = Annotated[int | Literal["own"], BeforeValidator(_layer)]  # of the parent of a run


class CheckpointRef(Spec):
    """Weights that were trained elsewhere."""

    later: ClassVar[frozenset[str]] = frozenset({"fingerprint"})
    name: str  # name on the hub (owner/model@revision), folder or file; or the name of the model
    fingerprint: str | None = None  # of the files; None: unknown until the import, which records it in the origin


class RunSpec(Spec):
    """One training run, from a fresh initialization or from the final weights of its parent.

    A run of zero steps provides weights for other runs to start from:

    - without `checkpoint` and `repair`: the initialized model;
    - with `checkpoint`: weights that were trained elsewhere. `model` and `training.context` describe them. `data` has
      the tokenizer with which they are read here;
    - with `repair`: the weights of the parent, repaired without training.
    """

    not_hashed: ClassVar[frozenset[str]] = frozenset({"seed"})
    later: ClassVar[frozenset[str]] = frozenset({"layer", "checkpoint", "repair"})
    model: AnyModel
    data: AnyData
    training: TrainingSpec
    seed: int
    parent: RunSpec | None = None
    # Weights to take from the parent. None: all. A number: every layer of a fresh model starts as the parent's layer
    # of this number, counted from 1 (mi Section 6: S_j := T_i). "own": every layer starts as the layer of its number.
    layer: Layer | None = None
    checkpoint: CheckpointRef | None = None  # only with zero steps
    repair: RepairSpec | None = None  # only with zero steps

    @model_validator(mode="after")
    def _foreign_models_have_limits(self) -> RunSpec:
        """Models of transformers keep their forward pass, and ssm cannot change their layers."""
        if not isinstance(self.model, ForeignSpec):
            return self
        what, training = f"'{self.model.name}' is a model of transformers", self.training
        if self.parent is None and self.checkpoint is None:
            raise ValueError(f"model: {what}; only `ssm extend` trains it, from a checkpoint")
        if self.layer is not None or self.repair is not None:
            raise ValueError(f"{'repair' if self.layer is None else 'layer'}: {what}, whose layers ssm cannot change")
        if training.compile or training.activation_checkpointing:
            name = "compile" if training.compile else "activation_checkpointing"
            raise ValueError(f"{name}: {what}, which then takes no initial state")
        if training.initial_state.resets:
            raise ValueError(f"initial_state: {what}, whose state cannot be reset inside a window")
        return self

    @model_validator(mode="after")
    def _zero_steps_provide_weights(self) -> RunSpec:
        if self.checkpoint is not None and self.training.budget.steps != 0:
            raise ValueError("a checkpoint needs training.budget.steps 0: it was not trained here")
        if self.layer is not None and self.parent is None:
            raise ValueError("layer: needs a parent, the run with this layer")
        if self.training.budget.steps == 0 and self.parent is not None and self.layer is None and self.repair is None:
            raise ValueError("a run of zero steps takes no parent, because it would equal the parent")
        return self

    @model_validator(mode="after")
    def _repair_is_valid(self) -> RunSpec:
        if self.parent is not None and self.parent.repair is not None:
            raise ValueError(f"starts from a repaired model ({self.parent.repair.kind}); name a trained model")
        if self.repair is None:
            return self
        if self.parent is None or self.layer is not None or self.training.budget.steps != 0:
            raise ValueError("a repair needs a parent, all of its weights, and training.budget.steps 0")
        if self.training.context != self.parent.training.context:
            raise ValueError(f"a repair has the context of its parent, {self.parent.training.context}")
        if not isinstance(self.data, DataSpec) or not self.data.choice:
            raise ValueError(
                "the numbers of a repair are chosen on text that is set aside, and "
                f"'{self.data.name}' has none: give it 'choice'"
            )
        for trained in self.parent.trained_on:
            if not self.data.kept_from(trained, choice=True):
                raise ValueError(f"'{trained.name}' trains on documents that '{self.data.name}' sets aside for choices")
        self.repair.check(self.own_model)
        return self

    @model_validator(mode="after")
    def _same_as_parent(self) -> RunSpec:
        if self.parent is not None and self.layer is None:
            if self.parent.model != self.model:
                raise ValueError(f"the model '{self.model.name}' differs from its parent's '{self.parent.model.name}'")
            if self.parent.data.channels != self.data.channels:
                raise ValueError(f"the inputs of '{self.data.name}' differ from the parent's '{self.parent.data.name}'")
            if self.parent.data.vocab_size != self.data.vocab_size:
                raise ValueError(
                    f"the vocabulary of '{self.data.name}' ({self.data.vocab_size}) differs from the parent's "
                    f"({self.parent.data.vocab_size})"
                )
        return self

    @model_validator(mode="after")
    def _layers_fit(self) -> RunSpec:
        """The parent's layers must have the same settings. The rest of the two models may differ."""
        if self.parent is None or self.layer is None:
            return self
        given, own = self.parent.own_model, self.own_model
        if self.layer == "own":
            if given.n_layers != own.n_layers:
                sizes = f"{given.n_layers} layers, '{own.name}' {own.n_layers}"
                raise ValueError(f"layer: '{given.name}' has {sizes}; name one of them")
        elif self.layer > given.n_layers:
            raise ValueError(f"layer: '{given.name}' has layers 1 to {given.n_layers}, not {self.layer}")
        parts, own_parts = (list(zip(model.mixers(), model.ffns(), strict=True)) for model in (given, own))
        compared = set()
        for number, taken in enumerate(self.taken, 1):
            pair = parts[taken - 1], own_parts[number - 1]
            if pair in compared:  # blocks of one model differ only in their mixers and ffns
                continue
            compared.add(pair)
            parents, own_block = given.block(taken), own.block(number)
            for key in parents | own_block:
                there, here = parents.get(key), own_block.get(key)
                if there != here:
                    raise ValueError(
                        f"layer: layer {taken} of '{given.name}' cannot be layer {number} of '{own.name}': {key} "
                        f"{shown(there)} there, {shown(here)} here"
                    )
        return self

    @model_validator(mode="after")
    def _examples_fit(self) -> RunSpec:
        context, needed = self.training.context, self.data.least_context
        if context < needed:
            raise ValueError(f"examples of '{self.data.name}' need a context of {needed}, the recipe has {context}")
        return self

    @model_validator(mode="after")
    def _initial_state_fits(self) -> RunSpec:
        """A cache has no mean and no variance, and noise has no normalizer. A cache without a window starts empty."""
        state = self.training.initial_state
        wants = f"initial_state '{state.policy}' needs {state.needs}; "
        if state.needs == "a recurrence in every layer":
            for layer in self.model.caches:
                at = f"layer {layer} of '{self.model.name}'"
                raise ValueError(f"{wants}{at} is attention, whose state is a cache of tokens")
            for layer, mixer in enumerate(self.model.mixers()):
                if mixer.has_normalizer:
                    at = f"layer {layer} of '{self.model.name}'"
                    raise ValueError(f"{wants}{at} divides by a normalizer, which would start from zero")
        if state.needs == "a state of fixed size" and len(self.model.endless) == self.model.n_layers:
            layers = f"all layers of '{self.model.name}'"
            raise ValueError(f"{wants}{layers} are attention without a window, whose cache would grow with every batch")
        return self

    @property
    def own_model(self) -> ModelSpec:
        """The model, if it has ssm's own layers.

        Raises:
            ConfigError: it is a model of transformers.
        """
        if isinstance(self.model, ForeignSpec):
            raise ConfigError(f"'{self.model.name}' is a model of transformers, which figures cannot use")
        return self.model

    @property
    def taken(self) -> tuple[int, ...]:
        """For every layer of the model, the number of the parent's layer that it starts as; () without `layer`."""
        if self.layer is None:
            return ()
        own = range(1, self.model.n_layers + 1)
        return tuple(own) if self.layer == "own" else (self.layer,) * len(own)

    @property
    def trained_on(self) -> tuple[DataSpec, ...]:
        """The texts that trained the weights: of this run and of its ancestors, as far as they were trained here."""
        inherited = () if self.parent is None else self.parent.trained_on
        text = self.data.text if self.training.budget.steps else None
        return inherited if text is None else (*inherited, text)

    @property
    def origin(self) -> RunSpec:
        """The first run among the ancestors; the run itself without a parent."""
        return self if self.parent is None else self.parent.origin

    @property
    def start(self) -> str:
        """An id of the initial weights: runs with the same seed and the same id started from the same weights.

        It names the first ancestor; or the parent and the fresh model, if only layers of the parent are taken.
        """
        if self.parent is None:
            return self.id
        if self.layer is None:
            return self.parent.start
        return f"{self.parent.id}/{self.layer}/{self.model.name}/{self.data.vocab_size}"

    @property
    def published(self) -> str | None:
        """The name of the checkpoint that the run descends from. None: it was trained here from the start."""
        checkpoint = self.origin.checkpoint
        return None if checkpoint is None else checkpoint.name

    @property
    def stage(self) -> int:
        """0 for pre-training, 1 for its post-training, and so on."""
        return 0 if self.parent is None else self.parent.stage + 1

    @property
    def id(self) -> str:
        """Readable words and the hash of the content: the name of the run's folder."""
        state = self.training.initial_state
        stage = state.policy
        if self.checkpoint is not None:
            stage = "imported"
        elif self.repair is not None:
            stage = self.repair.words
        elif self.training.budget.steps == 0:
            stage = "initialization"
        elif isinstance(state, ZeroState):
            stage = "" if self.parent is None or self.layer is not None else "control"
            if state.order == "stream":
                stage += " stream"
        if self.layer is not None:
            stage = f"layer {self.layer} {stage}"
        data = self.data.name if self.data.answers else ""
        return (
            slug(self.model.name, data, f"T{self.training.context}", stage, f"s{self.seed}") + f"-{self.content_hash}"
        )
