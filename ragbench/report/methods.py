"""The methods paragraph of a run, from its manifest: what was asked, of whom, and with which
settings.

The prose is in ``methods.jinja``. A citation is marked in it as ``⟦key⟧`` and written as ``[@key]``
(Pandoc) or ``\\cite{key}`` (LaTeX). Entries come from ``references.bib`` beside this file and from
the run itself: ragbench's version, the models it used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment

from ragbench import __version__
from ragbench.errors import check_known
from ragbench.experiment import Experiment
from ragbench.experiment.axes import AXES
from ragbench.metrics.ir_score import MATCHES
from ragbench.metrics.table import METRICS, numbers_by_column
from ragbench.report.tables import NEEDS
from ragbench.stats.intervals import (
    BOOTSTRAP,
    BOOTSTRAP_CLUSTERS,
    EXACT,
    EXACT_CLUSTERS,
    T_CLUSTERS,
    T,
)
from ragbench.stats.tables import known_clusters
from ragbench.text.escape import in_latex, in_markdown

CLAIMS = "What may be claimed"
RESAMPLES = 2000  # of the bootstrap behind the tables
MOST_COMPARED = 8  # systems with scores of which every pair is compared
_PAPERS = {
    "thesis": "elyagouby2024",
    "ragchecker": "ru2024ragchecker",
    "ragas": "es2024ragas",
    "rageval": "zhu2024rageval",
}
_DATA = {
    "hotpotqa": "yang2018hotpotqa",
    "ragchecker": _PAPERS["ragchecker"],
    "wikieval": _PAPERS["ragas"],
    "dragonball": _PAPERS["rageval"],
    "generated": _PAPERS["rageval"],
}
_RETRIEVERS = {
    "BM25": "robertson2009bm25",
    "MMR": "carbonell1998mmr",
    "LongContextReorder": "liu2024lost",
    "Hybrid": "cormack2009rrf",
}
_EMBEDDERS = {"MiniLM": ("wang2020minilm", "reimers2019sbert")}
# What stands for each kind of interval (`ragbench.stats.Interval.method`) in the methods.
_INTERVALS = {
    BOOTSTRAP: "percentile bootstrap ({} resamples, seed 0) ⟦efron1993bootstrap⟧",
    BOOTSTRAP_CLUSTERS: (
        "percentile bootstrap over clusters ({} resamples, seed 0) ⟦efron1993bootstrap⟧"
    ),
    T: "Student's t (fewer than 30 values)",
    T_CLUSTERS: "jackknife over clusters with Student's t (effectively fewer than 30 clusters)",
    EXACT: "exact binomial, for shares ⟦clopper1934⟧",
    EXACT_CLUSTERS: (
        "exact binomial, for shares over clusters, with the effective number of values ⟦korn1998⟧"
    ),
}
_NO_SETTING = ("retriever", "class", "factory", "state", "chunks")
# Settings of a run which no other sentence says.
_SETTINGS = ("match", "max_chars", "order", "per_prompt")
_MARK = re.compile(r"\s*⟦([\w,:.-]+)⟧")


@dataclass(frozen=True)
class Methods:
    """The paragraphs, with marked citations, the entries of BibTeX they cite, by key, and what may
    be claimed.
    """

    paragraphs: tuple[str, ...]
    entries: Mapping[str, str]
    claims: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """As Markdown with Pandoc's citations."""
        paragraphs = [with_citations(text, in_markdown) for text in self.paragraphs]
        claims = "\n".join(f"- {in_markdown(claim)}" for claim in self.claims)
        return "\n\n".join(["## Methods", *paragraphs, f"## {CLAIMS}", claims]) + "\n"

    @property
    def latex(self) -> str:
        """As LaTeX, for ``\\input``."""
        text = "\n\n".join(with_citations(paragraph, in_latex) for paragraph in self.paragraphs)
        items = "\n".join(rf"\item {in_latex(claim)}" for claim in self.claims)
        box = f"\\paragraph{{{CLAIMS}}}\n\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        return f"{NEEDS}\n{text}\n\n{box}\n"

    @property
    def bibliography(self) -> str:
        """As BibTeX, sorted by key."""
        return "\n".join(entry for _, entry in sorted(self.entries.items()))

    def with_scores(self, scores: Methods) -> Methods:
        """Add those of the metrics of a run's answers: who labelled, and what was not tested."""
        first, *_, untested = scores.claims
        untested = untested[0].lower() + untested[1:]
        claims = (*self.claims, f"Metrics: {first}", f"Metrics: {untested}")
        entries = {**self.entries, **scores.entries}
        return Methods(self.paragraphs + scores.paragraphs, entries, claims)


def with_citations(text: str, escape: Callable[[str], str]) -> str:
    """Write a paragraph with its keys as citations of LaTeX (``escape``: `in_latex`) or Pandoc."""
    written = []
    for place, part in enumerate(_MARK.split(text)):  # text, keys, text, keys, ..., text
        if place % 2 == 0:
            written.append(escape(part))
        elif escape is in_latex:
            written.append(rf"~\cite{{{part}}}")
        else:
            written.append(f" [{'; '.join(f'@{key}' for key in part.split(','))}]")
    return "".join(written)


def references() -> dict[str, str]:
    """Read the shipped ``references.bib``: the text of each entry, by key."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    entries = re.finditer(r"^@\w+\{([^,]+),\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    return {entry[1]: entry[0] for entry in entries}


def _entry(key: str, /, **fields: str) -> str:
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@misc{{{key},\n{lines}\n}}\n"


def _ragbench_entry(revision: str = "") -> str:
    note = f"Version {__version__}"
    if revision:
        note += f", revision {revision[:12]}"
    title = "{ragbench}: a research workbench for evaluating retrieval-augmented generation"
    return _entry("ragbench", author="{The ragbench authors}", title=title, year="2026", note=note)


def methods(
    manifest: Mapping[str, Any], counts: Mapping[str, int], intervals: Iterable[str] = ()
) -> Methods:
    """Write the methods of a run from its manifest; nothing is guessed.

    ``counts`` are its "rows", those "failed" and those "missing" (not made when the run was
    stopped). ``intervals`` are the kinds that its tables have (`intervals_of`).
    """
    axes = {axis: manifest.get("axes", {}).get(axis, {}) for axis in AXES}
    people = {axis: axes[axis].items() for axis in ("generator", "judge")}
    models = [person for axis in people.values() for _, person in axis if "provider" in person]
    git = manifest.get("git") or {}
    entries = {"ragbench": _ragbench_entry(git.get("revision", ""))}
    entries |= {_model_key(model): _model_entry(model) for model in models}
    parameters = manifest.get("parameters", {})
    changed = []
    for name in _SETTINGS:
        default = Experiment.model_fields[name].default
        if parameters.get(name, default) != default:
            changed.append(f"{name} = {parameters[name]}")
    facts = {
        "manifest": {"packages": {}, "machine": {}, "prompts": {}} | manifest,
        "axes": axes,
        "git": git,
        "parameters": parameters,
        "counts": {"rows": 0, "failed": 0, "missing": 0, **counts},
        "began": [run["began"][:10] for run in manifest.get("runs", ()) if run.get("began")],
        "papers_of_data": _DATA,
        "chunkers": [_chunks(manifest, *cut) for cut in axes["chunker"].items()],
        "retrievers": _retrievers(manifest, axes["retriever"]),
        "kernel": MATCHES[parameters.get("match", "exact")][0],
        "generators": [_person(*person) for person in people["generator"]],
        "judges": [_person(*person) for person in people["judge"]],
        "labelled_by": [str(judge.get("model", name)) for name, judge in people["judge"]],
        "by_model": any("provider" in judge for _, judge in people["judge"]),
        "intervals": _interval_words(intervals),
        "changed": changed,
        "minilm": "MiniLM" in json.dumps(axes),
    }
    return _written("run", facts, entries)


def are_compared(table: pd.DataFrame) -> bool:
    """Say whether the systems of a table from `ragbench.score` are compared in pairs unasked."""
    systems = table["system"].nunique() if "system" in table else 1
    return 1 < systems <= MOST_COMPARED


def intervals_of(tables: Iterable[pd.DataFrame]) -> list[str]:
    """Return the kinds of interval that tables of `ragbench.means` have."""
    return sorted({kind for table in tables for kind in table.attrs.get("intervals", ())})


def _interval_words(kinds: Iterable[str]) -> str:
    present = {*kinds}
    words = [text for kind, text in _INTERVALS.items() if kind in present]
    return "; ".join(words).format(*[f"{RESAMPLES:,}"] * len(words))


def score_methods(table: pd.DataFrame, intervals: Iterable[str] = ()) -> Methods:
    """Write the methods of a table from `ragbench.score`: what was scored, by which metrics, who
    labelled.

    ``intervals`` are the kinds that its means have (`intervals_of`).
    """
    columns = table.attrs["numbers"]
    model = table.attrs.get("model")
    checker = table.attrs.get("checker")
    compared = are_compared(table)
    clusters = known_clusters(table) if compared else None
    entries = {"ragbench": _ragbench_entry()}
    labelled_by = []
    if model:
        entries[_model_key(model)] = _model_entry(model)
        labelled_by.append(model["model"])
    if checker:
        labelled_by.append(checker)
    facts = {
        "table": table,
        "systems": table["system"].nunique() if "system" in table else 1,
        "metrics": _metrics_by_source(columns),
        "model": model and _model(model),
        "checker": checker,
        "labelled": "labelled_by" in table,
        "labelled_by": labelled_by,
        "given": set(table.get("labelled_by", ())) == {"given"},
        "repairs": table.attrs.get("repairs"),
        "values": table[columns].size,
        "undefined": int(table[columns].isna().sum().sum()),
        "compared": compared,
        "clusters": 0 if clusters is None else clusters.nunique(dropna=False),
        "intervals": _interval_words(intervals),
    }
    return _written("scores", facts, entries)


def _metrics_by_source(columns: Sequence[str]) -> list[tuple[str, str | None, list[str]]]:
    """Return source, key of the paper and names of metrics, by source."""
    every = numbers_by_column()
    names: dict[str, list[str]] = {}
    for column in columns:
        # A metric of one's own has no source.
        source = METRICS[every[column][0]].source if column in every else "of this study"
        names.setdefault(source, []).append(column.replace("_", " "))
    return [
        (source, _PAPERS.get(re.split(r"\W", source)[0].lower()), of_source)
        for source, of_source in names.items()
    ]


def _written(part: str, facts: Mapping[str, Any], entries: Mapping[str, str]) -> Methods:
    """Fill ``methods.jinja`` in; of the entries those that the paragraphs cite are kept."""
    paragraphs = _paragraphs(part, facts)
    known = references() | entries
    marked = [keys for paragraph in paragraphs for keys in _MARK.findall(paragraph)]
    cited = dict.fromkeys(",".join(marked).split(",")) if marked else {}
    check_known("reference", cited, known)
    claims = _paragraphs(f"claims of {part}", facts)
    return Methods(paragraphs, {key: known[key] for key in cited}, claims)


def _paragraphs(part: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    # Not escaped here: Markdown and LaTeX escape it in their own ways.
    texts = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    texts.filters |= {"listed": _listed, "count": "{:,}".format}
    source = Path(__file__).with_name("methods.jinja").read_text(encoding="utf-8")
    text = texts.from_string(source).render(facts, part=part, version=__version__).strip()
    return tuple(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))


def _listed(parts: Iterable[Any]) -> str:
    *first, last = map(str, [*parts] or [""])
    return f"{', '.join(first)} and {last}" if first else last


# -- what stands on the axes


def _label(manifest: Mapping[str, Any], axis: str, place: str) -> str:
    """Return the grid's own name, which may hold a "/", from "data/chunker/retriever"."""
    names = manifest.get("grid", {}).get(axis, ())
    ending = [name for name in names if place.endswith(f"/{name}")]
    return max(ending, key=len, default=place.rpartition("/")[2])


def _chunks(manifest: Mapping[str, Any], place: str, facts: Mapping[str, Any]) -> str:
    label = _label(manifest, "chunker", place)
    how = _function(manifest.get("chunkers", {}).get(label, {}))
    counted = f"{facts['chunks']:,} chunks"
    return f"{place} ({counted}, {how})" if how else f"{place} ({counted})"


def _function(function: Mapping[str, Any]) -> str:
    """Describe a function with the arguments it has."""
    if "partial" in function:
        words = [f"{name} = {value}" for name, value in function.get("keywords", {}).items()]
        named = _function(function["partial"])
        return f"{named} with {', '.join(words)}" if words else named
    return str(function.get("function", function.get("class", ""))).removeprefix("ragbench.")


def _named(label: str, description: str) -> str:
    """Put the grid's label before a description, unless that begins with it ("BM25: BM25")."""
    if description.casefold().startswith(label.casefold()):
        return description
    return f"{label}: {description}"


def _retrievers(manifest: Mapping[str, Any], axis: Mapping[str, Any]) -> list[str]:
    depths = manifest.get("parameters", {}).get("k", {})
    described = []
    for place, settings in axis.items():
        name = _label(manifest, "retriever", place)
        text = _named(name, _retriever(settings))
        if depths.get(name):
            text += f", k = {_listed(depths[name])}"
        described.append(text)
    return list(dict.fromkeys(described))


def _retriever(settings: Mapping[str, Any]) -> str:
    """Describe a retriever by its kind, its settings, and those that it is built over."""
    kind = str(settings.get("retriever", settings.get("class", "")))
    keys = [_RETRIEVERS[kind]] if kind in _RETRIEVERS else []
    for name, cited in _EMBEDDERS.items():
        if name in str(settings.get("embedder")):
            keys += cited
    words = []
    for name, value in settings.items():
        if isinstance(value, str | int | float) and value != "" and name not in _NO_SETTING:
            words.append(f"{name} = {value}")
    over = settings.get("over")
    inner = over if isinstance(over, list) else [over]
    below = [_retriever(part) for part in inner if isinstance(part, Mapping)]
    text = kind
    if keys:
        text += f" ⟦{','.join(keys)}⟧"
    if words:
        text += f" ({', '.join(words)})"
    if below:
        text += f" over {_listed(below)}"
    return text


def _person(label: str, person: Mapping[str, Any]) -> str:
    """Describe who answered, or who graded."""
    if "provider" in person:
        return f"{label}: {_model(person)}"
    return _named(label, person.get("generator") or person.get("name") or _function(person))


def _model(model: Mapping[str, Any]) -> str:
    """Describe a model with its options."""
    options = dict(model.get("options", {}))
    if isinstance(options.get("options"), Mapping):
        options |= options.pop("options")
    if model.get("num_ctx"):  # in use, perhaps not what was asked for
        options["num_ctx"] = model["num_ctx"]
    digest = (model.get("digest") or "")[:12]
    words = [model["provider"], f"digest {digest}" if digest else "digest not known"]
    words += [model[name] for name in ("weights", "server") if model.get(name)]
    for name, value in sorted(options.items()):
        if isinstance(value, str | int | float):
            words.append(f"{name} = {value}")
    keys = [_model_key(model)]
    if model["provider"] == "ollama":
        keys.append("ollama")
    return f"{model['model']} ⟦{','.join(keys)}⟧ ({', '.join(words)})"


def _model_key(model: Mapping[str, Any]) -> str:
    return "model:" + re.sub(r"[^\w.-]+", "-", model["model"])


def _model_entry(model: Mapping[str, Any]) -> str:
    key = _model_key(model)
    name = in_latex(model["model"])
    where = in_latex(model["provider"])
    if model["provider"] == "ollama":
        where = rf"\url{{https://ollama.com/library/{model['model'].partition(':')[0]}}}"
    fields = {"key": name, "title": f"{{{name}}}", "howpublished": where}
    if model.get("digest"):
        fields["note"] = f"Digest {model['digest'][:12]}"
    return _entry(key, **fields)
