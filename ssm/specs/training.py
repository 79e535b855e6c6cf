"""Training: one recipe for pre-training and post-training; interventions differ by their initial state alone."""

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
from ssm.specs.base import Spec, slug
from ssm.specs.data import DataSpec
from ssm.specs.foreign import AnyModel, ForeignSpec
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.model import ModelSpec
from ssm.specs.repairs import RepairSpec
from ssm.specs.tasks import AnyData

TOKENS_PER_PARAMETER = 20  # 1x Chinchilla (Hoffmann et al. 2022); lg: 45m at 25x is 22.5B tokens


class Budget(Spec):
    """How long to train: exactly one of the three."""

    steps: NonNegativeInt | None = None  # 0: as initialized, or weights from elsewhere (RunSpec.checkpoint)
    tokens: PositiveInt | None = None
    chinchilla: PositiveFloat | None = None  # multiples of 20 tokens per parameter

    @model_validator(mode="after")
    def _exactly_one(self) -> Budget:
        if sum(value is not None for value in (self.steps, self.tokens, self.chinchilla)) != 1:
            raise ValueError("give exactly one of steps, tokens, chinchilla")
        return self

    def optimizer_steps(self, batch_tokens: int, parameters: int) -> int:
        """Optimizer steps for a batch of `batch_tokens` and a model of `parameters`; without `steps` at least one."""
        if self.steps is not None:
            return self.steps
        tokens = self.tokens or (self.chinchilla or 0) * TOKENS_PER_PARAMETER * parameters
        return max(1, round(tokens / batch_tokens))


Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingSpec(Spec):
    """lg App. B.1: AdamW (0.9, 0.95), clip 1.0, cosine with 10% warm-up, peak weight decay 0.01."""

    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"micro_batch_tokens", "compile", "activation_checkpointing", "snapshots"}
    )
    context: PositiveInt  # T, tokens a training sequence
    batch_tokens: PositiveInt  # tokens an optimizer step; a multiple of T
    micro_batch_tokens: PositiveInt | None = None  # tokens a forward pass (gradient accumulation); default: the batch
    budget: Budget
    lr_scale: PositiveFloat = 1.0  # times the model's peak_lr; lg post-trains at a tenth
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: NonNegativeFloat = 0.1  # below 1: that fraction of the steps; from 1: so many steps
    min_lr: NonNegativeFloat = 1e-5  # where the cosine ends
    weight_decay: NonNegativeFloat = 0.01  # the peak; on matrices only
    weight_decay_schedule: Literal["with_lr", "constant"] = "with_lr"  # with_lr: scaled as lr / peak lr
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    eps: PositiveFloat = 1e-8
    clip_norm: PositiveFloat = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: autocast; scans stay in float32
    compile: bool = False  # torch.compile
    activation_checkpointing: bool = False  # recompute each block in the backward pass: less memory, more time
    initial_state: InitialStateSpec = ZeroState()
    snapshots: Annotated[tuple[float, ...], Field(strict=False)] = ()  # weights kept at these fractions of the steps

    @model_validator(mode="after")
    def _sane(self) -> TrainingSpec:
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
        if list(self.snapshots) != sorted(set(self.snapshots)):
            raise ValueError("snapshots must rise")
        return self

    @classmethod
    def of_zero_steps(cls, context: int, source: str) -> TrainingSpec:
        """Of weights that were not trained here: all that is known is T.

        Raises:
            ConfigError: it is no number of tokens; `source` is the error's first word.
        """
        return cls.parse({"context": context, "batch_tokens": context, "budget": {"steps": 0}}, source)

    @property
    def batch_size(self) -> int:
        """B: sequences an optimizer step."""
        return self.batch_tokens // self.context

    @property
    def micro_batch_size(self) -> int:
        """Sequences a forward pass."""
        return (self.micro_batch_tokens or self.batch_tokens) // self.context

    @property
    def passes(self) -> int:
        """Forward passes that a token takes: its own, twice as much back, and one more where blocks are recomputed."""
        return 4 if self.activation_checkpointing else 3


def _layer(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not (number or value == "own" or value is None):
        raise ValueError(f"expected a layer's number (1, 2, ...) or 'own', got {shown(value)}")
    return value


Layer = Annotated[int | Literal["own"], BeforeValidator(_layer)]  # of a run's parent


class CheckpointRef(Spec):
    """Weights that came from elsewhere."""

    later: ClassVar[frozenset[str]] = frozenset({"fingerprint"})
    name: str  # where they are: a name of the hub (owner/model@revision), a folder, a file; or what they are called
    fingerprint: str | None = None  # of their files; None: not known before they are imported, and then in the origin


class RunSpec(Spec):
    """One training run: from a fresh initialization, or from the final weights of another run.

    Or a run of zero steps: a model as it is initialized, or with `checkpoint` weights that were trained elsewhere, for
    other runs to start from. Of the training of these `model` and `training.context` are known; `data` says in which
    tokens they are read here. With `repair` it is another run's weights, repaired without training.
    """

    not_hashed: ClassVar[frozenset[str]] = frozenset({"seed"})  # one of many alike
    later: ClassVar[frozenset[str]] = frozenset({"layer", "checkpoint", "repair"})
    model: AnyModel
    data: AnyData
    training: TrainingSpec
    seed: int
    parent: RunSpec | None = None
    # What it takes of its parent. None: all weights. A number: every layer of a fresh model is the parent's layer of
    # that number, counted from 1 (mi Section 6: S_j := T_i). "own": each is the one of its own number.
    layer: Layer | None = None
    checkpoint: CheckpointRef | None = None  # of a run of zero steps alone
    repair: RepairSpec | None = None  # likewise: its parent's weights, repaired without training

    @model_validator(mode="after")
    def _a_foreign_model_is_handed_on(self) -> RunSpec:
        """What transformers' forward pass cannot do, and what ssm does with layers of its own alone."""
        if not isinstance(self.model, ForeignSpec):
            return self
        what, training = f"'{self.model.name}' is a model of transformers", self.training
        if self.parent is None and self.checkpoint is None:
            raise ValueError(f"model: {what}, which is trained from a checkpoint alone, by `ssm extend`")
        if self.layer is not None or self.repair is not None:
            raise ValueError(f"{'repair' if self.layer is None else 'layer'}: {what}, whose layers are not ssm's")
        if training.compile or training.activation_checkpointing:
            name = "compile" if training.compile else "activation_checkpointing"
            raise ValueError(f"{name}: {what}, which cannot be given a state then")
        if training.initial_state.resets:
            raise ValueError(f"initial_state: {what}, whose state is not reset inside a window")
        return self

    @model_validator(mode="after")
    def _zero_steps_start_anew(self) -> RunSpec:
        if self.checkpoint is not None and self.training.budget.steps != 0:
            raise ValueError("a checkpoint takes training.budget.steps 0: it was not trained here")
        if self.layer is not None and self.parent is None:
            raise ValueError("layer: needs a parent, the run whose layer it is")
        if self.training.budget.steps == 0 and self.parent is not None and self.layer is None and self.repair is None:
            raise ValueError("a run of zero steps has no parent: it would be the parent itself")
        return self

    @model_validator(mode="after")
    def _a_repair_is_no_training(self) -> RunSpec:
        if self.parent is not None and self.parent.repair is not None:
            raise ValueError(f"starts from a model that was repaired ({self.parent.repair.kind}); name a trained one")
        if self.repair is None:
            return self
        if self.parent is None or self.layer is not None or self.training.budget.steps != 0:
            raise ValueError("a repair takes a parent, all of its weights, and training.budget.steps 0")
        if self.training.context != self.parent.training.context:
            raise ValueError(f"a repair keeps its parent's context of {self.parent.training.context}")
        if not isinstance(self.data, DataSpec) or not self.data.choice:
            raise ValueError(
                f"a repair is chosen on text that is set aside, and '{self.data.name}' has none: give it 'choice'"
            )
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
        """The layers that it takes are built as its own are; nothing else of the two models need be alike."""
        if self.parent is None or self.layer is None:
            return self
        given, own = self.parent.own_model, self.own_model
        if self.layer == "own":
            if given.n_layers != own.n_layers:
                sizes = f"{given.n_layers} layers, '{own.name}' {own.n_layers}"
                raise ValueError(f"layer: '{given.name}' has {sizes}; name one of them")
        elif self.layer > given.n_layers:
            raise ValueError(f"layer: '{given.name}' has layers 1 to {given.n_layers}, not {self.layer}")
        compared = set()
        for number, taken in enumerate(self.taken, 1):
            pair = given.mixers()[taken - 1], own.mixers()[number - 1]
            if pair in compared:  # all else of a block is alike in all layers
                continue
            compared.add(pair)
            theirs, mine = given.block(taken), own.block(number)
            for key in theirs | mine:
                there, here = theirs.get(key), mine.get(key)
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
            raise ValueError(f"examples of '{self.data.name}' take a context of {needed}, the recipe's is {context}")
        return self

    @model_validator(mode="after")
    def _a_cache_is_no_noise(self) -> RunSpec:
        """A cache has no mean and no variance. Without a window it starts empty, beside layers that hand a state on."""
        state = self.training.initial_state
        wants = f"initial_state '{state.policy}' needs {state.needs}; "
        if isinstance(self.model, ForeignSpec):
            attention = list(self.model.caches)
        else:
            mixers = enumerate(self.model.mixers())
            attention = [layer for layer, mixer in mixers if isinstance(mixer, AttentionMixer)]
        if state.needs == "a recurrence in every layer" and attention:
            layer = f"layer {attention[0]} of '{self.model.name}'"
            raise ValueError(f"{wants}{layer} is attention, whose state is a cache of tokens")
        if state.needs == "a state of fixed size" and len(self.model.endless) == self.model.n_layers:
            layers = f"all layers of '{self.model.name}'"
            raise ValueError(f"{wants}{layers} are attention without a window, whose cache would grow with every batch")
        return self

    @property
    def own_model(self) -> ModelSpec:
        """The model, of ssm's own layers.

        Raises:
            ConfigError: it is one of transformers.
        """
        if isinstance(self.model, ForeignSpec):
            raise ConfigError(f"'{self.model.name}' is a model of transformers, which no figure trains or measures")
        return self.model

    @property
    def taken(self) -> tuple[int, ...]:
        """Of every layer of the model, the number of the parent's layer that it starts as; none without `layer`."""
        if self.layer is None:
            return ()
        own = range(1, self.model.n_layers + 1)
        return tuple(own) if self.layer == "own" else (self.layer,) * len(own)

    @property
    def origin(self) -> RunSpec:
        """The run that was trained first of those whose weights or layers it goes on from; without a parent itself."""
        return self if self.parent is None else self.parent.origin

    @property
    def start(self) -> str:
        """What the weights are called that it goes on from: runs of one seed with the same name started alike.

        Of all weights they are those that were trained first; of layers the parent's own, in the fresh model.
        """
        if self.parent is None:
            return self.id
        if self.layer is None:
            return self.parent.start
        return f"{self.parent.id}/{self.layer}/{self.model.name}/{self.data.vocab_size}"

    @property
    def published(self) -> str | None:
        """What the weights are called that this run goes back to; None: all of its training was here."""
        checkpoint = self.origin.checkpoint
        return None if checkpoint is None else checkpoint.name

    @property
    def stage(self) -> int:
        """0 for pre-training, 1 for its post-training, and so on."""
        return 0 if self.parent is None else self.parent.stage + 1

    @property
    def id(self) -> str:
        """A readable slug and the content's hash: the name of the run's folder."""
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
