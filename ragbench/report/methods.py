"""The methods paragraph of a run, from its manifest: what was asked, of whom, and with which
settings.

The prose is in ``methods.jinja``. A citation is marked in it as ``⟦key⟧`` and written as ``[@key]``
(Pandoc) or ``\\cite{key}`` (LaTeX). Entries come from ``references.bib`` beside this file and from
the run itself: ragbench's version, the models it used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment

from ragbench import __version__
from ragbench.errors import check_known
from ragbench.experiment import Experiment
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
_EMBEDDERS = {"MiniLM": ("wang2020minilm", "reimers2019sbert"), "multilingual-e5": ("wang2024e5",)}
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
# What a run may use that was made for English, by a word of its description in the manifest.
_ENGLISH = {"MiniLM": "the vectors of MiniLM"}
# which no other sentence says
_SETTINGS = ("match", "max_chars", "order", "per_prompt", "truncated")
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
        box = [f"## {CLAIMS}", "\n".join(f"- {in_markdown(claim)}" for claim in self.claims)]
        return (
            "\n\n".join(
                ["## Methods", *(with_citations(p, in_markdown) for p in self.paragraphs), *box]
            )
            + "\n"
        )

    @property
    def latex(self) -> str:
        """As LaTeX, for ``\\input``."""
        text = "\n\n".join(with_citations(p, in_latex) for p in self.paragraphs)
        items = "\n".join(rf"\item {in_latex(claim)}" for claim in self.claims)
        text += f"\n\n\\paragraph{{{CLAIMS}}}\n\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        return f"{NEEDS}\n{text}\n"

    @property
    def bibliography(self) -> str:
        """As BibTeX, sorted by key."""
        return "\n".join(entry for _, entry in sorted(self.entries.items()))

    def with_scores(self, scores: Methods) -> Methods:
        """Add those of the metrics of a run's answers."""
        first, *_, untested = scores.claims
        claims = (
            *self.claims,
            f"Metrics: {first}",
            f"Metrics: {untested[0].lower()}{untested[1:]}",
        )
        return Methods(
            self.paragraphs + scores.paragraphs, {**self.entries, **scores.entries}, claims
        )


def with_citations(text: str, escape: Callable[[str], str] = str) -> str:
    """Write a paragraph with its keys as citations:

    of LaTeX if ``escape`` is `in_latex`, else of Pandoc.
    """

    def cite(keys: str) -> str:
        return (
            rf"~\cite{{{keys}}}"
            if escape is in_latex
            else f" [{'; '.join(f'@{key}' for key in keys.split(','))}]"
        )

    parts = _MARK.split(text)  # text, keys, text, keys, ..., text
    return "".join(cite(part) if i % 2 else escape(part) for i, part in enumerate(parts))


def references() -> dict[str, str]:
    """Read the shipped ``references.bib``: the text of each entry, by key."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    return {
        entry[1]: entry[0]
        for entry in re.finditer(r"^@\w+\{([^,]+),\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    }


def _entry(key: str, /, **fields: str) -> str:
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@misc{{{key},\n{lines}\n}}\n"


def _ragbench_entry(revision: str = "") -> str:
    note = f"Version {__version__}" + (f", revision {revision[:12]}" if revision else "")
    title = "{ragbench}: a research workbench for evaluating retrieval-augmented generation"
    return _entry("ragbench", author="{The ragbench authors}", title=title, year="2026", note=note)


def methods(
    manifest: Mapping[str, Any], counts: Mapping[str, int], intervals: Iterable[str] = ()
) -> Methods:
    """Write the methods of a run from its manifest; nothing is guessed.

    ``counts`` are its "rows", those "failed" and those "missing" (not made when the run was
    stopped). ``intervals`` are the kinds that its tables have (`intervals_of`).
    """
    parameters = manifest.get("parameters", {})
    git = manifest.get("git") or {}
    entries = {"ragbench": _ragbench_entry(git.get("revision", ""))}
    uncommitted = ", with uncommitted changes" if git.get("changed") else ""
    began = [run["began"][:10] for run in manifest.get("runs", ()) if run.get("began")]
    rows = counts.get("rows", 0)
    missing = counts.get("missing", 0)
    left = f"{counts.get('failed', 0):,} of {rows:,} rows failed"
    left += (
        f"; the run was stopped, {missing:,} of {rows + missing:,} rows are not made yet"
        if missing
        else ""
    )
    prompts = {name: f"{name} ({sha[:12]})" for name, sha in manifest.get("prompts", {}).items()}
    judges = _axis(manifest, "judge")
    axes = json.dumps(manifest.get("axes", {}))
    defaults = {name: Experiment.model_fields[name].default for name in _SETTINGS}
    changed = {
        name: parameters[name]
        for name in _SETTINGS
        if parameters.get(name, defaults[name]) != defaults[name]
    }
    facts = {
        "intervals": _interval_words(intervals),
        "manifest": manifest,
        "parameters": parameters,
        "version": manifest.get("packages", {}).get("ragbench", ""),
        "revision": f" (revision {git['revision'][:12]}{uncommitted})"
        if git.get("revision")
        else "",
        "when": f" between {began[0]} and {began[-1]}"
        if len(set(began)) > 1
        else f" on {began[0]}"
        if began
        else "",
        "machine": manifest.get("machine", {}),
        "data": [*_data(manifest)],
        "chunks": [*_chunks(manifest)],
        "retrievers": [*dict.fromkeys(_retrievers(manifest))],
        "budgets": [n for n in parameters.get("N", ()) if n],
        "tokenizer": re.sub(
            r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", r"\1", str(parameters.get("tokenizer", ""))
        ),
        "kernel": MATCHES[parameters.get("match", "exact")][0],
        "generators": [
            _answerer(*person, entries) for person in _axis(manifest, "generator").items()
        ],
        "generator_prompts": ", ".join(
            shown for name, shown in prompts.items() if name != "thesis_grade"
        ),
        "judges": [_answerer(*person, entries) for person in judges.items()],
        "judge_prompts": prompts.get("thesis_grade"),
        "left": left,
        "others": [*_other_languages(manifest)],
        "english": [words for mark, words in _ENGLISH.items() if mark in axes],
        "changed": [f"{name} = {value}" for name, value in changed.items()],
        "sets": [
            f"the {data['questions']:,} of {name}" for name, data in _axis(manifest, "data").items()
        ],
        "labelled_by": [str(judge.get("model", name)) for name, judge in judges.items()],
        "by_model": any("provider" in judge for judge in judges.values()),
    }
    return _cited(_written("run", **facts), entries, _written("claims of a run", **facts))


def are_compared(table: pd.DataFrame) -> bool:
    """Say whether the systems of a table from `ragbench.score` are compared in pairs unasked."""
    systems = table["system"].nunique() if "system" in table else 1
    return 1 < systems <= MOST_COMPARED


def intervals_of(tables: Iterable[pd.DataFrame]) -> list[str]:
    """Return the kinds of interval that tables of `ragbench.means` have."""
    return sorted({kind for table in tables for kind in table.attrs.get("intervals", ())})


def _interval_words(kinds: Iterable[str]) -> str:
    return "; ".join(
        _INTERVALS[kind].format(f"{RESAMPLES:,}") for kind in _INTERVALS if kind in {*kinds}
    )


def score_methods(table: pd.DataFrame, intervals: Iterable[str] = ()) -> Methods:
    """Write the methods of a table from `ragbench.score`: what was scored, by which metrics, who
    labelled.

    ``intervals`` are the kinds that its means have (`intervals_of`).
    """
    columns = table.attrs["numbers"]
    entries = {"ragbench": _ragbench_entry()}
    every = numbers_by_column()
    sources: dict[str, list[str]] = {}
    for column in columns:
        # A metric of one's own has no source.
        source = METRICS[every[column][0]].source if column in every else "of this study"
        sources.setdefault(source, []).append(column.replace("_", " "))
    papers = {source: _PAPERS.get(re.split(r"\W", source)[0].lower()) for source in sources}
    model = table.attrs.get("model")
    checker = table.attrs.get("checker")
    labelled = "labelled_by" in table
    compared = are_compared(table)
    clusters = known_clusters(table) if compared else None
    facts = {
        "clusters": 0 if clusters is None else clusters.nunique() + int(clusters.isna().sum()),
        "intervals": _interval_words(intervals),
        "version": __version__,
        "answers": f"{len(table):,}",
        "systems": table["system"].nunique() if "system" in table else 1,
        "questions": f"{table['question_id'].nunique():,}",
        "metrics": [(source, papers[source], names) for source, names in sources.items()],
        "model": model and _model(model, entries),
        "labelled_by": [*([model["model"]] if model else []), *([checker] if checker else [])],
        "checker": checker,
        "labelled": labelled,
        "given": set(table.get("labelled_by", ())) == {"given"},
        "repairs": table.attrs.get("repairs"),
        "undefined": f"{int(table[columns].isna().sum().sum()):,}",
        "values": f"{table[columns].size:,}",
        "compared": compared,
    }
    return _cited(_written("scores", **facts), entries, _written("claims of scores", **facts))


def _written(part: str, **facts: Any) -> tuple[str, ...]:
    """Fill one part of ``methods.jinja`` in and return its paragraphs."""
    # Not escaped here: Markdown and LaTeX escape it in their own ways.
    texts = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    texts.filters["capitalised"] = lambda text: text[:1].upper() + text[1:]
    texts.filters["listed"] = _listed
    template = texts.from_string(
        Path(__file__).with_name("methods.jinja").read_text(encoding="utf-8")
    )
    text = template.render(facts, part=part, resamples=f"{RESAMPLES:,}").strip()
    return tuple(" ".join(paragraph.splitlines()) for paragraph in re.split(r"\n\s*\n", text))


def _listed(parts: Sequence[Any]) -> str:
    *first, last = map(str, parts or [""])
    return f"{', '.join(first)} and {last}" if first else last


def _cited(paragraphs: Sequence[str], entries: dict[str, str], claims: tuple[str, ...]) -> Methods:
    known = references() | entries
    keys = dict.fromkeys(
        key for p in paragraphs for marked in _MARK.findall(p) for key in marked.split(",")
    )
    check_known("reference", keys, known)
    return Methods(tuple(paragraphs), {key: known[key] for key in keys}, claims)


def _axis(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return manifest.get("axes", {}).get(name, {})


def _label(manifest: Mapping[str, Any], axis: str, place: str) -> str:
    """Return the grid's own name of a chunker or retriever, which may hold a "/", from
    "data/chunker/retriever".
    """
    names = manifest.get("grid", {}).get(axis, ())
    return max(
        (name for name in names if place.endswith(f"/{name}")),
        key=len,
        default=place.rpartition("/")[2],
    )


def _data(manifest: Mapping[str, Any]) -> Iterator[str]:
    for label, facts in _axis(manifest, "data").items():
        key = next(
            (key for name, key in _DATA.items() if name in str(facts.get("name", label)).lower()),
            None,
        )
        out = f", {facts['excluded']} left out" if facts.get("excluded") else ""
        shas = [facts[f"{part}_sha256"][:12] for part in ("questions", "documents")]
        sha = f"; SHA-256 of the questions {shas[0]}, of the documents {shas[1]}"
        name = "" if label == facts.get("name", label) else f"data set {facts['name']!r}, "
        size = (
            f"{name}{facts['questions']:,} questions{out} over {facts['documents']:,} "
            f"documents{sha}"
        )
        yield f"{label}{f' ⟦{key}⟧' if key else ''} ({size})"


def _other_languages(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many questions and documents of a data set are not in English, for those that have
    any.
    """
    for label, facts in _axis(manifest, "data").items():
        sample = facts.get("sampled_documents", 0)
        read = f"{sample:,} documents of {label}" + " looked at" * (sample < facts["documents"])
        of = {
            "other_languages": f"{facts['questions']:,} questions of {label}",
            "documents_in_other_languages": read,
        }
        for key, texts in of.items():
            if others := facts.get(key):
                named = ", ".join(f"{language.capitalize()} {n}" for language, n in others.items())
                yield f"{sum(others.values())} of the {texts} ({named})"


def _chunks(manifest: Mapping[str, Any]) -> Iterator[str]:
    functions = manifest.get("chunkers", {})
    for place, facts in _axis(manifest, "chunker").items():
        how = _function(functions.get(_label(manifest, "chunker", place), {}))
        yield f"{place} ({facts['chunks']:,} chunks{', ' + how if how else ''})"


def _function(function: Mapping[str, Any]) -> str:
    """Describe a function with the arguments it was given."""
    if "partial" in function:
        given = ", ".join(
            f"{name} = {value}" for name, value in function.get("keywords", {}).items()
        )
        return f"{_function(function['partial'])}{' with ' + given if given else ''}"
    return str(function.get("function", function.get("class", ""))).removeprefix("ragbench.")


def _named(label: str, description: str) -> str:
    """Put the grid's label before a description, unless that begins with the label anyway ("BM25:

    BM25").
    """
    return (
        description
        if description.casefold().startswith(label.casefold())
        else f"{label}: {description}"
    )


def _retrievers(manifest: Mapping[str, Any]) -> Iterator[str]:
    depths = manifest.get("parameters", {}).get("k", {})
    for place, settings in _axis(manifest, "retriever").items():
        name = _label(manifest, "retriever", place)
        k = _listed(depths.get(name, ()))
        yield _named(name, _retriever(settings)) + (f", k = {k}" if k else "")


def _retriever(settings: Mapping[str, Any]) -> str:
    """Describe a retriever by its kind and its settings, and the one that it is built over."""
    kind = str(settings.get("retriever", settings.get("class", "")))
    over = settings.get("over")
    keys = [_RETRIEVERS[kind]] if kind in _RETRIEVERS else []
    embedder = str(settings.get("embedder"))
    keys += [key for name, cited in _EMBEDDERS.items() if name in embedder for key in cited]
    plain = {n: v for n, v in settings.items() if isinstance(v, str | int | float) and v != ""}
    given = ", ".join(f"{n} = {v}" for n, v in plain.items() if n not in _NO_SETTING)
    inner = [
        _retriever(each)
        for each in (over if isinstance(over, list) else [over])
        if isinstance(each, Mapping)
    ]
    below = f" over {_listed(inner)}" if inner else ""
    cited = f" ⟦{','.join(keys)}⟧" if keys else ""
    return kind + cited + (f" ({given})" if given else "") + below


def _answerer(label: str, person: Mapping[str, Any], entries: dict[str, str]) -> str:
    """Describe who answered, or who graded."""
    if "provider" in person:
        return f"{label}: {_model(person, entries)}"
    return _named(label, person.get("generator") or person.get("name") or _function(person))


def _model(model: Mapping[str, Any], entries: dict[str, str]) -> str:
    """Describe a model with its options, and add its entry."""
    ollama = model["provider"] == "ollama"
    digest = (model.get("digest") or "")[:12]
    key = "model:" + re.sub(r"[^\w.-]+", "-", model["model"])
    name = in_latex(model["model"])
    library = rf"\url{{https://ollama.com/library/{model['model'].partition(':')[0]}}}"
    where = library if ollama else in_latex(model["provider"])
    note = {"note": f"Digest {digest}"} if digest else {}
    entries[key] = _entry(key, key=name, title=f"{{{name}}}", howpublished=where, **note)
    options = dict(model.get("options", {}))
    options |= options.pop("options", {}) if isinstance(options.get("options"), Mapping) else {}
    facts = [model["provider"], f"digest {digest}" if digest else "digest not known"]
    # in use, perhaps not what was asked for
    options |= {"num_ctx": model["num_ctx"]} if model.get("num_ctx") else {}
    facts += [f"{n} = {v}" for n, v in sorted(options.items()) if isinstance(v, str | int | float)]
    return f"{model['model']} ⟦{key}{',ollama' if ollama else ''}⟧ ({', '.join(facts)})"
