"""Shell commands that load an extended model in the libraries that read its format."""

from __future__ import annotations

import shlex
from json import dumps
from pathlib import Path

# Python code by library. {model} is the folder in double quotes, because the shell quotes the code in single quotes.
LOADED = {
    "transformers": "from transformers import AutoModelForCausalLM as M; print(M.from_pretrained({model}))",
    "fla": "import fla; from transformers import AutoModelForCausalLM as M; print(M.from_pretrained({model}))",
    "mamba_ssm": "from mamba_ssm.models.mixer_seq_simple import MambaLMHeadModel as M; "
    'print(M.from_pretrained({model}, device="cuda"))',
}
TASKS = "lambada_openai,wikitext"


def usages(library: str | None, model: Path, tokenizer: str | None) -> dict[str, str]:
    """A command for each library that can load the model.

    Args:
        library: the library of the model's format; None: a run of ssm.
        model: the model's folder.
        tokenizer: the tokenizer that the user gave; None: the model's own.
    """
    commands = {}
    if library is not None:
        commands[library] = (
            f"python -c {shlex.quote(LOADED[library].format(model=dumps(str(model), ensure_ascii=False)))}"
        )
    named = {"pretrained": str(model)} | ({"tokenizer": tokenizer} if tokenizer else {})
    if any("," in value for value in named.values()):  # the harness would split it
        arguments = dumps(named, ensure_ascii=False)
    else:
        arguments = ",".join(f"{key}={value}" for key, value in named.items())
    command = f"python -m ssm.harness --model ssm --model_args {shlex.quote(arguments)} --tasks {TASKS}"
    return commands | {"lm-evaluation-harness": command}
