"""The spec of linear attention."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.sublayer import ActivationMemory, linear

FeatureMap = Literal["elu_plus_one", "identity", "relu", "favor", "hedgehog"]


class LinearAttentionMixer(MixerSpecBase):
    """Linear attention (Katharopoulos et al. 2020, eq. 9-12), with the feature maps of bn Appendix B.

    - `elu_plus_one`: the map of Katharopoulos et al.
    - `identity`: with `normalizer: false`, the simple linear attention of mi (eq. 12, figure 5)
    - `favor`: positive orthogonal random features of Performer (Choromanski et al. 2020, hyperbolic cosine)
    - `hedgehog`: a learned map with an exponential (Zhang et al. 2024)
    """

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Linear attention",
        paper="Katharopoulos et al. 2020",
        scan="gated_scan",
        decay="none",
        complex=False,
        recurrence=(
            r"$S_t = S_{t-1} + \phi(k_t) v_t^T$",
            r"$y_t = \phi(q_t)^T S_t \; (/ \, \phi(q_t)^T z_t)$",
        ),
    )
    kind: Literal["linear_attention"] = "linear_attention"
    n_heads: PositiveInt = 1  # H, number of heads
    key_dim: PositiveInt | None = None  # dimensions of a key before the feature map; default D / H
    value_dim: PositiveInt | None = None  # V, dimensions of a value; default D / H
    feature_map: FeatureMap = "elu_plus_one"  # phi, which is applied to queries and keys
    n_features: PositiveInt | None = None  # for `favor`: random directions, with two features each; default key_dim
    normalizer: bool = True  # divide by phi(q)^T z_t, where z_t is the sum of phi(k)
    normalizer_eps: PositiveFloat = 1e-6  # added to the denominator; `favor`, whose sums vary much, adds 1e-24 of it
    chunk: PositiveInt = 32  # tokens in a chunk of the scan; changes the speed, not the result

    @model_validator(mode="after")
    def _feature_map_fits(self) -> LinearAttentionMixer:
        if self.normalizer and self.feature_map == "identity":
            raise ValueError("the identity feature map has no positive denominator: set normalizer to false")
        if self.n_features is not None and self.feature_map != "favor":
            raise ValueError(f"n_features belongs to the feature map favor, not to {self.feature_map}")
        return self

    def check(self, d_model: int) -> None:
        if (self.key_dim is None or self.value_dim is None) and d_model % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide d_model {d_model}, or give key_dim and value_dim")

    def heads(self, d_model: int) -> int:
        return self.n_heads

    @property
    def has_normalizer(self) -> bool:
        return self.normalizer

    def features(self, d_model: int) -> int:
        """K: dimensions of a head's keys after the feature map."""
        key_dim = self.key_dim or d_model // self.n_heads
        if self.feature_map == "favor":
            return 2 * (self.n_features or key_dim)
        return 2 * key_dim if self.feature_map == "hedgehog" else key_dim

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (self.n_heads, self.features(d_model), self.value_dim or d_model // self.n_heads)

    def parameters(self, d_model: int) -> int:
        D, H, V = d_model, self.n_heads, self.state_shape(d_model)[-1]
        key_dim = self.key_dim or D // H
        learned_map = H * key_dim * key_dim if self.feature_map == "hedgehog" else 0
        return linear(D, 2 * H * key_dim + H * V) + linear(H * V, D) + learned_map  # q, k, v; output

    def state_numbers(self, d_model: int, context: int) -> int:
        H, K, _ = self.state_shape(d_model)
        return self.recurrent_state_numbers(d_model) + self.normalizer * H * K  # z_t, the sum of phi(k)

    def activation_memory(self, d_model: int) -> ActivationMemory:
        H, K, V = self.state_shape(d_model)
        a_token = 4 * H * K + 3 * H * V  # q and k before and after the feature map; v, y, undivided y
        return ActivationMemory(a_token, border=self.recurrent_state_numbers(d_model), chunk=self.chunk, zeros=False)
