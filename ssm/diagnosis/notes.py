"""Notes for the user about what a diagnosis takes from a model's files, before anything is read."""

from __future__ import annotations

from ssm.base.errors import DataError, printable
from ssm.data.special import special_tokens
from ssm.data.tokenizers import JsonTokenizer, make_tokenizer
from ssm.models.foreign import ForeignModel
from ssm.models.formats.source import about_tensors
from ssm.models.load import LoadedModel
from ssm.specs.data import TokenizerSpec
from ssm.specs.diagnosis import DiagnosisSpec


def notes(loaded: LoadedModel, tokenizer: TokenizerSpec, spec: DiagnosisSpec, context: int | None) -> list[str]:
    """One line for each note.

    Args:
        context: the context that the user gave; None: it is the one in the model's files.
    """
    lines = []
    if context is None:
        lines.append(f"context {spec.context:,} from its {loaded.described_by}; reading up to {spec.length:,} tokens")
    elif loaded.context not in (None, context):
        lines.append(f"context {context:,} from --context; its {loaded.described_by} says {loaded.context:,}")
    if loaded.note is not None and tokenizer == loaded.tokenizer:
        lines.append(loaded.note)
    first = _first_token(loaded, tokenizer)
    if first is not None:
        lines.append(f"its tokenizer begins texts with {printable(first)}; windows here begin without it")
    if isinstance(loaded.model, ForeignModel):
        lines += about_tensors("transformers does not load ", loaded.model.unloaded)
    return lines


def _first_token(loaded: LoadedModel, spec: TokenizerSpec) -> str | None:
    """The token that the tokenizer puts before every text; None: it puts none, or its config cannot be read."""
    tokenizer = make_tokenizer(spec, iter(()))
    if not isinstance(tokenizer, JsonTokenizer):
        return None
    try:
        special = special_tokens(loaded, spec, tokenizer)
    except DataError:  # a diagnosis does not need these files
        return None
    if special.prefix is None or not special.leads:
        return None
    return tokenizer.inner.id_to_token(special.prefix)
