"""A model of transformers that ssm does not convert. It is measured and trained with its own forward pass and cache."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ssm.base.errors import CheckpointError, first_line, is_lack_of_memory
from ssm.models.families import NO_PASS, OWN_CACHE
from ssm.models.foreign.cache import ForeignState, begun, ended, is_common, keeping_tokens, too_old
from ssm.models.foreign.kernels import has_scans, scans_in_float32, without_kernels
from ssm.models.foreign.self_check import Expected
from ssm.models.formats.format import usual_peak_lr
from ssm.models.linear import use_linear
from ssm.models.state import State
from ssm.specs.foreign import ForeignSpec

# Possible names of the cache argument and of the returned cache. transformers has renamed it to `cache` in 5.24.
CACHES = ("cache", "past_key_values", "cache_params")
PIECES = (11, 6, 7)  # tokens of the self-check: each piece starts from the state after the previous piece
ROWS = 2  # sequences of the self-check
SELECTED = (1, 0)  # the sequences, in this order, that read the last piece after `select`


@dataclass(frozen=True)
class ReadingMode:
    """A way to read the next piece of a sequence."""

    by_token: bool  # one token at a time
    positions: bool  # position_ids are given to the forward pass


READING_MODES = tuple(ReadingMode(by_token, positions) for by_token in (False, True) for positions in (True, False))


class ForeignModel(nn.Module):
    """A causal language model of transformers that reads sequences in pieces. `hidden` returns its logits.

    A call trains it: recurrent layers start from given states, and caches are empty. The inner modules stay in
    evaluation mode, because the random numbers of dropout would differ in a resumed run.

    Some models of transformers have errors here. A forward pass over several tokens can ignore the given state, or can
    treat its first token as the start of the sequence. Therefore `check` reads a short random sequence as a whole and
    in pieces. It chooses the first of `READING_MODES` with equal logits and an equal state. A pass over one token can
    differ from one over several, as in models that then drop a limit of dt. Such a model is read, but writes nothing.

    Args:
        inner: the model, on the device where it will be used.
        source: name of the model for errors.
        spec: of a run: says which layers have states; None: `check` finds them.

    Raises:
        CheckpointError: its forward pass takes no cache or fails, or no reading gives the logits of the whole sequence.
    """

    layers = ()  # no layers that could be compiled or sharded one by one
    recompute = False

    def __init__(self, inner: nn.Module, source: str, spec: ForeignSpec | None = None):
        super().__init__()
        self.inner, self.source = inner, source
        self.options = frozenset(signature(inner.forward).parameters)
        cache_name = next((name for name in CACHES if name in self.options), None)
        if cache_name is None:
            raise CheckpointError(f"{source}: the forward pass of {self.architecture} takes no cache that ssm supports")
        self.cache_name: str = cache_name
        config: Any = inner.config
        self.vocab_size: int = config.get_text_config().vocab_size
        self.recurrent: tuple[int, ...] = spec.recurrent if spec else ()  # layers that have a recurrent state
        self.caches: tuple[int, ...] = spec.caches if spec else ()  # layers that keep keys and values
        self.known = spec
        self.code = sorted({type(module).__module__ for module in inner.modules()})  # modules with its forward passes
        use_linear(inner)
        self.unloaded: list[str] = []  # tensors of its files that transformers does not load
        self.untrainable: str | None = None  # why it cannot be trained from states, for messages
        self.indivisible: str | None = None  # why its states cannot be split by sequences, for messages
        self.unwritable: str | None = None  # why it cannot write token by token, for messages
        self.readings: dict[str, ReadingMode] = {}  # by type of device
        self.register_state_dict_post_hook(_once)
        self.register_load_state_dict_pre_hook(_under_every_name)
        self.eval()
        if spec is None:
            self.check(next(inner.parameters()).device)

    def train(self, mode: bool = True) -> ForeignModel:
        """Set the mode of this module. The inner modules stay in evaluation mode."""
        self.training = mode
        self.inner.eval()
        return self

    @property
    def spec(self) -> ForeignSpec:
        """The spec for runs of this model: given, or made by `describe`."""
        assert self.known is not None
        return self.known

    def describe(self, name: str, config: Mapping[str, Any]) -> None:
        """Make the spec of a model with recurrent layers.

        Args:
            name: name of the model.
            config: its config.json.
        """
        own: Any = self.inner.config
        layers = getattr(own.get_text_config(), "num_hidden_layers", 1 + max(self.recurrent + self.caches))
        self.known = ForeignSpec(
            name=name,
            architecture=self.architecture,
            config=json.dumps(config, sort_keys=True),
            n_layers=layers,
            recurrent=self.recurrent,
            caches=self.caches,
            decays=tuple(layer for layer in self.recurrent if len(self._a_logs(layer)) == 1),
            peak_lr=usual_peak_lr(self.parameters_count),
        )

    def forward(self, tokens: Tensor, state: State | None = None, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Logits (B, T, V) of a window (B, T), and the states after it. The gradient reaches `state`.

        Args:
            state: initial states of the recurrent layers, one entry for each in order; None: zeros. Attention starts
                with an empty cache, and positions start at 0.
            resets: always None, because transformers' caches cannot be reset inside a window.
        """
        assert resets is None
        cache = begun(self.inner.config, self.recurrent, state)
        logits = self._forward(tokens, use_cache=True, **{self.cache_name: cache}).logits
        return logits, ended(cache, self.recurrent)

    def tied_to(self, name: str) -> list[str]:
        """The other names that transformers has for a parameter."""
        first_of = _names(self)
        first = first_of.get(f"inner.{name}", f"inner.{name}")
        names = [first, *(other for other, its_first in first_of.items() if its_first == first)]
        return [other.removeprefix("inner.") for other in names if other != f"inner.{name}"]

    def a_log(self, layer: int) -> nn.Parameter:
        """A_log of a layer. The layer must have exactly one."""
        (parameter,) = self._a_logs(layer)
        return parameter

    def _a_logs(self, layer: int) -> list[nn.Parameter]:
        return [parameter for name, parameter in self.inner.named_parameters() if is_a_log(name, layer)]

    @property
    def is_recurrent(self) -> bool:
        """Whether some layer has a recurrent state."""
        return bool(self.recurrent)

    @property
    def keeps_scans(self) -> bool:
        """Whether its recurrences stay in float32 under autocast."""
        return not self.is_recurrent or has_scans(self.code)

    @property
    def architecture(self) -> str:
        """The name of its class in transformers."""
        return type(self.inner).__name__

    @property
    def kind(self) -> str:
        """For readers: what the model is, and how it is read."""
        kind = f"{self.architecture}, through transformers' own forward pass"
        if any(reading.by_token for reading in self.readings.values()):
            return f"{kind}, one token at a time, because a pass over several tokens ignores the state"
        return kind

    @property
    def parameters_count(self) -> int:
        """Number of parameters; tied parameters count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def hidden_size(self) -> int:
        """V: numbers that `hidden` returns for each token."""
        return self.vocab_size

    def hidden(self, tokens: Tensor, state: ForeignState | None = None) -> tuple[Tensor, ForeignState]:
        """Logits (B, T, V) of tokens (B, T), and the state after them. `state` cannot be used again.

        Raises:
            CheckpointError: the forward pass fails, or the model cannot read in pieces on this type of device.
        """
        if tokens.device.type not in self.readings:
            self.check(tokens.device)
        return self.read(tokens, state, self.readings[tokens.device.type])

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns `hidden` (..., V), which are logits: some models change logits after their head."""
        return hidden

    def longest(self, context: int | None) -> int | None:
        """The longest sequence, in tokens, that can be read in pieces of any size; None: all can.

        A table of positions has a row for each of the `context` positions of its config.json, and up to two more. Some
        rotary positions change for all tokens of a call that passes a length, so earlier pieces have other positions.
        """
        inner: Any = self.inner  # transformers' classes have no types where it is not installed
        config = inner.config.get_text_config()
        rotary = getattr(config, "rope_parameters", None) or {}
        parts = [part for part in (rotary, *rotary.values()) if isinstance(part, Mapping)]  # or one for a type of layer
        ends = [config.max_position_embeddings for part in parts if part.get("rope_type") == "dynamic"]
        ends += [part["original_max_position_embeddings"] for part in parts if part.get("rope_type") == "longrope"]
        if ends or context is None:
            return min(ends, default=None)
        tokens = (inner.get_input_embeddings(), inner.get_output_embeddings())
        tables = [m.weight for m in self.inner.modules() if isinstance(m, nn.Embedding) and m not in tokens]
        tables += [buffer for buffer in self.inner.buffers() if buffer.dim() == 2]
        return context if any(context <= len(table) <= context + 2 for table in tables) else None

    @torch.inference_mode()
    def check(self, device: torch.device) -> None:
        """Find out how this model can read a sequence in pieces on a type of device.

        Raises:
            CheckpointError: it cannot, or its forward pass fails.
        """
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.vocab_size, (ROWS, sum(PIECES)), generator=generator).to(device)  # (B, T)
        with torch.autocast(device.type, enabled=False):
            expected, last = self._expected(tokens)
            for reading in READING_MODES:
                if reading.positions and "position_ids" not in self.options:
                    continue
                self.indivisible = None
                logits, state, before = self._read_in_pieces(tokens, reading)
                if expected.agrees(logits, state, torch.arange(ROWS, device=device)):
                    self.unwritable = self._unwritable(tokens, before.copy(), reading, expected)
                    self.indivisible = self._indivisible(tokens, before, reading, expected)
                    self.readings[device.type] = reading
                    self.recurrent, self.caches = tuple(last.recurrent_layers()), keeping_tokens(last.cache)
                    self.untrainable = self._untrainable(reading, last.cache)
                    return
        raise CheckpointError(
            f"{self.source}: {self.architecture} cannot read a sequence in pieces: in pieces, and also token by token, "
            "logits or states differ from those of the whole sequence"
        )

    def _expected(self, tokens: Tensor) -> tuple[Expected, ForeignState]:
        """The results of tokens (B, T) read as a whole, and the state after them."""
        logits = self._forward(tokens, use_cache=False).logits  # (B, T, V)
        if logits.shape[-1] != self.vocab_size:
            raise CheckpointError(
                f"{self.source}: returns {logits.shape[-1]} logits, but its vocab_size is {self.vocab_size}"
            )
        at_once = ReadingMode(by_token=False, positions=False)
        _, last = self.read(tokens, None, at_once)
        alone, forgetful = self.read(tokens[:, -PIECES[-1] :], None, at_once)
        return Expected(logits, alone, last.recurrent_states(), forgetful.recurrent_states()), last

    def _unwritable(self, tokens: Tensor, state: ForeignState, reading: ReadingMode, expected: Expected) -> str | None:
        """Why tokens cannot be read one at a time; None: they can. `state` is the state before the last piece."""
        logits = []
        try:
            for piece in tokens[:, -PIECES[-1] :].split((PIECES[-1] - 1, 1), dim=1):
                own, state = self.read(piece, state, reading)
                logits.append(own)
        except CheckpointError as error:
            return str(error)
        if expected.agrees(torch.cat(logits, 1), state, torch.arange(len(tokens), device=tokens.device)):
            return None
        return (
            f"{self.source}: {self.architecture} cannot write text: its pass over a single token has other logits or "
            "states than its pass over several tokens"
        )

    def _indivisible(
        self, tokens: Tensor, before: ForeignState, reading: ReadingMode, expected: Expected
    ) -> str | None:
        """Why states cannot be split by sequences; None: they can. `before` is the state before the last piece."""
        rows = torch.tensor(SELECTED, device=tokens.device)
        try:
            logits, state = self.read(tokens[rows, -PIECES[-1] :], before.select(rows), reading)
            agrees = expected.agrees(logits, state, rows)
        except CheckpointError as error:
            return str(error)
        if agrees:
            return None
        return (
            f"{self.source}: the cache of {self.architecture} cannot be split by sequences: a part of the batch then "
            "has different logits or states"
        )

    def _read_in_pieces(self, tokens: Tensor, reading: ReadingMode) -> tuple[Tensor, ForeignState, ForeignState]:
        """The logits of PIECES read one after the other, the last state, and the state before the last piece."""
        *earlier, last = tokens.split(PIECES, dim=1)
        logits, state = [], None
        for piece in earlier:
            own, state = self.read(piece, state, reading)
            logits.append(own)
        assert state is not None
        before = state.copy()
        own, state = self.read(last, state, reading)
        return torch.cat([*logits, own], 1), state, before

    def _untrainable(self, reading: ReadingMode, cache: Any) -> str | None:
        """Why the model cannot be trained from states; None: it can."""
        common = is_common(cache, self.recurrent)
        if (reading.by_token or not common) and (older := too_old()):
            return older
        if reading.by_token:
            return NO_PASS
        return None if common else OWN_CACHE

    def read(self, tokens: Tensor, state: ForeignState | None, reading: ReadingMode) -> tuple[Tensor, ForeignState]:
        """Like `hidden`, with a given reading."""
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
                raise CheckpointError(f"{self.source}: the forward pass of {self.architecture} returns no cache")
            logits.append(output.logits)
            state = ForeignState(cache, seen + piece.shape[1], self.indivisible)
        assert state is not None
        return torch.cat(logits, 1), state

    def _forward(self, tokens: Tensor, **options: Any) -> Any:
        device = tokens.device.type
        try:
            with (
                without_kernels(self.code) if device == "cpu" else nullcontext(),
                scans_in_float32(self.code, device) if torch.is_autocast_enabled(device) else nullcontext(),
            ):
                output = self.inner(input_ids=tokens, **options)
        except Exception as error:  # other people's code can raise anything
            if is_lack_of_memory(error):
                raise
            raise CheckpointError(
                f"{self.source}: the forward pass of {self.architecture} fails on device '{device}' "
                f"({first_line(error)})"
            ) from error
        if getattr(output, "logits", None) is None:
            raise CheckpointError(
                f"{self.source}: {self.architecture} returns no logits (config.json: architectures); expected a model "
                "with a language-model head, such as LlamaForCausalLM"
            )
        return output


def is_a_log(name: str, layer: int) -> bool:
    """Whether this name, of a parameter or in a file, is A_log of a layer."""
    return re.fullmatch(rf"(.*\.)?layers\.{layer}\.(.*\.)?A_log", name) is not None


def _names(model: ForeignModel) -> dict[str, str]:
    """Further names of tied parameters -> the first name, under which files store them."""
    first: dict[int, str] = {}
    names = model.named_parameters(remove_duplicate=False)
    first_of = {name: first.setdefault(id(parameter), name) for name, parameter in names}
    return {name: its_first for name, its_first in first_of.items() if name != its_first}


def _once(model: nn.Module, tensors: dict[str, Tensor], prefix: str, _: object) -> None:
    """Hook of `state_dict`: keep only the first name of a tied parameter."""
    assert isinstance(model, ForeignModel)
    for name in _names(model):
        tensors.pop(prefix + name, None)


def _under_every_name(model: nn.Module, tensors: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Hook of `load_state_dict`, which needs all names of a tied parameter."""
    assert isinstance(model, ForeignModel)
    for name, first in _names(model).items():
        if prefix + first in tensors:
            tensors[prefix + name] = tensors[prefix + first]
