"""The facts of the section "What was run and on what": sums and distinct values over the runs of a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ssm.base.counting import duration
from ssm.claims.words import number, to_the_minute
from ssm.report.gather import Results, Run

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ModelFacts:
    """A named model, with the runs that use it."""

    title: str
    name: str  # its key in config/models.yaml
    shape: str
    parameters: str
    contexts: str
    runs: int
    tokens: str


@dataclass(frozen=True)
class Facts:
    """The section "What was run and on what"."""

    work: Rows
    machine: Rows
    models: tuple[ModelFacts, ...]
    size: str  # sentences about the largest model, the longest run and the longest context
    diverged: tuple[Run, ...]


def facts(results: Results) -> Facts:
    """The facts of a report's runs and tables."""
    runs = list(results.runs.values())
    trained = [run for run in runs if run.spec.checkpoint is None]
    diverged = tuple(run for run in trained if run.diverged)
    tables = {table.link.text: table.provenance for figure in results.figures for table in figure.tables}
    origins = [run.record["provenance"] for run in runs] + list(tables.values())
    tokens, seconds = (sum(run.record[key] for run in runs) for key in ("tokens", "seconds"))
    work: list[tuple[str, str]] = [
        ("Scale", results.scale),
        ("Training runs", f"{len(trained)} ({len(trained) - len(diverged)} finished, {len(diverged)} diverged)"),
        ("Training tokens", f"{tokens:,}" if trained else ""),
        ("Training time", duration(seconds) if trained else ""),
        ("Speed", f"{number(tokens / max(seconds, 1e-9))} tokens/s in a run, on average" if trained else ""),
        ("Tables", f"{len(tables)}, {duration(sum(_seconds(origin) for origin in tables.values()))} of measuring"),
        ("Written", _period(origins)),
    ]
    machine = [
        ("Device", _distinct(run.record["device"] for run in runs)),
        ("Processor", _distinct(_machine(origin) for origin in origins)),
        ("Python", _distinct(_get(origin, "machine", "python") for origin in origins)),
        ("Packages", _packages(origins)),
        ("Code", _distinct(_code(origin) for origin in origins)),
    ]
    return Facts(
        work=_without_empty(
            work
            + [("Imported weights", text) for text in _imported(runs)]
            + [("Data", text) for text in _data(results)]
        ),
        machine=_without_empty(machine),
        models=_models(runs, results),
        size=_size(runs),
        diverged=diverged,
    )


def _without_empty(rows: list[tuple[str, str]]) -> Rows:
    return tuple((name, text) for name, text in rows if text)


def _models(runs: list[Run], results: Results) -> tuple[ModelFacts, ...]:
    titles: dict[str, set[str]] = {}
    for figure in results.figures:
        for name in figure.task.titles:
            titles.setdefault(name, set()).add(figure.task.title_of(name))
    models = []
    for name in dict.fromkeys(run.spec.model.name for run in runs):
        own = [run for run in runs if run.spec.model.name == name]
        model = own[0].spec.own_model
        mixers = _distinct(mixer.kind for mixer in model.mixers())
        systems = " and ".join(dict.fromkeys(mixer.taxonomy.system for mixer in model.mixers()))
        models.append(
            ModelFacts(
                "; ".join(sorted(titles.get(name.partition("[")[0], {systems}))),  # a member of a grid ends in [...]
                name,
                f"{mixers}, {model.n_layers} layers, width {model.d_model}",
                _distinct(f"{run.record['parameters']:,}" for run in own),
                ", ".join(str(T) for T in sorted({run.spec.training.context for run in own})),
                len(own),
                f"{sum(run.record['tokens'] for run in own):,}",
            )
        )
    return tuple(models)


def _size(runs: list[Run]) -> str:
    if not runs:
        return "No model is trained."
    parameters, tokens = (max(run.record[key] for run in runs) for key in ("parameters", "tokens"))
    context = max(run.spec.training.context for run in runs)
    return (
        f"The largest model has {parameters:,} parameters. The longest run reads {tokens:,} tokens. "
        f"The longest training context is {context:,} tokens."
    )


def _data(results: Results) -> list[str]:
    texts = []
    specs = {run.spec.data.id: run.spec.data for run in results.runs.values()}
    for name, spec in specs.items():
        corpus = results.manifests[name].get("corpus", {})
        parts = [f"{spec.name} ({spec.words})"]
        if corpus.get("documents"):
            parts.append(f"{corpus['documents']:,} documents")
        if "sha256" in corpus:
            parts.append(f"SHA-256 of the corpus {corpus['sha256'][:16]}…")
        texts.append(", ".join([*parts, f"id {name}"]))
    return texts


def _imported(runs: list[Run]) -> list[str]:
    """The checkpoints that were trained elsewhere, each with its revision and the fingerprint of its files."""
    names: dict[str, None] = {}
    for run in runs:
        published = run.record.get("published")
        if published is not None:
            revision = f"revision {published['revision']}, " if published["revision"] else ""
            names[f"{published['name']} ({revision}fingerprint {published['fingerprint']})"] = None
    return list(names)


def _period(origins: list[dict[str, Any]]) -> str:
    dates = sorted(text for text in (_get(origin, "written") for origin in origins) if text)
    if not dates:
        return "no date"
    first, last = map(to_the_minute, (dates[0], dates[-1]))
    return first if first == last else f"{first.removesuffix(' UTC')} to {last}"


def _packages(origins: list[dict[str, Any]]) -> str:
    versions_of: dict[str, set[str]] = {}
    for origin in origins:
        for name, version in origin.get("packages", {}).items():
            versions_of.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {'/'.join(sorted(versions))}" for name, versions in sorted(versions_of.items()))


def _machine(origin: dict[str, Any]) -> str:
    processor, cores = _get(origin, "machine", "processor"), _get(origin, "machine", "cores")
    return f"{processor} ({cores} cores)" if processor else ""


def _code(origin: dict[str, Any]) -> str:
    commit, version = _get(origin, "code", "commit"), _get(origin, "code", "ssm")
    if not version:
        return ""
    changed = " with uncommitted changes" if commit.endswith("-dirty") else ""
    return f"ssm {version}, commit {commit.removesuffix('-dirty')}{changed}"


def _seconds(origin: dict[str, Any]) -> float:
    return float(origin.get("seconds") or 0.0)


def _get(origin: dict[str, Any], *keys: str) -> str:
    value: Any = origin
    for key in keys:
        value = value.get(key, "") if isinstance(value, dict) else ""
    return str(value)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(text for text in texts if text))
