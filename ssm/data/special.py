"""The tokens that begin and end a text, from the model's own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssm.base.errors import DataError
from ssm.base.strict_parsing import read_json
from ssm.data.tokenizers import JsonTokenizer, Tokenizer
from ssm.models.foreign import ForeignModel
from ssm.models.load import LoadedModel
from ssm.specs.data import FileTokenizer, TokenizerSpec

CONFIG, GENERATION = "tokenizer_config.json", "generation_config.json"
NEWLINE = 10  # begins a text of bytes: they have no special token


@dataclass(frozen=True)
class Special:
    """Token ids; None if no file names the token."""

    prefix: int | None  # the first token of a text is predicted from it
    end: int | None
    leads: bool  # whether the tokenizer puts the prefix before every text
    ends: frozenset[int] = frozenset()  # end a generated text: `end`, and others that the model's configs name
    hidden: frozenset[int] = frozenset()  # left out of a generated text: the special tokens of tokenizer.json


def special_tokens(loaded: LoadedModel, spec: TokenizerSpec, tokenizer: Tokenizer) -> Special:
    """Read the special tokens from tokenizer_config.json next to the tokenizer, or else from config.json.

    The template of tokenizer.json can also put a token before every text, unless tokenizer_config.json decides it with
    add_bos_token. Tokens that a template puts after a text are ignored, because a context does not end. A text of bytes
    begins with a newline.

    A model can have several tokens that end a generated text: transformers stops at each eos_token_id of
    generation_config.json, or else of config.json.

    Raises:
        DataError: tokenizer_config.json or generation_config.json cannot be read.
    """
    if not isinstance(tokenizer, JsonTokenizer):
        return Special(NEWLINE, None, False)
    named: Mapping[str, Any] = {}
    if isinstance(spec, FileTokenizer):
        named = _mapping(Path(spec.path).parent / CONFIG, "tokenizer's config")
    config = _config(loaded)
    begin, end = (_id_of_text(named.get(f"{name}_token"), tokenizer) for name in ("bos", "eos"))
    if begin is None and end is None:
        begin, end = (next(_valid_ids(config.get(f"{name}_token_id"), tokenizer), None) for name in ("bos", "eos"))
    generation = {} if loaded.source is None else _mapping(loaded.source.folder / GENERATION, "generation config")
    ends = _valid_ids(generation.get("eos_token_id", config.get("eos_token_id")), tokenizer)
    leads, first = named.get("add_bos_token"), _first_of_template(tokenizer)
    if begin is None or (leads is None and first is not None):
        begin = first
    leads = first is not None if leads is None else leads is True
    added = tokenizer.inner.get_added_tokens_decoder()
    hidden = frozenset(number for number, token in added.items() if token.special)
    ending = frozenset({*ends, *([] if end is None else [end])})
    return Special(end if begin is None else begin, end, leads and begin is not None, ending, hidden)


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


def _valid_ids(value: Any, tokenizer: JsonTokenizer) -> Iterator[int]:
    """The ids of an entry of a config, which is one id or a list."""
    for number in value if isinstance(value, list) else [value]:
        if type(number) is int and 0 <= number < tokenizer.vocab_size:
            yield number


def _mapping(path: Path, what: str) -> Mapping[str, Any]:
    """The content of a JSON file; empty if there is no such file, or no mapping in it."""
    content = read_json(path, DataError, what, finite=False, large=True) if path.is_file() else {}
    return content if isinstance(content, Mapping) else {}
