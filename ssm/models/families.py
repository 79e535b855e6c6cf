"""The model families in the documentation: how ssm reads each, and whether `ssm extend` can train it.

The help of the command line and docs/reference/families.md are made from this data, without torch. `make families`
runs the commands of the documentation on a tiny model of each family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Why `ssm extend` refuses a model. The error of the command has these words.
NO_STATE = "it has no recurrent state to start from: it keeps keys and values of its tokens"
NO_PASS = "its forward pass over several tokens ignores the state that it should start from"
OWN_CACHE = "it keeps its states in its own type of cache, not in transformers' DynamicCache"


@dataclass(frozen=True)
class Family:
    """Models of one architecture in the files of one library."""

    name: str  # as in the documentation
    library: str  # that writes the files
    format: str | None = None  # in ssm.models.formats; None: ssm uses transformers' own forward pass
    model_type: str | None = None  # in config.json, for models that use transformers' forward pass
    why_not_extend: str | None = None  # None: `ssm extend` works

    @property
    def title(self) -> str:
        """Its name, with the library if transformers has files of the same name.

        >>> FAMILIES["Mamba"].title, FAMILIES["Mamba of mamba_ssm"].title
        ('Mamba', 'Mamba of mamba_ssm')
        """
        shared = self.library == "mamba_ssm" or self.format in ("fla_mamba", "fla_mamba2")
        return f"{self.name} of {self.library}" if shared else self.name


FAMILIES: dict[str, Family] = {
    family.title: family
    for family in (
        Family("Mamba", "transformers", "mamba"),
        Family("Mamba-2", "transformers", "mamba2"),
        Family("Falcon Mamba", "transformers", "falcon_mamba"),
        Family("RWKV-4", "transformers", "rwkv"),
        Family("RecurrentGemma", "transformers", "recurrent_gemma"),
        Family("Qwen3-Next", "transformers", "qwen3_next"),
        Family("Qwen3.5", "transformers", "qwen3_5"),
        Family("Qwen3.5 with experts", "transformers", "qwen3_5_moe"),
        Family("Kimi Linear", "transformers", "kimi_linear"),
        Family("GPT-NeoX", "transformers", "gpt_neox", why_not_extend=NO_STATE),
        Family("Mistral", "transformers", "mistral", why_not_extend=NO_STATE),
        Family("Mistral with a sliding window", "transformers", "mistral"),
        Family("Mamba", "fla", "fla_mamba"),
        Family("Mamba-2", "fla", "fla_mamba2"),
        Family("GLA", "fla", "fla_gla"),
        Family("RWKV-6", "fla", "fla_rwkv6"),
        Family("RWKV-7", "fla", "fla_rwkv7"),
        Family("RetNet", "fla", "fla_retnet"),
        Family("DeltaNet", "fla", "fla_deltanet"),
        Family("Gated DeltaNet", "fla", "fla_gated_deltanet"),
        Family("KDA", "fla", "fla_kda"),
        Family("Mamba", "mamba_ssm", "mamba_ssm"),
        Family("Mamba-2", "mamba_ssm", "mamba_ssm"),
        Family("hybrids", "mamba_ssm", "mamba_ssm"),
        Family("Bamba", "transformers", model_type="bamba"),
        Family("Falcon-H1", "transformers", model_type="falcon_h1"),
        Family("Zamba2", "transformers", model_type="zamba2"),
        Family("Nemotron-H", "transformers", model_type="nemotron_h"),
        Family("Granite 4", "transformers", model_type="granitemoehybrid"),
        Family("OLMo Hybrid", "transformers", model_type="olmo_hybrid"),
        Family("Llama", "transformers", model_type="llama", why_not_extend=NO_STATE),
        Family("LFM2", "transformers", model_type="lfm2", why_not_extend=NO_STATE),
        Family("Jamba", "transformers", model_type="jamba", why_not_extend=NO_PASS),
        Family("MiniMax", "transformers", model_type="minimax", why_not_extend=NO_PASS),
        Family("xLSTM", "transformers", model_type="xlstm", why_not_extend=OWN_CACHE),
    )
}


def what_is_read() -> str:
    """The families that can be diagnosed, for the help of `ssm diagnose`."""
    own = "; ".join(
        f"{_listed([family for family in _own() if family.library == library])} ({library})"
        for library in dict.fromkeys(family.library for family in _own())
    )
    others = _listed([family for family in FAMILIES.values() if family.format is None])
    return (
        f"ssm's own code reads {own}. ssm reads any other causal model of transformers through its own forward pass. "
        f"Tested are {others}."
    )


def what_is_extended() -> str:
    """The families that cannot be extended, with reasons, for the help of `ssm extend`."""
    without = {why: _listed(_refused(why)) for why in (NO_STATE, NO_PASS, OWN_CACHE)}
    return (
        "`ssm extend` works with all of these, except the following. "
        f"{without[NO_STATE]} have no recurrent state. "
        f"The forward pass of {without[NO_PASS]} over several tokens ignores the state. "
        f"{without[OWN_CACHE]} has its own type of cache."
    )


def _own() -> list[Family]:
    return [family for family in FAMILIES.values() if family.format is not None]


def _refused(why: str) -> list[Family]:
    return [family for family in FAMILIES.values() if family.why_not_extend == why]


def _listed(families: Sequence[Family]) -> str:
    *names, last = [family.name for family in families]
    return f"{', '.join(names)} and {last}" if names else last
