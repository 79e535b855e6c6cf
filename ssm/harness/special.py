"""The tokens that begin and end a text, from the model's own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import DataError
from ssm.base.strict_parsing import read_json
from ssm.data.tokenizers import JsonTokenizer, Tokenizer
from ssm.models.foreign import ForeignModel
from ssm.models.load import LoadedModel
from ssm.specs.data import FileTokenizer, TokenizerSpec

CONFIG = "tokenizer_config.json"
NEWLINE = 10  # begins a text of bytes: they have no special token


@dataclass(frozen=True)
class Special:
    """Token ids; None if no file names the token."""

    prefix: int | None  # the first token of a text is predicted from it
    end: int | None
    leads: bool  # whether the tokenizer puts the prefix before every text
    hidden: frozenset[int] = frozenset()  # left out of a generated text: the special tokens of tokenizer.json


def special_tokens(loaded: LoadedModel, spec: TokenizerSpec, tokenizer: Tokenizer) -> Special:
    """Read the special tokens from tokenizer_config.json next to the tokenizer, or else from config.json.

    The template of tokenizer.json can also put a token before every text, unless tokenizer_config.json decides it with
    add_bos_token. Tokens that a template puts after a text are ignored, because a context does not end. A text of bytes
    begins with a newline.

    Raises:
        DataError: tokenizer_config.json cannot be read.
    """
    if not isinstance(tokenizer, JsonTokenizer):
        return Special(NEWLINE, None, False)
    named: Mapping[str, Any] = {}
    if isinstance(spec, FileTokenizer) and (Path(spec.path).parent / CONFIG).is_file():
        content = read_json(Path(spec.path).parent / CONFIG, DataError, "tokenizer's config", finite=False, large=True)
        named = content if isinstance(content, Mapping) else {}
    config = _config(loaded)
    begin, end = (_id_of_text(named.get(f"{name}_token"), tokenizer) for name in ("bos", "eos"))
    if begin is None and end is None:
        begin, end = (_valid_id(config.get(f"{name}_token_id"), tokenizer) for name in ("bos", "eos"))
    leads, first = named.get("add_bos_token"), _first_of_template(tokenizer)
    if begin is None or (leads is None and first is not None):
        begin = first
    leads = first is not None if leads is None else leads is True
    added = tokenizer.inner.get_added_tokens_decoder()
    hidden = frozenset(number for number, token in added.items() if token.special)
    return Special(end if begin is None else begin, end, leads and begin is not None, hidden)


def _config(loaded: LoadedModel) -> Mapping[str, Any]:
    """The content of config.json; empty for a run of ssm."""
    if loaded.imported is not None:
        return loaded.imported.source.config
    if isinstance(loaded.model, ForeignModel):
        config: Any = loaded.model.inner.config  # Any: transformers may not be installed
        return dict(config.get_text_config().to_dict())
    return {}


def _first_of_template(tokenizer: JsonTokenizer) -> int | None:
    """The token that the template of tokenizer.json puts directly before a text."""
    encoded = tokenizer.inner.encode("a")
    mask = encoded.special_tokens_mask  # 1: a token of the template
    first = mask.index(0) if 0 in mask else 0
    return encoded.ids[first - 1] if first else None


def _id_of_text(token: Any, tokenizer: JsonTokenizer) -> int | None:
    """The id of a token that is given as text, or as {"content": text}."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return tokenizer.inner.token_to_id(text) if isinstance(text, str) else None


def _valid_id(value: Any, tokenizer: JsonTokenizer) -> int | None:
    first = value[0] if isinstance(value, list) and value else value
    return first if type(first) is int and 0 <= first < tokenizer.vocab_size else None
