"""Models of transformers that ssm does not convert: measured through their own forward pass and cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ssm.base.errors import CheckpointError, first_line, nearest, shown
from ssm.models.formats.source import Source, find_source

CACHES = ("past_key_values", "cache_params")  # what a forward pass may call its cache
PIECES = (11, 6, 7)  # tokens of the self-check; every piece carries on from the one before
ROWS = 2
# (share of the numbers' scale, share of what the past is worth, rounding as a share of the scale)
TOLERANCES = {torch.float32: (1e-3, 0.05, 1e-4)}
COARSE = (0.05, 0.5, 0.02)  # in half precision


@dataclass(frozen=True)
class ForeignState:
    """The cache of a model of transformers. The next forward pass changes it in place, so it is carried on once."""

    cache: Any
    seen: int  # tokens

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        holders = [self.cache, *getattr(self.cache, "layers", [])]
        return sum(tensor.nbytes for holder in holders for value in vars(holder).values() for tensor in _inside(value))

    def copy(self) -> ForeignState:
        """Tensors and all: a cache is carried on once."""
        return ForeignState(deepcopy(self.cache), self.seen)

    def memories(self) -> list[Tensor]:
        """The recurrent state of every layer that has one, each (B, H, ...), until the next forward pass.

        A cache of keys and values has none.
        """
        if hasattr(self.cache, "rnn_state"):  # xLSTM: by layer (matrix, normalizer, maximum)
            return [state[0] for _, state in sorted(self.cache.rnn_state.items())]
        if hasattr(self.cache, "linear_cache"):  # MiniMax: by layer, an empty list where it is attention
            return [state for state in self.cache.linear_cache if isinstance(state, Tensor)]
        found: list[Any] = []
        for layer in getattr(self.cache, "layers", []):
            states = getattr(layer, "recurrent_states", None)
            found += states.values() if isinstance(states, dict) else [states]
        return [state for state in found if isinstance(state, Tensor)]


@dataclass(frozen=True)
class Reading:
    """A way to carry on."""

    by_token: bool  # one token at a time
    positions: bool  # forward is told where in the sequence it is


READINGS = tuple(Reading(by_token, positions) for by_token in (False, True) for positions in (True, False))


class ForeignModel(nn.Module):
    """A causal language model of transformers, read in pieces. Its "hidden" are its logits.

    In some of its models a forward pass over several tokens leaves out the state that is carried, or takes its first
    token for a sequence's first. So before anything is measured, a short random sequence is read whole and in pieces,
    and of `READINGS` the first one is taken that gives the same logits and the same state.

    Args:
        inner: on the device where it will be used.
        source: for errors.

    Raises:
        CheckpointError: its forward pass takes no cache or fails, or no reading gives what the whole gives.
    """

    def __init__(self, inner: nn.Module, source: str):
        super().__init__()
        self.inner, self.source = inner, source
        self.options = signature(inner.forward).parameters
        cache_name = next((name for name in CACHES if name in self.options), None)
        if cache_name is None:
            raise CheckpointError(f"{source}: the forward pass of {self.architecture} takes no cache that ssm knows")
        self.cache_name: str = cache_name
        config: Any = inner.config
        self.vocab_size: int = config.get_text_config().vocab_size
        self.is_recurrent = False
        self.readings: dict[str, Reading] = {}  # by type of device
        self.eval()
        self.check(next(inner.parameters()).device)

    @property
    def architecture(self) -> str:
        """Its class."""
        return type(self.inner).__name__

    @property
    def kind(self) -> str:
        """What it is and how it is read, in words."""
        read = f"{self.architecture}, through transformers' own forward pass"
        if any(reading.by_token for reading in self.readings.values()):
            return f"{read}, a token at a time: a pass over several leaves out the state that is carried"
        return read

    @property
    def parameters_count(self) -> int:
        """Parameters, tied ones once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def hidden_size(self) -> int:
        """V: numbers that `hidden` gives for each token."""
        return self.vocab_size

    def hidden(self, tokens: Tensor, state: ForeignState | None = None) -> tuple[Tensor, ForeignState]:
        """Logits (B, T, V) of tokens (B, T), and the state after them. `state` is used up.

        Raises:
            CheckpointError: the forward pass fails, or on this type of device the state cannot be carried on.
        """
        if tokens.device.type not in self.readings:
            self.check(tokens.device)
        return self.read(tokens, state, self.readings[tokens.device.type])

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., V), as it is: some models scale or cap logits behind their head."""
        return hidden

    def longest(self, context: int | None) -> int | None:
        """Tokens at which a table of positions ends; None: there is none.

        Such a table has a row for each of the `context` positions of its config.json, and up to two more.
        """
        if context is None:
            return None
        tokens = (self.inner.get_input_embeddings(), self.inner.get_output_embeddings())  # type: ignore[operator]
        tables = [m.weight for m in self.inner.modules() if isinstance(m, nn.Embedding) and m not in tokens]
        tables += [buffer for buffer in self.inner.buffers() if buffer.dim() == 2]
        return context if any(context <= len(table) <= context + 2 for table in tables) else None

    @torch.inference_mode()
    def check(self, device: torch.device) -> None:
        """Find out how this model can be read in pieces on a type of device.

        Raises:
            CheckpointError: it cannot, or its forward pass fails.
        """
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.vocab_size, (ROWS, sum(PIECES)), generator=generator).to(device)  # (B, T)
        with torch.autocast(device.type, enabled=False):
            whole = self._forward(tokens, use_cache=False).logits  # (B, T, V)
            if whole.shape[-1] != self.vocab_size:
                raise CheckpointError(
                    f"{self.source}: gives {whole.shape[-1]} logits, and its vocab_size is {self.vocab_size}"
                )
            at_once = Reading(by_token=False, positions=False)
            _, ended = self.read(tokens, None, at_once)
            alone, forgetful = self.read(tokens[:, -PIECES[-1] :], None, at_once)
            memories, short = ended.memories(), forgetful.memories()
            for reading in READINGS:
                if reading.positions and "position_ids" not in self.options:
                    continue
                pieces, state = [], None
                for piece in tokens.split(PIECES, dim=1):
                    logits, state = self.read(piece, state, reading)
                    pieces.append(logits)
                assert state is not None
                carried = state.memories()
                if _agree(torch.cat(pieces, 1), whole, alone, whole.std()) and all(
                    _agree(one, other, from_zero, other.abs().max())
                    for one, other, from_zero in zip(carried, memories, short, strict=True)
                ):
                    self.readings[device.type], self.is_recurrent = reading, bool(memories)
                    return
        raise CheckpointError(
            f"{self.source}: the cache of {self.architecture} cannot be carried on: in pieces, and token by token, a "
            "sequence gives other logits or another state than read whole"
        )

    def read(self, tokens: Tensor, state: ForeignState | None, reading: Reading) -> tuple[Tensor, ForeignState]:
        """`hidden`, in one of the ways to carry on."""
        logits = []
        for piece in tokens.split(1, dim=1) if reading.by_token else [tokens]:
            seen = 0 if state is None else state.seen
            options: dict[str, Any] = {} if state is None else {self.cache_name: state.cache}
            if reading.positions:
                places = torch.arange(seen, seen + piece.shape[1], device=piece.device)
                options["position_ids"] = places.expand(piece.shape)  # (B, T)
            output = self._forward(piece, use_cache=True, **options)
            cache = getattr(output, self.cache_name, None)
            if cache is None:
                raise CheckpointError(f"{self.source}: the forward pass of {self.architecture} gives no cache back")
            logits.append(output.logits)
            state = ForeignState(cache, seen + piece.shape[1])
        assert state is not None
        return torch.cat(logits, 1), state

    def _forward(self, tokens: Tensor, **options: Any) -> Any:
        try:
            return self.inner(input_ids=tokens, **options)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # anything, from code that is not ours
            raise CheckpointError(
                f"{self.source}: the forward pass of {self.architecture} fails on the {tokens.device.type} "
                f"({first_line(error)})"
            ) from error


def load_foreign(source: Source, device: torch.device | str = "cpu") -> ForeignModel:
    """A causal model of transformers, in float32. Code that comes with a checkpoint is never run.

    Raises:
        CheckpointError: transformers is missing, does not know the architecture or cannot read the weights, or the
            model cannot be read in pieces.
    """
    kind = source.config.get("model_type")
    unknown = f"{source.config_path}: unknown architecture {shown(kind)}"
    os.environ.setdefault("USE_HUB_KERNELS", "NO")  # else it fetches code where the package `kernels` is installed
    try:
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN
    except ImportError as error:
        raise CheckpointError(f"{unknown}; models of transformers need `pip install transformers`") from error
    if not isinstance(kind, str) or kind not in KNOWN:
        own_code = " (code of its own is never run)" if "auto_map" in source.config else ""
        raise CheckpointError(
            f"{unknown}, also to transformers {transformers.__version__}{own_code}; {nearest(str(kind), KNOWN)}"
        )
    if Path(source.name).is_file() and find_source(source.folder).files != source.files:
        raise CheckpointError(f"{source.name}: transformers reads whole folders; give {source.folder} instead")
    try:
        with _quiet(transformers):
            # Of transformers' own classes, whatever another package has registered for its name.
            named = (source.config.get("architectures") or [""])[0]
            architecture: Any = getattr(transformers, str(named), transformers.AutoModelForCausalLM)
            loaded: Any = architecture.from_pretrained(
                source.folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # anything, from code that is not ours
        raise CheckpointError(f"{source.name}: transformers cannot read it ({first_line(error)})") from error
    inner, found = loaded
    problems = [f"missing {name}" for name in sorted(found["missing_keys"])]
    problems += [f"{name} is not finite" for name, weight in inner.named_parameters() if not weight.isfinite().all()]
    if problems:
        raise CheckpointError(f"{source.name}: is no {type(inner).__name__}: {'; '.join(problems)}")
    with _quiet(transformers):
        return ForeignModel(inner.to(device), source.name)


def _inside(value: Any) -> Iterator[Tensor]:
    """The tensors in lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _inside(part)


def _agree(found: Tensor, wanted: Tensor, alone: Tensor, scale: Tensor) -> bool:
    """Whether numbers agree, as a share of their scale and of what the past is worth.

    Args:
        alone: the last of the wanted, from nothing but the last piece.
    """
    share, of_past, rounding = TOLERANCES.get(wanted.dtype, COARSE)
    last = wanted[:, -alone.shape[1] :] if alone.shape != wanted.shape else wanted
    error, past = (found - wanted).abs().max(), (alone - last).abs().max()
    return bool(error <= share * scale and error <= torch.maximum(of_past * past, rounding * scale))


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No words and no bars from transformers, whose settings stay as they were."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
