"""The model families in the documentation: how ssm reads each, and whether `ssm extend` can train it.

The help of the command line and docs/reference/families.md are made from this data, without torch. `make families`
runs the commands of the documentation on a tiny model of each family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
        """Its name, with the library if another library uses the same name.

        >>> FAMILIES["Mamba"].title, FAMILIES["Mamba of mamba_ssm"].title
        ('Mamba', 'Mamba of mamba_ssm')
        """
        return f"{self.name} of {self.library}" if self.library == "mamba_ssm" else self.name


def _of(
    library: str, key: Literal["format", "model_type"], why_not_extend: str | None = None, /, **names: str
) -> list[Family]:
    """Families of one library. `key` says whether the names of arguments are formats or model_types."""
    return [Family(name, library, why_not_extend=why_not_extend, **{key: value}) for value, name in names.items()]


FAMILIES: dict[str, Family] = {
    family.title: family
    for family in (
        *_of(
            "transformers",
            "format",
            mamba="Mamba",
            mamba2="Mamba-2",
            falcon_mamba="Falcon Mamba",
            rwkv="RWKV-4",
            recurrent_gemma="RecurrentGemma",
            qwen3_next="Qwen3-Next",
            qwen3_5="Qwen3.5",
            qwen3_5_moe="Qwen3.5 with experts",
            kimi_linear="Kimi Linear",
        ),
        *_of("transformers", "format", NO_STATE, gpt_neox="GPT-NeoX", mistral="Mistral"),
        Family("Mistral with a sliding window", "transformers", "mistral"),
        *_of(
            "fla",
            "format",
            fla_gla="GLA",
            fla_rwkv6="RWKV-6",
            fla_rwkv7="RWKV-7",
            fla_retnet="RetNet",
            fla_deltanet="DeltaNet",
            fla_gated_deltanet="Gated DeltaNet",
            fla_kda="KDA",
        ),
        Family("Mamba", "mamba_ssm", "mamba_ssm"),
        Family("Mamba-2", "mamba_ssm", "mamba_ssm"),
        Family("hybrids", "mamba_ssm", "mamba_ssm"),
        *_of(
            "transformers",
            "model_type",
            bamba="Bamba",
            falcon_h1="Falcon-H1",
            zamba2="Zamba2",
            nemotron_h="Nemotron-H",
            granitemoehybrid="Granite 4",
            olmo_hybrid="OLMo Hybrid",
        ),
        *_of("transformers", "model_type", NO_STATE, llama="Llama", lfm2="LFM2"),
        *_of("transformers", "model_type", NO_PASS, jamba="Jamba", minimax="MiniMax"),
        *_of("transformers", "model_type", OWN_CACHE, xlstm="xLSTM"),
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
        "`ssm extend` works with all of these, with three kinds of exceptions. "
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
