"""The tokens that begin and end a text, as a model's own files name them."""

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
NEWLINE = 10  # begins a text of bytes, which have no token for it


@dataclass(frozen=True)
class Special:
    """Numbers of tokens, None where no file names one."""

    prefix: int | None  # what the first token of a text is predicted from
    end: int | None
    leads: bool  # the tokenizer puts the prefix before every text


def special_tokens(loaded: LoadedModel, spec: TokenizerSpec, tokenizer: Tokenizer) -> Special:
    """Of tokenizer_config.json beside the tokenizer, or else of config.json; for bytes a text follows a newline.

    The template of tokenizer.json may put a token before every text too; a tokenizer_config.json that says whether
    there is one (add_bos_token) goes first. What a template puts behind texts is left out: contexts have no end.

    Raises:
        DataError: tokenizer_config.json cannot be read.
    """
    if not isinstance(tokenizer, JsonTokenizer):
        return Special(NEWLINE, None, False)
    said: Mapping[str, Any] = {}
    if isinstance(spec, FileTokenizer) and (Path(spec.path).parent / CONFIG).is_file():
        found = read_json(Path(spec.path).parent / CONFIG, DataError, "tokenizer's config")
        said = found if isinstance(found, Mapping) else {}
    config = _config(loaded)
    begin, end = (_spelled(said.get(f"{name}_token"), tokenizer) for name in ("bos", "eos"))
    if begin is None and end is None:
        begin, end = (_number(config.get(f"{name}_token_id"), tokenizer) for name in ("bos", "eos"))
    leads, first = said.get("add_bos_token"), _of_template(tokenizer)
    if begin is None or (leads is None and first is not None):
        begin = first
    leads = first is not None if leads is None else leads is True
    return Special(end if begin is None else begin, end, leads and begin is not None)


def _config(loaded: LoadedModel) -> Mapping[str, Any]:
    """What config.json says; of a run of ours, nothing."""
    if loaded.imported is not None:
        return loaded.imported.source.config
    if isinstance(loaded.model, ForeignModel):
        config: Any = loaded.model.inner.config  # transformers' classes have no types where it is not installed
        return dict(config.get_text_config().to_dict())
    return {}


def _of_template(tokenizer: JsonTokenizer) -> int | None:
    """The token that tokenizer.json's own template puts right before a text."""
    encoded = tokenizer.inner.encode("a")
    mask = encoded.special_tokens_mask  # 1: of the template
    first = mask.index(0) if 0 in mask else 0
    return encoded.ids[first - 1] if first else None


def _spelled(token: Any, tokenizer: JsonTokenizer) -> int | None:
    """The number of a token that stands there as text, or as {"content": text}."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return tokenizer.inner.token_to_id(text) if isinstance(text, str) else None


def _number(value: Any, tokenizer: JsonTokenizer) -> int | None:
    first = value[0] if isinstance(value, list) and value else value
    return first if type(first) is int and 0 <= first < tokenizer.vocab_size else None
