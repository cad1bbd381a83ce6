"""The methods paragraphs of a run, from its manifest: what was asked, of whom, and with which
settings.

The prose is in ``methods.jinja``. A citation is marked in it as ``⟦key⟧``, and written as
``[@key]`` for Pandoc. Entries come from ``references.bib`` beside this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
from jinja2 import Environment

from ragbench import __version__
from ragbench.experiment import Experiment
from ragbench.metrics.ir_score import MATCHES
from ragbench.report.scores import MOST_COMPARED
from ragbench.report.tables import ReportTable
from ragbench.scoring import Scores
from ragbench.text.escape import in_markdown

_RESAMPLES = 2000  # of the bootstrap, by default
# What is cited for a word in the name of a data set, the settings of a retriever, ...
_CITED = {
    "data": {
        "hotpotqa": "yang2018hotpotqa",
        "ragchecker": "ru2024ragchecker",
        "wikieval": "es2024ragas",
        "dragonball": "zhu2024rageval",
        "generated": "zhu2024rageval",
    },
    "retriever": {
        "bm25": "robertson2009bm25",
        "mmr": "carbonell1998mmr",
        "longcontextreorder": "liu2024lost",
        "hybrid": "cormack2009rrf",
        "minilm": "wang2020minilm,reimers2019sbert",
    },
    "metric": {
        "thesis": "elyagouby2024",
        "ragchecker": "ru2024ragchecker",
        "ragas": "es2024ragas",
        "rageval": "zhu2024rageval",
    },
    "interval": {
        "bootstrap": "efron1993bootstrap",
        "exact": "clopper1934",
        "effective": "korn1998",
    },
}
_NO_SETTING = ("retriever", "class", "factory", "state", "chunks")
# Settings of a run which no other sentence says.
_SETTINGS = ("match", "order", "per_prompt")
_MARK = re.compile(r"\s*⟦([\w,:.-]+)⟧")


@dataclass(frozen=True)
class Methods:
    """Paragraphs with marked citations, and what may be claimed."""

    paragraphs: tuple[str, ...]
    claims: tuple[str, ...]

    @classmethod
    def of_run(
        cls,
        manifest: Mapping[str, Any],
        counts: Mapping[str, int],
        tables: Sequence[ReportTable] = (),
    ) -> Self:
        """Write the methods of a run from its manifest; nothing is guessed.

        ``counts`` are its "rows", those "failed" and those "missing" (not made when the run was
        stopped). ``tables`` have the intervals, and the clusters of their questions.
        """
        axes = manifest["axes"]
        parameters = manifest["parameters"]
        changed = [
            f"{name} = {parameters[name]}"
            for name in _SETTINGS
            if parameters[name] != Experiment.model_fields[name].default
        ]
        facts = {
            "manifest": manifest,
            "axes": axes,
            "parameters": parameters,
            "counts": counts,
            "began": sorted({run["began"][:10] for run in manifest["runs"]}),
            "kernel": MATCHES[parameters["match"]][0],
            "labelled_by": [judge.get("model", name) for name, judge in axes["judge"].items()],
            "changed": changed,
            "minilm": "MiniLM" in str(axes),
            **_statistics(tables),
        }
        return cls(*_written("run", facts))

    @classmethod
    def of_scores(cls, table: Scores, tables: Sequence[ReportTable] = ()) -> Self:
        """Write the methods of a table from `ragbench.score`: what was scored, by which metrics,
        who labelled.

        ``tables`` are made of it, as for `of_run`.
        """
        model = table.facts.get("model")
        checker = table.facts.get("checker")
        makers = [name for name in (model and model["model"], checker) if name]
        if not makers:  # of scores from a file
            makers = [name for name in table.labelled_by if name != "given"]
        facts = {
            "table": table,
            "systems": _systems(table),
            "metrics": _metrics_by_source(table),
            "model": model,
            "checker": checker,
            "labelled_by": makers,
            "labels": table.labelled_by,
            "repairs": table.facts.get("repairs"),
            "values": table[table.numbers].size,
            "undefined": int(table[table.numbers].isna().sum().sum()),
            "compared": any(made.stem == "comparison" for made in tables),
            "most_compared": MOST_COMPARED,
            **_statistics(tables),
        }
        return cls(*_written("scores", facts))

    @property
    def markdown(self) -> str:
        """As Markdown with Pandoc's citations."""
        claims = "\n".join(f"- {in_markdown(claim)}" for claim in self.claims)
        parts = ["## Methods", *map(_cited, self.paragraphs), "## What may be claimed", claims]
        return "\n\n".join(parts) + "\n"

    @property
    def bibliography(self) -> str:
        """The entries of BibTeX that are cited, sorted by key."""
        keys = ",".join(_MARK.findall(" ".join(self.paragraphs))).split(",")
        entries = _references()
        return "\n".join(entries[key] for key in sorted(set(keys)))

    def with_scores(self, scores: Methods) -> Methods:
        """Add those of the metrics of a run's answers."""
        claims = tuple(f"Metrics: {claim}" for claim in scores.claims)
        return Methods(self.paragraphs + scores.paragraphs, self.claims + claims)


def _statistics(tables: Sequence[ReportTable]) -> dict[str, list[str]]:
    """Return the kinds of interval that tables have, and the rules that gave their clusters."""
    notes = [table.frame.attrs for table in tables]
    kinds = {kind for attrs in notes for kind in attrs.get("intervals", ())}
    rules = dict.fromkeys(attrs["clusters"] for attrs in notes if "clusters" in attrs)
    return {"intervals": sorted(kinds), "clusters": [*rules]}


def _cited(text: str) -> str:
    """Write a text as Markdown, its marked keys as citations."""
    return _MARK.sub(lambda mark: f" [@{mark[1].replace(',', '; @')}]", in_markdown(text))


def _references() -> dict[str, str]:
    """Read the shipped ``references.bib``: the text of each entry, by key."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    entries = re.finditer(r"^@\w+\{([^,]+),\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    return {entry[1]: entry[0].replace("VERSION", __version__) for entry in entries}


def _systems(table: pd.DataFrame) -> int:
    return table["system"].nunique() if "system" in table else 1


def _metrics_by_source(scores: Scores) -> dict[str, list[str]]:
    """Return the names of metrics by paper and equation: as `ragbench.score` knew them."""
    names: dict[str, list[str]] = {}
    for column, source in scores.sources.items():
        names.setdefault(source, []).append(column.replace("_", " "))
    return names


def _written(part: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Fill ``methods.jinja`` in; not escaped here, but where it is written as Markdown."""
    texts = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    texts.filters |= {
        "listed": _listed,
        "count": "{:,}".format,
        "settings": _settings,
        "model": _model,
        "cited": _citation,
    }
    source = Path(__file__).with_name("methods.jinja").read_text(encoding="utf-8")
    facts = {**facts, "part": part, "version": __version__, "resamples": _RESAMPLES}
    text = texts.from_string(source).render(facts)
    return map(_paragraphs, text.split("=====\n"))


def _paragraphs(text: str) -> tuple[str, ...]:
    parts = re.split(r"\n\s*\n", text.strip())
    return tuple(" ".join(part.split()) for part in parts)


# -- filters of the template


def _listed(parts: Iterable[Any]) -> str:
    *first, last = map(str, [*parts] or [""])
    return f"{', '.join(first)} and {last}" if first else last


def _citation(text: object, kind: str) -> str:
    """Mark what is cited for the words of a text."""
    words = str(text).casefold()
    keys = [key for word, key in _CITED[kind].items() if word in words]
    return f" ⟦{','.join(keys)}⟧" if keys else ""


def _settings(settings: Mapping[str, Any]) -> str:
    """List the plain settings of a retriever, a chunker or a model."""
    words = []
    for name, value in settings.items():
        if isinstance(value, str | int | float) and value != "" and name not in _NO_SETTING:
            words.append(f"{name} = {value}")
    return ", ".join(words)


def _servers(model: Mapping[str, Any]) -> str:
    """Count the answers by version and day, or name the server of a run without a cassette."""
    counted = [entry for entry in model.get("servers", ()) if entry[0]]
    total = sum(count for _, _, count in model.get("servers", ()))
    words = [f"{count} of {total} answers by {version} on {day}" for version, day, count in counted]
    return "; ".join(words) or model.get("server", "")


def _model(model: Mapping[str, Any]) -> str:
    """Describe a model with its options, by which it is cited."""
    options = {**model["options"], **model["options"].get("options", {})}
    for limit in ("num_ctx", "num_predict"):
        if model.get(limit):  # in use, perhaps not what was asked for
            options[limit] = model[limit]
    digest = f"digest {(model.get('digest') or 'not known')[:12]}"
    if model.get("digest") == "":
        digest = "the weights behind its address were not checked"
    words = [model["provider"], digest, model.get("family"), model.get("weights")]
    if parent := model.get("parent_model"):
        words.append(f"made here of {parent}, nobody can pull it")
    if modelfile := model.get("modelfile"):
        words.append(f"SHA-256 of its Modelfile {modelfile['sha256'][:12]}")
    words.append(_servers(model))
    words.append(_settings(dict(sorted(options.items()))))
    cited = " ⟦ollama⟧" if model["provider"] == "ollama" else ""
    return f"{model['model']}{cited} ({', '.join(filter(None, words))})"
