"""The model `ssm` of lm-evaluation-harness: it opens the same checkpoints as `ssm diagnose`, and cuts no text."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from ssm.base.errors import ConfigError, nearest
from ssm.data.own_text import tokenizer_of
from ssm.data.special import special_tokens
from ssm.data.tokenizers import make_tokenizer
from ssm.harness.reading import ScoredText, continuations, reads_together, scores
from ssm.models.device import prepare_device
from ssm.models.load import load_any_model

ARGUMENTS = (
    *("pretrained", "tokenizer", "dtype", "max_length", "max_gen_toks", "prefix_token_id", "add_bos_token"),
    *("batch_size", "device"),
)
AUTO = 16  # the batch size "auto"
PRECISIONS = ("float32", "bfloat16")
logger = logging.getLogger(__name__)


@register_model("ssm")
class HarnessModel(TemplateLM):
    """A model that reads texts of any length in pieces and carries the state, so memory does not grow with the length.

    Attention without a window is the exception: it keeps the keys and values of the whole text.

    It sets denormals, threads and TF32 of this process (`ssm.models.device.prepare_device`).

    Args:
        pretrained: a folder, a file, a name of the hub, or a run of ssm (`ssm.models.load.load_any_model`).
        tokenizer: see `ssm.data.own_text.tokenizer_named`; None: the model's own.
        dtype: float32 or bfloat16 (scans stay in float32, except those of some models of transformers, such as MiniMax
            and xLSTM); "auto": `LoadedModel.default_precision`.
        max_length: tokens. Longer texts are cut, as by the harness's own models: a whole text into windows, a context
            to its last tokens. The log says so. None: nothing is cut, unless the model has a fixed number of
            positions.
        max_gen_toks: the number of generated tokens, for tasks that do not set it.
        prefix_token_id: the token from which the first token of a text is predicted. None: the token that the model's
            files name, or a newline for bytes.
        add_bos_token: whether this token also precedes every context; None: as in the tokenizer's files.
        batch_size: texts of a batch.
        device: auto, cpu, cuda or cuda:0; without a GPU, the CPU is used.

    Raises:
        UserError: a wrong argument, or a model that cannot be read.
    """

    def __init__(
        self,
        pretrained: str = "",
        tokenizer: str | None = None,
        dtype: str = "auto",
        max_length: int | None = None,
        max_gen_toks: int = 256,
        prefix_token_id: int | None = None,
        add_bos_token: bool | None = None,
        batch_size: int | str = 1,
        device: str | None = None,
        **others: Any,
    ):
        super().__init__()
        others.pop("max_batch_size", None)  # for a search for the largest batch, which is not needed here
        if others:
            name = min(others)
            raise ConfigError(f"--model_args {name}: unknown; {nearest(name, ARGUMENTS)}")
        if not pretrained:
            raise ConfigError("--model_args pretrained=MODEL is missing: a folder, a file, or owner/model of the hub")
        if dtype not in ("auto", *PRECISIONS):
            raise ConfigError(f"--model_args dtype={dtype}: expected auto, {' or '.join(PRECISIONS)}")
        prefix = None if prefix_token_id is None else _whole("prefix_token_id", prefix_token_id, 0)
        if add_bos_token not in (None, True, False):
            raise ConfigError(f"--model_args add_bos_token={add_bos_token}: expected True or False")
        longest = None if max_length is None else _whole("max_length", max_length, 2)
        self.max_gen_toks = _whole("max_gen_toks", max_gen_toks, 1)
        self.batch_size = AUTO if str(batch_size).startswith("auto") else _whole("batch_size", batch_size, 1)
        # The harness passes cuda by default, also without a GPU. So cuda means auto, as for the harness's own models.
        self._device = prepare_device("auto" if device in (None, "cuda", "cuda:0") else device)
        self.loaded = load_any_model(str(pretrained), self._device)
        self.precision = dtype if dtype != "auto" else self.loaded.default_precision(self._device)
        spec = tokenizer_of(self.loaded, tokenizer)
        self.text = make_tokenizer(spec, iter(()))  # the harness expects `tokenizer` to be of transformers
        self.special = special_tokens(self.loaded, spec, self.text)
        self.prefix = self.special.prefix if prefix is None else prefix
        vocabulary = self.loaded.model.vocab_size
        if self.prefix is not None and self.prefix >= vocabulary:
            raise ConfigError(f"--model_args prefix_token_id={self.prefix}: the model has {vocabulary} tokens")
        self.leads = self.special.leads if add_bos_token is None else bool(add_bos_token)
        limits = [self.loaded.longest, longest]
        self.max_length = min((limit for limit in limits if limit is not None), default=sys.maxsize)  # tokens

    @property
    def eot_token_id(self) -> int | None:
        """The token that ends a text; None if there is no such token."""
        return self.special.end

    @property
    def prefix_token_id(self) -> int:
        """The token from which the first token of a text is predicted."""
        if self.prefix is None:
            raise ConfigError(
                f"{self.loaded.name}: its files name no token that begins a text; give one with --model_args "
                "prefix_token_id=N"
            )
        return self.prefix

    def get_model_info(self) -> dict[str, Any]:
        """Facts about the model that the harness stores with its results."""
        return {
            "model_num_parameters": self.loaded.model.parameters_count,
            "model_dtype": self.precision,
            "model_sha": self.loaded.fingerprint,
            "max_length": self.max_length,
        }

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """The tokens of a text, after the prefix if contexts begin with it."""
        tokens: list[int] = self.text.encode([string.encode("utf-8", errors="replace")])[0].tolist()
        leads = self.leads if add_special_tokens is None else add_special_tokens
        return [self.prefix_token_id, *tokens] if leads else tokens

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, in nats. Texts up to `max_length` are read in one piece."""
        to_score, owners = [], []
        for number, (text,) in enumerate(request.args for request in requests):
            tokens = self.tok_encode(text, add_special_tokens=False)
            for window in get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, context_len=1):
                context, wanted = make_disjoint_window(window)
                to_score.append(ScoredText([*context, *wanted], len(wanted)))
                owners.append(number)
        totals = [0.0] * len(requests)
        for owner, (value, _) in zip(owners, self._scored(to_score, disable_tqdm), strict=True):
            totals[owner] += value
        for request, value in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, value)
        return totals

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """ln p of continuations, in nats, and whether all of their tokens are the most likely ones."""
        to_score = []
        for _texts, context, wanted in requests:
            # The harness strips a blank context. Then the first token is predicted from the prefix.
            tokens = self._last([*(context or [self.prefix_token_id]), *wanted], self.max_length + 1)
            to_score.append(ScoredText(tokens, min(len(wanted), len(tokens) - 1)))
        answers = self._scored(to_score, disable_tqdm)
        for (texts, _context, _wanted), answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations of prompts, up to the strings that end them.

        Raises:
            ConfigError: the task needs samples or no tokens, or `max_length` leaves no room for a prompt.
        """
        groups: dict[tuple[Any, ...], list[tuple[int, list[int]]]] = {}  # requests that can share a batch
        for number, (context, settings) in enumerate(request.args for request in requests):
            wanted = normalize_gen_kwargs(settings, self.max_gen_toks)
            if wanted["do_sample"]:
                raise ConfigError("do_sample: ssm generates only greedily; give --gen_kwargs do_sample=False")
            most = wanted["max_gen_toks"]
            if most < 1:
                raise ConfigError(f"max_gen_toks {most}: expected a whole number, 1 or more")
            if most >= self.max_length:
                raise ConfigError(
                    f"max_gen_toks {most}: expected less than max_length {self.max_length}; no prompt fits"
                )
            tokens = self._last(self.tok_encode(context) or [self.prefix_token_id], self.max_length - most)
            length = 0 if reads_together(self.loaded.model) else len(tokens)
            groups.setdefault((most, tuple(wanted["until"]), length), []).append((number, tokens))
        texts = [""] * len(requests)
        with self._progress(len(requests), disable_tqdm) as progress:
            for (most, until, _), group in groups.items():
                for batch in _batches(sorted(group, key=lambda prompt: -len(prompt[1])), self.batch_size):
                    for number, text in self._written(batch, most, until):
                        texts[number] = text
                        self.cache_hook.add_partial("generate_until", requests[number].args, text)
                    progress.update(len(batch))
        return texts

    def _written(self, batch: list[tuple[int, list[int]]], most: int, until: tuple[str, ...]) -> list[tuple[int, str]]:
        """The continuation of each prompt, without the string that ended it and without special tokens."""
        stops = [stop for stop in until if stop]

        def ended(_: int, tokens: list[int]) -> bool:
            if not stops or tokens[-1] in self.special.ends:
                return tokens[-1] in self.special.ends
            text = self._decoded(tokens)
            return any(stop in text for stop in stops)

        with self._computing():
            written = continuations(self.loaded.model, [tokens for _, tokens in batch], most, ended, self._device)
        visible = [[token for token in tokens if token not in self.special.hidden] for tokens in written]
        return [
            (number, postprocess_generated_text(self._decoded(tokens), stops, None))
            for (number, _), tokens in zip(batch, visible, strict=True)
        ]

    def _scored(self, to_score: list[ScoredText], disable_tqdm: bool) -> list[tuple[float, bool]]:
        """Score texts in batches of similar lengths, the longest first. The answers have the order of `to_score`."""
        order = sorted(range(len(to_score)), key=lambda number: -len(to_score[number].tokens))
        answers: list[tuple[float, bool]] = [(0.0, True)] * len(to_score)
        with self._progress(len(to_score), disable_tqdm) as progress, self._computing():
            for batch in _batches(order, self.batch_size):
                values = scores(self.loaded.model, [to_score[number] for number in batch], self._device)
                for number, value in zip(batch, values, strict=True):
                    answers[number] = value
                progress.update(len(batch))
        return answers

    def _last(self, tokens: list[int], most: int) -> list[int]:
        if len(tokens) > most:
            logger.warning("a text of %d tokens is cut to its last %d (max_length)", len(tokens), most)
        return tokens[-most:]

    def _decoded(self, tokens: list[int]) -> str:
        ends = bool(tokens) and tokens[-1] in self.special.ends
        return self.text.decode(np.array(tokens[:-1] if ends else tokens))

    def _computing(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def _progress(self, total: int, disable: bool) -> tqdm:
        return tqdm(total=total, desc=f"ssm: {self.loaded.title}", disable=disable)


def _batches(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _whole(name: str, value: Any, least: int) -> int:
    """A whole number from the harness's command line.

    Raises:
        ConfigError: it is not a whole number, or too small.
    """
    if not str(value).isdecimal() or int(value) < least:
        raise ConfigError(f"--model_args {name}={value}: expected a whole number, {least} or more")
    return int(value)
