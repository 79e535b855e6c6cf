"""How an extended model is used, by those who know its format: commands of a shell."""

from __future__ import annotations

import shlex
from json import dumps
from pathlib import Path

# What Python runs, by library; {model} is the folder in double quotes: a shell's are single.
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
        library: whose format the model is in; None: a run of ssm.
        model: its folder.
        tokenizer: that the user named; None: the model has its own.
    """
    found = {}
    if library is not None:
        found[library] = f"python -c {shlex.quote(LOADED[library].format(model=dumps(str(model), ensure_ascii=False)))}"
    arguments = f"pretrained={model}" + (f",tokenizer={tokenizer}" if tokenizer else "")
    command = f"python -m ssm.harness --model ssm --model_args {shlex.quote(arguments)} --tasks {TASKS}"
    return found | {"lm-evaluation-harness": command}
