"""Models: a backbone of equal blocks over interchangeable mixers. Fields carry the papers' letters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ssm.specs.base import Name, Spec
from ssm.specs.ffn import FfnSpec
from ssm.specs.mixers import MixerSpec
from ssm.specs.sublayer import SublayerSpec

Layer = Annotated[int, Field(strict=False)]  # counted from 0


class ModelSpec(Spec):
    """A language model: embedding, `n_layers` pre-norm residual blocks, a last norm, a linear head without bias."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"name", "published_parameters"})
    later: ClassVar[frozenset[str]] = frozenset({"ffn_at"})
    name: Name
    d_model: Annotated[int, Field(gt=0, le=2**17)]  # D
    n_layers: Annotated[int, Field(gt=0, le=1000)]  # L; far beyond any that was published
    mixer: MixerSpec
    mixer_at: dict[Layer, MixerSpec] = {}  # hybrids: the layers that have another mixer
    ffn: FfnSpec | None = None  # the second half of every block; None: the mixer is all
    ffn_at: dict[Layer, FfnSpec] = {}  # the layers that have another one
    parallel_residual: bool = False  # x + mixer(norm(x)) + ffn(norm'(x)), as GPT-NeoX
    norm: Literal["rms", "layer", "rms_from_one"] = "rms"  # LayerNorm has a bias; from_one: 1 + weight scales, as Gemma
    embedding_norm: bool = False  # a norm behind the embedding, as RWKV
    embedding_scale: PositiveFloat = 1.0  # of what the embedding gives, sqrt(D) in Gemma
    logit_cap: PositiveFloat | None = None  # c: logits become c tanh(logits / c), as Gemma; None: they are left alone
    tie_embeddings: bool = True
    vocab_multiple: PositiveInt = 1  # the embedding's rows are rounded up to this multiple
    norm_eps: PositiveFloat = 1e-5
    peak_lr: PositiveFloat  # the peak learning rate that belongs to this size (lg Table 2)
    published_parameters: PositiveInt | None = None  # the size that its paper states

    @model_validator(mode="after")
    def _sane(self) -> ModelSpec:
        named = {"mixer": self.mixer} | {f"mixer_at.{layer}": mixer for layer, mixer in self.mixer_at.items()}
        for where, mixer in named.items():
            try:
                mixer.check(self.d_model)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        for layer, mixer in enumerate(self.mixers()):
            if mixer.follows not in (None, self.mixers()[0].kind):
                where = f"mixer_at.{layer}" if layer in self.mixer_at else "mixer"
                raise ValueError(f"{where}: layer {layer} reads the values of layer 0, which has to be {mixer.follows}")
        for where, layers in (("mixer_at", self.mixer_at), ("ffn_at", self.ffn_at)):
            for layer in layers:
                if not 0 <= layer < self.n_layers:
                    raise ValueError(f"{where}.{layer}: layers are numbered 0 to {self.n_layers - 1}")
        if self.parallel_residual and self.ffn is None:
            raise ValueError("parallel_residual: needs an ffn, which runs beside the mixer")
        return self

    def embedding_rows(self, vocab_size: int) -> int:
        """Rows of the embedding, and of the head: those past the vocabulary round it up and are read by nobody."""
        return -(-vocab_size // self.vocab_multiple) * self.vocab_multiple

    def block(self, layer: int) -> dict[str, Any]:
        """What a layer (counted from 1) is built from: field -> plain value, those of its mixer and ffn too."""
        found: dict[str, Any] = {"d_model": self.d_model}
        for name, part in (("mixer", self.mixers()[layer - 1]), ("ffn", self.ffns()[layer - 1])):
            content = {} if part is None else part.canonical_content()
            found |= {name: content.get("kind"), **{f"{name}.{key}": value for key, value in content.items()}}
        return found | {"parallel_residual": self.parallel_residual, "norm": self.norm, "norm_eps": self.norm_eps}

    def mixers(self) -> tuple[MixerSpec, ...]:
        """The mixer of every layer, in order."""
        return self._placed

    @cached_property  # a plan asks tens of thousands of times
    def _placed(self) -> tuple[MixerSpec, ...]:
        return tuple(mixer.at(layer) for layer, mixer in enumerate(self._given()))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_placed", None)  # of the layers before the update
        return copied

    def _given(self) -> list[MixerSpec]:
        """The same, each before it knows its layer."""
        return [self.mixer_at.get(layer, self.mixer) for layer in range(self.n_layers)]

    def ffns(self) -> tuple[FfnSpec | None, ...]:
        """The ffn of every layer, in order."""
        return tuple(self.ffn_at.get(layer, self.ffn) for layer in range(self.n_layers))

    def sublayers(self) -> tuple[SublayerSpec, ...]:
        """The halves of all blocks, mixers first."""
        return (*self.mixers(), *(ffn for ffn in self.ffns() if ffn is not None))

    @property
    def endless(self) -> tuple[int, ...]:
        """The layers, counted from 0, whose state grows with every token: attention without a window."""
        return tuple(layer for layer, mixer in enumerate(self.mixers()) if mixer.grows)

    def main_mixer(self) -> MixerSpec:
        """The mixer that most layers were given, as it was given; of several, the one that comes first."""
        return max(self._given(), key=self._given().count)
