"""The models in config/models.yaml have the sizes of the papers, and equal the published checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from ssm.models.formats.format import Format, differences
from ssm.models.formats.gpt_neox import GPT_NEOX
from ssm.models.formats.mamba2 import MAMBA2
from ssm.models.formats.mamba_ssm import MAMBA_SSM
from ssm.models.formats.mistral import MISTRAL
from ssm.plan import load_config, make_plan
from ssm.plan.parameters import parameter_count
from ssm.plan.read import read_config
from ssm.specs.mixers import SPECS
from ssm.specs.model import ModelSpec

CONFIG = Path(__file__).parents[2] / "config"
FILE = read_config(CONFIG / "models.yaml")
ALL: dict[str, dict[str, Any]] = {
    name: {key: value for key, value in fields.items() if key not in ("published", "title")}
    for name, fields in FILE.items()
}
NAMED = {name: fields for name, fields in ALL.items() if fields.get("published_parameters")}
TABLE_2 = {
    *(f"mamba1-{size}" for size in ("130m", "370m")),
    *(f"mamba2-{size}" for size in ("45m", "85m", "130m", "370m", "780m", "1.3b")),
    *(f"gla-{size}" for size in ("70m", "120m", "360m")),
}
LG = TABLE_2 | {"rwkv6-70m"}  # its figure 10
LS = {
    *(f"mamba1-{size}" for size in ("30m", "180m")),
    *(f"s5-{size}" for size in ("12m", "30m", "37m", "127m", "140m", "370m")),
    "gru-30m",
}
PYTHIA = {"pythia-160m", "pythia-1.4b"}
DEPTHS = {f"mamba1-depth{depth}-{size}m" for depth in (16, 24, 32, 48, 64, 72) for size in (140, 550)}
SEVEN = {"mamba-codestral-7b": 32_768, "mistral-7b": 32_000}  # and their vocabularies
BN = PYTHIA | DEPTHS | {"mamba1-1.4b", *SEVEN}


def count(name: str) -> int:
    """Number of parameters with the vocabulary of gpt-neox-20b, or with its own."""
    return parameter_count(ModelSpec.parse({"name": name} | ALL[name], name), SEVEN.get(name, 50_277))


@pytest.mark.parametrize("name", NAMED)
def test_published_sizes(name: str) -> None:
    """Exact for Pythia, Codestral and Mistral; within 6% for lg, which rounds its sizes; within 2% for others."""
    tolerance = 0 if name in PYTHIA | SEVEN.keys() else 0.06 if name in LG else 0.02
    assert count(name) == pytest.approx(NAMED[name]["published_parameters"], rel=tolerance)


def test_all_sizes_of_the_papers_are_named() -> None:
    assert set(NAMED) == LG | LS | BN


def test_the_middle_sizes_of_bn_figure_4() -> None:
    """Table 4 has the ranges 250-400M and 400-550M: one model of every depth in each, with its learning rate."""
    for depth in (16, 24, 32, 48, 64, 72):
        for size, low, high, lr in ((275, 250, 400, 1.5e-3), (410, 400, 550, 1.25e-3)):
            name = f"mamba1-depth{depth}-{size}m"
            assert low < count(name) / 1e6 < high
            assert ALL[name]["peak_lr"] == lr


@pytest.mark.parametrize("scale", ["smoke", "gpu", "paper"])
def test_the_depths_of_bn_figure_4_are_of_equal_size_and_budget(scale: str) -> None:
    """Models of one size differ only in shape: parameters within 4%, and equal tokens and batches."""
    plan = make_plan(load_config(CONFIG, scale=scale, figures=["bn_fig4"]))
    (figure,) = plan.figures.values()
    sizes: dict[object, set[object]] = {}
    for one in figure.series:
        run = plan.runs[one.run]
        size = one.axes["parameters"]
        assert parameter_count(run.model, run.data.vocab_size) == pytest.approx(size, rel=0.04)
        assert run.training.context == one.axes["context"]
        sizes.setdefault(size, set()).add((run.training.budget, run.training.batch_tokens, run.model.peak_lr))
    assert len(sizes) > 1
    assert all(len(recipes) == 1 for recipes in sizes.values())


def test_every_system_has_a_laptop_model() -> None:
    """They have equal widths, to compare their costs."""
    laptop = [fields for name, fields in ALL.items() if name.endswith("-laptop")]
    assert {fields["d_model"] for fields in laptop} == {64}
    assert {fields["mixer"]["kind"] for fields in laptop} == set(SPECS)


MAMBA = {"vocab_size": 50_277, "rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True}
PYTHIA_KEYS = {"vocab_size": 50_304, "hidden_act": "gelu", "rotary_pct": 0.25, "layer_norm_eps": 1e-5}
# config.json of published checkpoints: state-spaces, EleutherAI, Mistral AI. Missing keys are the library's defaults.
PUBLISHED: dict[str, tuple[Format, dict[str, Any]]] = {
    **{
        name: (MAMBA_SSM, MAMBA | {"d_model": width, "n_layer": layers, "ssm_cfg": {}, "pad_vocab_size_multiple": 8})
        for name, width, layers in (("mamba1-130m", 768, 24), ("mamba1-370m", 1024, 48), ("mamba1-1.4b", 2048, 48))
    },
    **{
        name: (MAMBA_SSM, MAMBA | {"d_model": width, "n_layer": layers, "ssm_cfg": {"layer": "Mamba2"},
                                   "pad_vocab_size_multiple": 16})
        for name, width, layers in (
            ("mamba2-130m", 768, 24), ("mamba2-370m", 1024, 48), ("mamba2-780m", 1536, 48), ("mamba2-1.3b", 2048, 48)
        )
    },
    "pythia-160m": (GPT_NEOX, PYTHIA_KEYS | {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                                             "intermediate_size": 3072}),
    "pythia-1.4b": (GPT_NEOX, PYTHIA_KEYS | {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                                             "intermediate_size": 8192}),
    "mamba-codestral-7b": (MAMBA2, transformers.Mamba2Config().to_dict()),
    "mistral-7b": (MISTRAL, transformers.MistralConfig().to_dict() | {"rms_norm_eps": 1e-5}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_equal_ours(name: str) -> None:
    """An import at the papers' size compares the same, but it needs a network."""
    form, config = PUBLISHED[name]
    imported, vocab_size = form.spec(config, name, name)
    named = ModelSpec.parse({"name": name} | ALL[name], name)
    assert differences(named, imported) == []
    tokens = read_config(CONFIG / "data.yaml")["pile_unseen"]["tokenizer"]["vocab_size"]
    rows = -(-tokens // named.vocab_multiple) * named.vocab_multiple
    assert vocab_size == SEVEN.get(name, rows if name in PYTHIA else tokens)


def test_all_published_models_are_compared() -> None:
    assert {name for name, fields in FILE.items() if "published" in fields} == PUBLISHED.keys()
