"""Small models of other libraries: made with their classes, trained with their forward pass, saved with their method.

This file does not use ssm. The kernels of fla and mamba_ssm need a GPU. `models.formats.fla_on_cpu` and
`models.formats.mamba_ssm_on_cpu` replace them on the CPU. transformers has its own plain implementations. The
recurrences have slow decays, so that a model breaks a little beyond its context.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

CONTEXT, VOCABULARY = 16, 256  # tokens, bytes
BATCH, LR = 32, 1e-2  # sequences a step
DT = 0.1
MAMBAS_A, DELTAS_A = 0.05, 0.001  # a state loses a share A DT per token; the delta rule also overwrites it
BYTES = {"vocab_size": VOCABULARY, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class Peer(ABC):
    """A class of models of another library."""

    library: str
    title: str
    steps = 150
    repairs: tuple[str, ...] = ()  # policies of `ssm extend` without training that work with it

    @abstractmethod
    def made(self) -> nn.Module:
        """A new model with initial weights."""

    @abstractmethod
    def load(self, folder: Path) -> nn.Module:
        """Load a model with the library's own method. All names must match."""

    @contextmanager
    def computing(self, model: nn.Module) -> Iterator[None]:
        """The context in which its forward pass runs."""
        yield

    def forward(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of tokens (B, T)."""
        return model(tokens, use_cache=False).logits

    def logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """The same, without gradients."""
        with torch.no_grad(), self.computing(model):
            return self.forward(model, tokens)

    def save(self, text: Tensor, folder: Path) -> None:
        """Train a model on bytes (N,), and save it with the library's own method."""
        torch.manual_seed(0)
        model = self.made().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.01)
        generator = torch.Generator().manual_seed(0)
        with self.computing(model):
            for step in range(self.steps):
                cosine = 0.55 + 0.45 * math.cos(math.pi * step / self.steps)  # to a tenth
                optimizer.param_groups[0]["lr"] = LR * cosine * min(1, 10 * (step + 1) / self.steps)
                starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator).tolist()
                tokens = torch.stack([text[start : start + CONTEXT + 1] for start in starts])  # (B, T + 1)
                logits = self.forward(model, tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        model.eval().save_pretrained(folder)  # type: ignore[operator]


class Transformers(Peer):
    """A class of transformers."""

    library = "transformers"

    def load(self, folder: Path) -> nn.Module:
        return loaded(transformers, folder)


class Mamba2(Transformers):
    title = "Mamba-2"
    repairs = ("scale_a",)

    def made(self) -> nn.Module:
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8, "state_size": 16}
        config = transformers.Mamba2Config(**BYTES, **shape, expand=2, n_groups=1, chunk_size=16)
        model = transformers.Mamba2ForCausalLM(config)
        return slow(model, [layer.mixer for layer in model.backbone.layers], MAMBAS_A)


class Qwen35(Transformers):
    """Gated DeltaNet, and attention in every fourth layer."""

    title = "Qwen3.5"

    def made(self) -> nn.Module:
        kinds = ["linear_attention"] * 3 + ["full_attention"]
        shape = {"hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 64, "layer_types": kinds}
        attention = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
        linear = {"num_key_heads": 2, "num_value_heads": 4, "key_head_dim": 8, "value_head_dim": 8}
        sizes = shape | attention | {f"linear_{key}": value for key, value in linear.items()}
        config = transformers.Qwen3_5TextConfig(**BYTES, **sizes, max_position_embeddings=CONTEXT)
        model = transformers.Qwen3_5ForCausalLM(config)
        recurrences = [layer.linear_attn for layer in model.model.layers if hasattr(layer, "linear_attn")]
        return slow(model, recurrences, DELTAS_A)

    @contextmanager
    def computing(self, model: nn.Module) -> Iterator[None]:
        """Their rule in torch, whether or not fla is there, whose kernels need a GPU."""
        from transformers.models.qwen3_5 import modeling_qwen3_5 as theirs

        names = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
        before = {name: getattr(theirs, name) for name in names}
        for name, rule in before.items():
            setattr(theirs, name, inspect.unwrap(rule))
        try:
            yield
        finally:
            for name, rule in before.items():
                setattr(theirs, name, rule)


class Bamba(Transformers):
    """Mamba-2 behind attention. ssm reads it by transformers' own forward pass, in pieces."""

    title = "Bamba"

    def made(self) -> nn.Module:
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "attn_layer_indices": [0]}
        attention = {"num_attention_heads": 4, "num_key_value_heads": 2}
        mamba = {"n_heads": 8, "d_head": 8, "d_state": 16, "n_groups": 1, "chunk_size": 16}
        sizes = shape | attention | {f"mamba_{key}": value for key, value in mamba.items()}
        model = transformers.BambaForCausalLM(transformers.BambaConfig(**BYTES, **sizes, pad_token_id=None))
        return slow(model, [layer.mamba for layer in model.model.layers if hasattr(layer, "mamba")], MAMBAS_A)


class Fla(Peer):
    """A class of flash-linear-attention."""

    library = "fla"

    @contextmanager
    def computing(self, model: nn.Module) -> Iterator[None]:
        from models.formats import fla_on_cpu

        with fla_on_cpu.plain(model):
            yield

    def load(self, folder: Path) -> nn.Module:
        import fla.models

        return loaded(fla.models, folder)

    def of(self, kind: str, **sizes: Any) -> nn.Module:
        """A model of this class."""
        import fla.models

        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2, "max_position_embeddings": CONTEXT}
        config = getattr(fla.models, f"{kind}Config")(**BYTES, **shape, **sizes)
        return getattr(fla.models, f"{kind}ForCausalLM")(config).float()


class DeltaNet(Fla):
    """It forgets only by overwriting."""

    title = "DeltaNet"

    def made(self) -> nn.Module:
        return self.of("DeltaNet")


class GatedDeltaNet(Fla):
    title = "Gated DeltaNet"

    def made(self) -> nn.Module:
        model = self.of("GatedDeltaNet", head_dim=12)
        return slow(model, [layer.attn for layer in model.model.layers], DELTAS_A)


class MambaSsm(Peer):
    """mamba_ssm's MambaLMHeadModel, of Mamba-2."""

    library, title, steps = "mamba_ssm", "MambaLMHeadModel", 100
    repairs = ("scale_a",)

    def made(self) -> nn.Module:
        from models.formats import mamba_ssm_on_cpu

        options = {"layer": "Mamba2", "d_state": 16, "headdim": 8, "chunk_size": 16}
        options |= {"A_init_range": [MAMBAS_A, MAMBAS_A], "dt_min": DT, "dt_max": DT}
        return mamba_ssm_on_cpu.made(d_model=32, n_layer=2, vocab_size=VOCABULARY, ssm_cfg=options)

    @contextmanager
    def computing(self, model: nn.Module) -> Iterator[None]:
        from models.formats import mamba_ssm_on_cpu

        with mamba_ssm_on_cpu.plain(model):
            yield

    def forward(self, model: nn.Module, tokens: Tensor) -> Tensor:
        return model(tokens).logits

    def load(self, folder: Path) -> nn.Module:
        from models.formats import mamba_ssm_on_cpu

        return mamba_ssm_on_cpu.load(folder)


PEERS: dict[str, tuple[Callable[[], Peer], ...]] = {
    "transformers": (Mamba2, Qwen35, Bamba),
    "fla": (DeltaNet, GatedDeltaNet),
    "mamba_ssm": (MambaSsm,),
}


@torch.no_grad()
def slow(model: nn.Module, recurrences: list[Any], A: float) -> nn.Module:
    """The model with recurrences that forget slowly."""
    for mixer in recurrences:
        mixer.A_log.fill_(math.log(A))
        mixer.dt_bias.fill_(math.log(math.expm1(DT)))
    return model


def loaded(library: Any, folder: Path) -> nn.Module:
    """Load a folder with a library that has transformers' `from_pretrained`."""
    model_class = getattr(library, transformers.AutoConfig.from_pretrained(folder).architectures[0])
    model, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()
