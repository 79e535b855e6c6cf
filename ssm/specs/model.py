"""Models: a backbone of equal blocks over interchangeable mixers. Fields carry the papers' letters."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssm.specs.base import Spec

Range = Annotated[tuple[float, float], Field(strict=False)]


class Mamba2Mixer(Spec):
    """Mamba-2 (Dao & Gu 2024, "Transformers are SSMs", Section 7; figure 6, sequential block without norm on B, C)."""

    kind: Literal["mamba2"] = "mamba2"
    d_state: PositiveInt = 128  # N
    head_dim: PositiveInt = 64  # P
    expand: PositiveInt = 2  # E; d_inner = E * d_model, and H = d_inner / P heads
    n_groups: PositiveInt = 1  # G; B and C are shared by H / G heads
    d_conv: PositiveInt = 4  # K, width of the causal convolution
    chunk: PositiveInt = 32  # Q, tokens per chunk of the scan: speed only, never the result
    a_range: Range = (1.0, 16.0)  # -A at initialization, uniform; (1, 1) with a tiny dt is the slow decay
    dt_range: Range = (1e-3, 0.1)  # dt at initialization, log-uniform
    dt_limit: Annotated[tuple[float, float | None], Field(strict=False)] = (0.0, None)  # dt is clamped; None: no limit

    @model_validator(mode="after")
    def _sane(self) -> Mamba2Mixer:
        for name, (low, high) in (("a_range", self.a_range), ("dt_range", self.dt_range)):
            if not 0 < low <= high:
                raise ValueError(f"{name} must be 0 < low <= high, got ({low}, {high})")
        if not 0 <= self.dt_limit[0] < (self.dt_limit[1] or math.inf):
            raise ValueError(f"dt_limit must be 0 <= low < high, got {self.dt_limit}")
        return self


# The mixers that exist. A second one makes this a union, discriminated by `kind`.
MixerSpec = Annotated[Mamba2Mixer, Field()]


class ModelSpec(Spec):
    """A language model: embedding, `n_layers` pre-norm residual blocks, a last RMSNorm, a linear head; no biases."""

    name: str
    d_model: PositiveInt  # D
    n_layers: PositiveInt  # L
    mixer: MixerSpec
    mixer_at: dict[
        Annotated[int, Field(strict=False)], MixerSpec
    ] = {}  # hybrids: the layers (counted from 0) that have another mixer
    tie_embeddings: bool = True
    vocab_multiple: PositiveInt = 1  # the embedding's rows are rounded up to this multiple
    norm_eps: PositiveFloat = 1e-5
    peak_lr: PositiveFloat  # the peak learning rate that belongs to this size (lg Table 2)
    published_parameters: PositiveInt | None = None  # the size that its paper states

    @model_validator(mode="after")
    def _sane(self) -> ModelSpec:
        named = {"mixer": self.mixer} | {f"mixer_at.{layer}": mixer for layer, mixer in self.mixer_at.items()}
        for where, mixer in named.items():
            d_inner = mixer.expand * self.d_model
            if d_inner % mixer.head_dim:
                raise ValueError(f"{where}: head_dim {mixer.head_dim} must divide expand * d_model = {d_inner}")
            if (d_inner // mixer.head_dim) % mixer.n_groups:
                raise ValueError(
                    f"{where}: n_groups {mixer.n_groups} must divide the {d_inner // mixer.head_dim} heads"
                )
        for layer in self.mixer_at:
            if not 0 <= layer < self.n_layers:
                raise ValueError(f"mixer_at.{layer}: layers are numbered 0 to {self.n_layers - 1}")
        return self

    def mixers(self) -> tuple[Mamba2Mixer, ...]:
        """The mixer of every layer, in order."""
        return tuple(self.mixer_at.get(layer, self.mixer) for layer in range(self.n_layers))
