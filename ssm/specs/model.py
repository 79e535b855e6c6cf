"""Models: a backbone of residual blocks with interchangeable mixers. Letters are those of the papers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.base import Name, Spec
from ssm.specs.ffn import FfnSpec
from ssm.specs.mixers import MixerSpec
from ssm.specs.sublayer import SublayerSpec

Layer = Annotated[int, Field(strict=False)]  # number of a layer, from 0


class ModelSpec(Spec):
    """A language model: embedding, `n_layers` pre-norm residual blocks, final norm, linear head without bias."""

    __slots__ = ("_placed",)  # what `mixers` returns: not in __dict__, where a serializer takes it for a field
    _placed: tuple[MixerSpec, ...]

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name", "published_parameters"})
    later: ClassVar[frozenset[str]] = frozenset({"ffn_at"})
    name: Name
    d_model: Annotated[int, Field(gt=0, le=2**17)]  # D, width of the residual stream
    n_layers: Annotated[int, Field(gt=0, le=1000)]  # L, number of blocks
    mixer: MixerSpec  # the mixer of each block
    mixer_at: dict[Layer, MixerSpec] = {}  # for hybrids: layer number (from 0) and its mixer, if it has another one
    ffn: FfnSpec | None = None  # feed-forward layer of each block; without it, blocks have only a mixer
    ffn_at: dict[Layer, FfnSpec] = {}  # layer number (from 0) and its feed-forward layer, if it has another one
    parallel_residual: bool = False  # x + mixer(norm(x)) + ffn(norm'(x)), as in GPT-NeoX
    # `rms`: RMSNorm; `layer`: LayerNorm with a bias; `rms_from_one`: RMSNorm scaled by 1 + weight, as in Gemma.
    norm: Literal["rms", "layer", "rms_from_one"] = "rms"
    embedding_norm: bool = False  # norm after the embedding, as in RWKV
    embedding_scale: PositiveFloat = 1.0  # factor on the embedding's output, sqrt(D) in Gemma
    logit_cap: PositiveFloat | None = None  # c: logits become c tanh(logits / c), as in Gemma
    tie_embeddings: bool = True  # embedding and head share their weights
    vocab_multiple: PositiveInt = 1  # the rows of the embedding are rounded up to a multiple of this
    norm_eps: PositiveFloat = 1e-5  # epsilon of the norms
    peak_lr: PositiveFloat  # peak learning rate for models of this size (lg Table 2)
    published_parameters: PositiveInt | None = None  # number of parameters stated in the paper

    @model_validator(mode="after")
    def _parts_fit(self) -> ModelSpec:
        named = {"mixer": self.mixer} | {f"mixer_at.{layer}": mixer for layer, mixer in self.mixer_at.items()}
        for where, mixer in named.items():
            try:
                mixer.check(self.d_model)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        for layer, mixer in enumerate(self.mixers()):
            if mixer.follows not in (None, self.mixers()[0].kind):
                where = f"mixer_at.{layer}" if layer in self.mixer_at else "mixer"
                raise ValueError(f"{where}: layer {layer} reads the values of layer 0, which must be {mixer.follows}")
        for where, layers in (("mixer_at", self.mixer_at), ("ffn_at", self.ffn_at)):
            for layer in layers:
                if not 0 <= layer < self.n_layers:
                    raise ValueError(f"{where}.{layer}: layers are numbered 0 to {self.n_layers - 1}")
        if self.parallel_residual and self.ffn is None:
            raise ValueError("parallel_residual: needs an ffn, which runs in parallel to the mixer")
        return self

    def embedding_rows(self, vocab_size: int) -> int:
        """Rows of the embedding and of the head: the vocabulary, rounded up with unused rows."""
        return -(-vocab_size // self.vocab_multiple) * self.vocab_multiple

    def block(self, layer: int) -> dict[str, Any]:
        """The settings of a layer (from 1), with those of its mixer and ffn: field -> plain value."""
        settings: dict[str, Any] = {"d_model": self.d_model}
        for name, part in (("mixer", self.mixers()[layer - 1]), ("ffn", self.ffns()[layer - 1])):
            content = {} if part is None else part.canonical_content()
            settings |= {name: content.get("kind"), **{f"{name}.{key}": value for key, value in content.items()}}
        return settings | {"parallel_residual": self.parallel_residual, "norm": self.norm, "norm_eps": self.norm_eps}

    def mixers(self) -> tuple[MixerSpec, ...]:
        """The mixer of every layer, in order."""
        try:
            return self._placed
        except AttributeError:  # a plan reads it tens of thousands of times
            placed = tuple(mixer.at(layer) for layer, mixer in enumerate(self._given()))
            object.__setattr__(self, "_placed", placed)
            return placed

    def _given(self) -> list[MixerSpec]:
        """The mixer of every layer as the file has it, before `MixerSpecBase.at`."""
        return [self.mixer_at.get(layer, self.mixer) for layer in range(self.n_layers)]

    def ffns(self) -> tuple[FfnSpec | None, ...]:
        """The ffn of every layer, in order."""
        return tuple(self.ffn_at.get(layer, self.ffn) for layer in range(self.n_layers))

    def sublayers(self) -> tuple[SublayerSpec, ...]:
        """The mixers and ffns of all blocks, mixers first."""
        return (*self.mixers(), *(ffn for ffn in self.ffns() if ffn is not None))

    @property
    def caches(self) -> tuple[int, ...]:
        """The layers (from 0) whose state is a cache of tokens: attention."""
        return tuple(layer for layer, mixer in enumerate(self.mixers()) if mixer.taxonomy.decay == "cache")

    @property
    def recurrent(self) -> tuple[int, ...]:
        """The layers (from 0) with a recurrent state: all but attention."""
        return tuple(layer for layer, mixer in enumerate(self.mixers()) if mixer.taxonomy.decay != "cache")

    @property
    def decaying(self) -> tuple[int, ...]:
        """The layers (from 0) in which every state has a decay: linear recurrences with a diagonal A_t."""
        return tuple(i for i, mixer in enumerate(self.mixers()) if mixer.taxonomy.diagonal and not mixer.averages)

    def mapped(self, mask: bool = False) -> tuple[int, ...]:
        """The layers (from 0) that have an attention map, or its mask."""
        return tuple(i for i, mixer in enumerate(self.mixers()) if (mixer.has_mask if mask else mixer.has_map))

    @property
    def endless(self) -> tuple[int, ...]:
        """The layers (from 0) whose state grows with every token: attention without a window."""
        return tuple(layer for layer, mixer in enumerate(self.mixers()) if mixer.grows)

    def main_mixer(self) -> MixerSpec:
        """The mixer of most layers, as the file has it; in a tie, the first one."""
        return max(self._given(), key=self._given().count)
