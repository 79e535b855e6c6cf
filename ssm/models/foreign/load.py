"""Create and load models of transformers. Code that comes with a checkpoint is never run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ssm.base.errors import CheckpointError, first_line, nearest, shown
from ssm.base.names import natural
from ssm.models.foreign.cache import OLDEST_TRANSFORMERS
from ssm.models.foreign.model import ForeignModel
from ssm.models.formats.source import Source, about_tensors, find_source
from ssm.specs.foreign import ForeignSpec


def load_foreign(source: Source, device: torch.device | str = "cpu") -> ForeignModel:
    """A causal model of transformers, in float32. Code that comes with a checkpoint is never run.

    Raises:
        CheckpointError: transformers is not installed, does not support the architecture or cannot read the weights; or
            the model is not causal, or cannot read a sequence in pieces.
    """
    if source.config.get("is_encoder_decoder"):
        kind = shown(source.config.get("model_type"))
        raise CheckpointError(f"{source.name}: is an encoder-decoder model ({kind}), not a causal language model")
    transformers = _import_transformers(source.config, str(source.config_path))
    if Path(source.name).is_file() and find_source(source.folder).files != source.files:
        raise CheckpointError(f"{source.name}: transformers reads whole folders; give {source.folder} instead")
    try:
        with quiet(transformers):
            # Prefer transformers' own class: another package can register a different one for the model_type.
            named = (source.config.get("architectures") or [""])[0]
            architecture: Any = getattr(transformers, str(named), transformers.AutoModelForCausalLM)
            loaded: Any = architecture.from_pretrained(
                source.folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # other people's code can raise anything
        raise CheckpointError(f"{source.name}: transformers cannot read it ({first_line(error)})") from error
    inner, loading = loaded
    missing = sorted(loading["missing_keys"], key=natural)
    infinite = [name for name, weight in inner.named_parameters() if not weight.isfinite().all()]
    problems = about_tensors("missing ", missing) + about_tensors("not finite: ", infinite)
    if problems:
        raise CheckpointError(f"{source.name}: is not a valid {type(inner).__name__}: {'; '.join(problems)}")
    with quiet(transformers):
        model = ForeignModel(inner.to(device), source.name)
    # No error: files can hold masks (GPT-J) or heads that predict several tokens, which transformers leaves out.
    model.unloaded = sorted(loading["unexpected_keys"], key=natural)
    if model.is_recurrent:
        model.describe(source.title, source.config)
    return model


def build_foreign(spec: ForeignSpec, source: str) -> ForeignModel:
    """The model of a spec, with transformers' initialization.

    Raises:
        CheckpointError: transformers is not installed, or cannot create the model.
    """
    config = json.loads(spec.config)
    transformers = _import_transformers(config, source)
    architecture: Any = getattr(transformers, spec.architecture, None)
    try:
        with quiet(transformers), torch.random.fork_rng(devices=[]):
            inner = architecture(architecture.config_class.from_dict(config)).float()
    except Exception as error:  # other people's code can raise anything
        raise CheckpointError(f"{source}: transformers cannot create it ({first_line(error)})") from error
    return ForeignModel(inner, source, spec)


def _import_transformers(config: Mapping[str, Any], place: str) -> Any:
    """Import transformers, and check that it supports the architecture of a config.json.

    Raises:
        CheckpointError: it is not installed, or does not support it.
    """
    kind = config.get("model_type")
    unknown = f"{place}: unknown architecture {shown(kind)}"
    os.environ.setdefault("USE_HUB_KERNELS", "NO")  # else it downloads code if the package `kernels` is installed
    try:
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN
    except ImportError as error:
        raise CheckpointError(
            f"{unknown}; models of transformers need `pip install 'transformers>={OLDEST_TRANSFORMERS}'`"
        ) from error
    if not isinstance(kind, str) or kind not in KNOWN:
        own_code = " (ssm never runs the code that comes with a checkpoint)" if "auto_map" in config else ""
        raise CheckpointError(
            f"{unknown}, also to transformers {transformers.__version__}{own_code}; {nearest(str(kind), KNOWN)}"
        )
    return transformers


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without messages and progress bars of transformers. Its settings are restored at the end."""
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
