"""A tiny model of every family, trained for some steps and saved with its own library's method.

The training is short. It only has to make the model better than chance, because a diagnosis has no verdict otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from models.formats import test_mamba_ssm as theirs_of_mamba_ssm
from models.formats.qwen import EXPERTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from ssm.models.foreign.kernels import without_kernels

CONTEXT, VOCABULARY = 16, 1024  # tokens
STEPS, BATCH, LR = 40, 16, 1e-2
DT, SLOW = 0.1, 0.05  # a state loses a share A dt per token

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
ATTENTION = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48,
}  # fmt: skip
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
DELTA = ATTENTION | HYBRID | {
    "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "max_position_embeddings": CONTEXT,
}  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    """How a model is made, computed and saved."""

    make: Callable[[], nn.Module]
    computing: Callable[[nn.Module], AbstractContextManager[None]]  # runs its forward pass without GPU kernels
    save: Callable[[nn.Module, Path], None]


@contextmanager
def _of_transformers(model: nn.Module) -> Iterator[None]:
    with without_kernels(sorted({type(module).__module__ for module in model.modules()})):
        yield


def _save_pretrained(model: nn.Module, folder: Path) -> None:
    model.save_pretrained(folder)  # type: ignore[operator]


def of_transformers(name: str, **config: Any) -> Tiny:
    """A class of transformers."""

    def make() -> nn.Module:
        model_class = getattr(transformers, f"{name}ForCausalLM")
        return model_class(model_class.config_class(**{"vocab_size": VOCABULARY} | SPECIAL | config))

    return Tiny(make, _of_transformers, _save_pretrained)


def of_fla(name: str, **config: Any) -> Tiny:
    """A class of fla."""

    def make() -> nn.Module:
        from models.formats import fla_on_cpu

        sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
        made = getattr(fla_on_cpu.fla.models, f"{name}Config")(**sizes | SPECIAL | config)
        return getattr(fla_on_cpu.fla.models, f"{name}ForCausalLM")(made).float()

    def computing(model: nn.Module) -> AbstractContextManager[None]:
        from models.formats import fla_on_cpu

        return fla_on_cpu.plain(model)

    return Tiny(make, computing, _save_pretrained)


def of_mamba_ssm(ssm_cfg: dict[str, Any], **changes: Any) -> Tiny:
    """A model in the file layout of mamba_ssm. The package itself needs a GPU."""
    config = theirs_of_mamba_ssm.config(ssm_cfg, **{"vocab_size": VOCABULARY, "n_layer": 2} | changes)

    def save(model: nn.Module, folder: Path) -> None:
        theirs_of_mamba_ssm.save(config, theirs_of_mamba_ssm.state_dict(model), folder)

    return Tiny(partial(theirs_of_mamba_ssm.peer_of, config), _of_transformers, save)


MODELS: dict[str, Tiny] = {
    "Mamba": of_transformers("Mamba", hidden_size=32, num_hidden_layers=2),
    "Mamba-2": of_transformers(
        "Mamba2", hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=8, n_groups=1, chunk_size=8
    ),
    "Falcon Mamba": of_transformers("FalconMamba", hidden_size=32, num_hidden_layers=2),
    "RWKV-4": of_transformers("Rwkv", hidden_size=32, num_hidden_layers=2, context_length=CONTEXT),
    "RecurrentGemma": of_transformers(
        "RecurrentGemma", **ATTENTION | {"num_hidden_layers": 3, "num_key_value_heads": 1, "lru_width": 32},
        attention_window_size=16,
    ),
    "Qwen3-Next": of_transformers("Qwen3Next", **DELTA | EXPERTS),
    "Qwen3.5": of_transformers("Qwen3_5", **DELTA),
    "Qwen3.5 with experts": of_transformers("Qwen3_5Moe", **DELTA | EXPERTS),
    "Kimi Linear": of_transformers(
        "KimiLinear", **ATTENTION | HYBRID | {"num_key_value_heads": 4}, kv_lora_rank=8, qk_nope_head_dim=8,
        qk_rope_head_dim=4, v_head_dim=8, linear_num_heads=2, linear_head_dim=8, num_local_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=12, n_group=1, topk_group=1, max_position_embeddings=CONTEXT,
    ),
    "GPT-NeoX": of_transformers("GPTNeoX", **ATTENTION),
    "Mistral": of_transformers("Mistral", **ATTENTION, sliding_window=None),
    "Mistral with a sliding window": of_transformers("Mistral", **ATTENTION, sliding_window=16),
    "Mamba of fla": of_fla("Mamba"),
    "Mamba-2 of fla": of_fla("Mamba2", head_dim=16, state_size=8, chunk_size=8),
    "GLA": of_fla("GLA", num_heads=2),
    "RWKV-6": of_fla("RWKV6", num_heads=2, expand_k=1.0, expand_v=1.0),
    "RWKV-7": of_fla(
        "RWKV7", head_dim=16, decay_low_rank_dim=4, a_low_rank_dim=4, v_low_rank_dim=4, gate_low_rank_dim=8
    ),
    "RetNet": of_fla("RetNet", num_heads=2),
    "DeltaNet": of_fla("DeltaNet", num_heads=2),
    "Gated DeltaNet": of_fla("GatedDeltaNet", num_heads=2, head_dim=12),
    "KDA": of_fla("KDA", num_heads=2, head_dim=8),
    "Mamba of mamba_ssm": of_mamba_ssm({}),
    "Mamba-2 of mamba_ssm": of_mamba_ssm(theirs_of_mamba_ssm.MAMBA2),
    "hybrids of mamba_ssm": of_mamba_ssm(
        theirs_of_mamba_ssm.MAMBA2, attn_layer_idx=[1],
        attn_cfg={"causal": True, "num_heads": 4, "head_dim": 8, "rotary_emb_dim": 8},
    ),
    "Llama": of_transformers("Llama", **ATTENTION),
    "Bamba": of_transformers("Bamba", **ATTENTION | MAMBA2, attn_layer_indices=[1]),
    "Falcon-H1": of_transformers("FalconH1", **ATTENTION | MAMBA2, mamba_d_ssm=64),
    "Zamba2": of_transformers(
        "Zamba2", **ATTENTION | {"num_key_value_heads": 4}, n_mamba_heads=4, mamba_headdim=16, mamba_d_state=8,
        mamba_ngroups=1, chunk_size=8, num_mem_blocks=1, adapter_rank=4,
        layers_block_type=["linear_attention", "hybrid"], use_mem_rope=True,
    ),
    "Nemotron-H": of_transformers(
        "NemotronH", hidden_size=32, layers_block_type=["linear_attention", "mlp", "full_attention"],
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=48, ssm_state_size=8,
        mamba_num_heads=4, mamba_head_dim=16, n_groups=1, chunk_size=8,
    ),
    "Granite 4": of_transformers(
        "GraniteMoeHybrid", **ATTENTION | MAMBA2 | HYBRID, num_local_experts=2, num_experts_per_tok=1,
        shared_intermediate_size=48,
    ),
    "OLMo Hybrid": of_transformers(
        "OlmoHybrid", **ATTENTION | HYBRID | {"num_key_value_heads": 4}, linear_num_key_heads=2,
        linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=16,
    ),
    "Jamba": of_transformers(
        "Jamba", **ATTENTION, num_experts=2, mamba_d_state=8, mamba_dt_rank=4, use_mamba_kernels=False,
        attn_layer_period=2, attn_layer_offset=1,
    ),
    "LFM2": of_transformers("Lfm2", **ATTENTION, layer_types=["conv", "full_attention"]),
    "MiniMax": of_transformers(
        "MiniMax", **ATTENTION | HYBRID, num_local_experts=2, num_experts_per_tok=1, block_size=8, head_dim=8
    ),
    "xLSTM": of_transformers(
        "xLSTM", hidden_size=128, num_hidden_layers=2, num_heads=2, qk_dim_factor=1.0, chunk_size=8,
        chunkwise_kernel="chunkwise--native_autograd", sequence_kernel="native_sequence__native", step_kernel="native",
        weight_mode="single",
    ),
}  # fmt: skip


def save(name: str, text: str, folder: Path) -> None:
    """Train a model of a family on a text, and save it with its tokenizer into a new folder."""
    torch.manual_seed(0)
    tiny, tokenizer = MODELS[name], tokenizer_of(text)
    tokens = torch.tensor(tokenizer(text)["input_ids"])  # (N,)
    model = tiny.make().eval()  # no dropout
    _forget_slowly(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95))
    generator = torch.Generator().manual_seed(0)
    with tiny.computing(model):
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = LR * (0.55 + 0.45 * math.cos(math.pi * step / STEPS))
            starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH,), generator=generator).tolist()
            rows = torch.stack([tokens[start : start + CONTEXT + 1] for start in starts])  # (B, T + 1)
            logits = model(rows[:, :-1], use_cache=False).logits  # (B, T, V)
            optimizer.zero_grad()
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    tiny.save(model, folder)
    tokenizer.save_pretrained(folder)


@cache
def tokenizer_of(text: str) -> Any:
    """A BPE tokenizer of a text, as a class of transformers."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        text.splitlines(), trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner)


@torch.no_grad()
def _forget_slowly(model: nn.Module) -> None:
    """Make the decays slow: beyond the context, states take values that training has not seen."""
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            parameter.fill_(math.log(SLOW))
        if name.endswith("dt_bias"):
            parameter.fill_(math.log(math.expm1(DT)))
