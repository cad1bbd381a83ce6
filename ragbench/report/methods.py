"""The methods paragraph of a run, from its manifest: what was asked, of whom, and with which settings.

The prose stands in ``methods.jinja``. A citation is marked in it as ``⟦key⟧`` and written as ``[@key]`` (Pandoc) or
``\\cite{key}`` (LaTeX). Entries come from ``references.bib`` beside this file and from the run itself: ragbench's
version, the models it used.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment

from ragbench import __version__
from ragbench.errors import check_known
from ragbench.experiment.manifest import environment
from ragbench.metrics.ir_score import MATCHES
from ragbench.metrics.table import METRICS, numbers_by_column
from ragbench.papers import PAPERS as TITLES
from ragbench.report.tables import escape_latex, first_line

PAPERS = {
    "thesis": "elyagouby2024",
    "ragchecker": "ru2024ragchecker",
    "ragas": "es2024ragas",
    "rageval": "zhu2024rageval",
}
_DATA = {
    "hotpotqa": "yang2018hotpotqa",
    "ragchecker": PAPERS["ragchecker"],
    "wikieval": PAPERS["ragas"],
    "dragonball": PAPERS["rageval"],
    "generated": PAPERS["rageval"],
}

_NO_SETTING = ("retriever", "class", "state", "factory", "over")

CLAIMS = "What may be claimed"
RESAMPLES = 2000  # of the bootstrap behind the tables
MOST_COMPARED = 8  # systems with scores of which every pair is compared
_MARK = re.compile(r"\s*⟦([\w,:.-]+)⟧")


def references() -> dict[str, str]:
    """Read the shipped ``references.bib``: the text of each entry, by key."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    return {entry[1]: entry[0] for entry in re.finditer(r"^@\w+\{([^,]+),\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)}


def bibtex_entry(key: str, kind: str, /, **fields: str) -> str:
    """Write one entry of BibTeX."""
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}\n}}\n"


def ragbench_entry(version: str, revision: str = "") -> str:
    """Write the entry of ragbench itself."""
    note = f"Version {version}" + (f", revision {revision[:12]}" if revision else "")
    title = "{ragbench}: a research workbench for evaluating retrieval-augmented generation"
    return bibtex_entry("ragbench", "misc", author="{The ragbench authors}", title=title, year="2026", note=note)


def as_markdown(text: str) -> str:
    """Write the marked citations as Pandoc reads them."""
    return _MARK.sub(lambda mark: " [" + "; ".join(f"@{key}" for key in mark[1].split(",")) + "]", text)


def as_latex(text: str) -> str:
    """Write the text for LaTeX with its citations as commands."""
    *pairs, last = _MARK.split(text)  # text, keys, text, keys, ..., text
    cited = (rf"{escape_latex(before)}~\cite{{{keys}}}" for before, keys in zip(pairs[::2], pairs[1::2], strict=True))
    return "".join([*cited, escape_latex(last)])


@dataclass(frozen=True)
class Methods:
    """The paragraphs, with marked citations, the entries of BibTeX they cite, by key, and what may be claimed."""

    paragraphs: tuple[str, ...]
    entries: Mapping[str, str]
    claims: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """As Markdown with Pandoc's citations."""
        box = [f"## {CLAIMS}", "\n".join(f"- {claim}" for claim in self.claims)]
        return "\n\n".join(["## Methods", *(as_markdown(p) for p in self.paragraphs), *box]) + "\n"

    @property
    def latex(self) -> str:
        """As LaTeX, for ``\\input``."""
        text = "\n\n".join(as_latex(p) for p in self.paragraphs)
        items = "\n".join(rf"\item {escape_latex(claim)}" for claim in self.claims)
        text += f"\n\n\\paragraph{{{CLAIMS}}}\n\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        return f"{first_line(text)}\n{text}\n"

    def with_scores(self, scores: Methods) -> Methods:
        """Add those of the metrics of a run's answers."""
        first, *_, untested = scores.claims
        claims = (*self.claims, f"Metrics: {first}", f"Metrics: {untested[0].lower()}{untested[1:]}")
        return Methods(self.paragraphs + scores.paragraphs, {**self.entries, **scores.entries}, claims)

    @property
    def bibliography(self) -> str:
        """As BibTeX, sorted by key."""
        return "\n".join(entry for _, entry in sorted(self.entries.items()))


def methods(manifest: Mapping[str, Any], counts: Mapping[str, int]) -> Methods:
    """Write the methods of a run from its manifest; nothing is guessed.

    ``counts`` are its "rows", those "failed" and those "missing" (not made when the run was stopped).
    """
    entries: dict[str, str] = {}
    parameters, git = manifest.get("parameters", {}), manifest.get("git") or {}
    version = manifest.get("packages", {}).get("ragbench", "")
    entries["ragbench"] = ragbench_entry(version, git.get("revision", ""))
    changed = ", with uncommitted changes" if git.get("changed") else ""
    began = [run["began"][:10] for run in manifest.get("runs", ()) if run.get("began")]
    rows, missing = counts.get("rows", 0), counts.get("missing", 0)
    left = f"{counts.get('failed', 0):,} of {rows:,} rows failed"
    left += f"; the run was stopped, {missing:,} of {rows + missing:,} rows are not made yet" if missing else ""
    graded = "thesis_grade"
    facts = {
        "manifest": manifest,
        "parameters": parameters,
        "version": version,
        "revision": f" (revision {git['revision'][:12]}{changed})" if git.get("revision") else "",
        "when": f" between {began[0]} and {began[-1]}" if len(set(began)) > 1 else f" on {began[0]}" if began else "",
        "machine": _machine(manifest.get("machine", {})),
        "data": _data(manifest),
        "chunks": _chunks(manifest),
        "retrievers": _retrievers(manifest),
        "budgets": [n for n in parameters.get("N", ()) if n],
        "tokenizer": re.sub(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", r"\1", str(parameters.get("tokenizer", ""))),
        "kernel": MATCHES[parameters.get("match", "exact")][0],
        "readers": _people("generator", manifest, entries),
        "reader_prompts": _live(manifest, "generator") and _prompts(manifest, lambda name: name != graded),
        "graders": _people("judge", manifest, entries),
        "live_graders": _live(manifest, "judge"),
        "grader_prompts": _live(manifest, "judge") and _prompts(manifest, lambda name: name == graded),
        "left": left,
    }
    return _cited(_written("run", **facts), entries, _run_claims(manifest))


def _run_claims(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Say who labelled, for which population a run speaks, what was clustered and what was not tested."""
    sets = [f"the {data['questions']:,} of {name}" for name, data in _axis(manifest, "data").items()]
    judges = _axis(manifest, "judge")
    models = [str(person["model"]) for person in judges.values() if "provider" in person]
    return _written("claims of a run", sets=sets, models=models, embedded=len(models) < len(judges))


def score_methods(table: pd.DataFrame) -> Methods:
    """Write the methods of a table from `ragbench.score`: what was scored, by which metrics, who labelled."""
    software, columns = environment(), table.attrs["numbers"]
    version = software["packages"]["ragbench"]
    entries = {"ragbench": ragbench_entry(version, (software["git"] or {}).get("revision", ""))}
    every = numbers_by_column()
    sources: dict[str, list[str]] = {}
    for column in columns:
        sources.setdefault(METRICS[every[column][0]].source, []).append(column.replace("_", " "))
    papers = {source: PAPERS.get(re.split(r"\W", source)[0].lower()) for source in sources}
    systems = table["system"].nunique() if "system" in table else 1
    model, checker = table.attrs.get("model"), table.attrs.get("checker")
    labelled = "labelled_by" in table
    facts = {
        "version": version,
        "answers": f"{len(table):,}",
        "systems": systems,
        "questions": f"{table['question_id'].nunique():,}",
        "metrics": [(source, papers[source], names) for source, names in sources.items()],
        "model": model and _model(model, entries),
        "models": [*([model["model"]] if model else []), *([checker] if checker else [])],
        "checker": checker,
        "labelled": labelled,
        "embedded": labelled and bool(table["labelled_by"].str.startswith("embedded").any()),
        "given": set(table.get("labelled_by", ())) == {"given"},
        "repairs": table.attrs.get("repairs"),
        "undefined": f"{int(table[columns].isna().sum().sum()):,}",
        "values": f"{table[columns].size:,}",
        "compared": 1 < systems <= MOST_COMPARED,
    }
    return _cited(_written("scores", **facts), entries, _written("claims of scores", **facts))


def ledger_methods(papers: Sequence[str]) -> Methods:
    """Write what the numbers of the ledger are, and what may be claimed with them."""
    named = [f"{TITLES[paper]} ⟦{PAPERS[paper]}⟧" for paper in papers]
    paragraphs = _written("ledger", papers=named, version=__version__)
    return _cited(paragraphs, {"ragbench": ragbench_entry(__version__)}, _written("claims of the ledger"))


def _written(part: str, **facts: Any) -> tuple[str, ...]:
    """Fill one part of ``methods.jinja`` in and return its paragraphs."""
    # Not escaped here: Markdown and LaTeX escape it in their own ways.
    texts = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    texts.filters["listed"] = lambda parts: listed([str(part) for part in parts])
    template = texts.from_string(Path(__file__).with_name("methods.jinja").read_text(encoding="utf-8"))
    text = template.render(facts, part=part, resamples=f"{RESAMPLES:,}").strip()
    return tuple(" ".join(paragraph.splitlines()) for paragraph in re.split(r"\n\s*\n", text))


def _cited(paragraphs: Sequence[str], entries: dict[str, str], claims: tuple[str, ...]) -> Methods:
    known = references() | entries
    keys = dict.fromkeys(key for p in paragraphs for marked in _MARK.findall(p) for key in marked.split(","))
    check_known("reference", keys, known)
    return Methods(tuple(paragraphs), {key: known[key] for key in keys}, claims)


def _axis(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return manifest.get("axes", {}).get(name, {})


def listed(parts: Sequence[str]) -> str:
    """Join with commas and a last "and"."""
    *first, last = parts or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _machine(machine: Mapping[str, Any]) -> str:
    system = f"{machine.get('system', '')} {machine.get('processor', '')}".strip()
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    return system + cores + (f", {machine['memory_gib']} GiB of memory" if machine.get("memory_gib") else "")


def _data(manifest: Mapping[str, Any]) -> list[str]:
    sets = []
    for label, facts in _axis(manifest, "data").items():
        key = next((key for name, key in _DATA.items() if name in str(facts.get("name", label)).lower()), None)
        out = f", {facts['excluded']} left out" if facts.get("excluded") else ""
        shas = [facts[f"{part}_sha256"][:12] for part in ("questions", "documents")]
        sha = f"; SHA-256 of the questions {shas[0]}, of the documents {shas[1]}"
        named = "" if label == facts.get("name", label) else f"data set {facts['name']!r}, "
        size = f"{named}{facts['questions']:,} questions{out} over {facts['documents']:,} documents{sha}"
        sets.append(f"{label}{f' ⟦{key}⟧' if key else ''} ({size})")
    return sets


def _chunks(manifest: Mapping[str, Any]) -> list[str]:
    functions = manifest.get("chunkers", {})
    chunkers = []
    for place, facts in _axis(manifest, "chunker").items():
        how = _call(functions.get(place.rpartition("/")[2], {}))
        chunkers.append(f"{place} ({facts['chunks']:,} chunks{', ' + how if how else ''})")
    return chunkers


def _call(function: Mapping[str, Any]) -> str:
    """Describe a function with the arguments it was given."""
    if "partial" in function:
        given = ", ".join(f"{name} = {value}" for name, value in function.get("keywords", {}).items())
        return f"{_call(function['partial'])}{' with ' + given if given else ''}"
    return str(function.get("function", function.get("class", ""))).removeprefix("ragbench.")


def _named(label: str, description: str) -> str:
    """Put the grid's label before a description, unless that begins with the label anyway ("BM25: BM25")."""
    return description if description.casefold().startswith(label.casefold()) else f"{label}: {description}"


def _retrievers(manifest: Mapping[str, Any]) -> list[str]:
    depths = manifest.get("parameters", {}).get("k", {})
    retrievers = {place.rpartition("/")[2]: settings for place, settings in _axis(manifest, "retriever").items()}
    names = {_settings(settings): name for name, settings in retrievers.items()}
    described = []
    for name, settings in retrievers.items():
        k = listed([str(v) for v in depths.get(name, ())])
        described.append(_named(name, _retriever(settings, names)) + (f", k = {k}" if k else ""))
    return list(dict.fromkeys(described))


def _settings(settings: Mapping[str, Any]) -> str:
    """Write settings in one way, without what depends on the chunks: to know a retriever again inside another one."""
    return json.dumps({n: v for n, v in settings.items() if n not in ("class", "chunks")}, sort_keys=True)


# Retriever: what it does with its settings; the others say their settings as they are.
_RETRIEVERS = {
    "BM25": "BM25 ⟦robertson2009bm25⟧ (variant {variant!r}, {numbers}{terms})",
    "Dense": "{similarity} similarity of vectors by {embedder}{vectors}",
    "MMR": "maximal marginal relevance ⟦carbonell1998mmr⟧ (λ = {lambda_mult}, {fetch_k} candidates){below}",
    "LongContextReorder": "best chunks at both ends ⟦liu2024lost⟧ (order {order!r}){below}",
    "Hybrid": "reciprocal rank fusion ⟦cormack2009rrf⟧ (constant {constant}) of {parts}",
    "MultiQuery": "multiple queries (sub-questions by {by}; {k_each} chunks each, {keep} kept){below}",
}


def _retriever(settings: Mapping[str, Any], names: Mapping[str, str]) -> str:
    def within(inner: Mapping[str, Any]) -> str:
        """Describe a retriever inside this one: by its name where it stands in the list itself."""
        return names.get(_settings(inner)) or _retriever(inner, names)

    kind, over = str(settings.get("retriever", settings.get("class", ""))), settings.get("over")
    below = f" over {within(over)}" if isinstance(over, Mapping) else ""
    if kind not in _RETRIEVERS:
        plain = {n: v for n, v in settings.items() if n not in _NO_SETTING and isinstance(v, str | int | float)}
        given = ", ".join(f"{name} = {value}" for name, value in plain.items() if value != "")
        return kind + (f" ({given})" if given else "") + below
    how = settings.get("decompose", {})
    facts = {
        "numbers": ", ".join(f"{n} = {settings[n]:g}" for n in ("k1", "b", "k3") if n in settings),
        "terms": f", terms of {settings['tokenizer']!r}" if settings.get("tokenizer") else "",
        "vectors": " ⟦wang2020minilm,reimers2019sbert⟧" if "MiniLM" in str(settings.get("embedder")) else "",
        "parts": listed([within(each) for each in over]) if isinstance(over, list) else "",
        "by": ", ".join(str(how[name]) for name in ("decomposer", "model") if how.get(name)),
        "below": below,
    }
    return _RETRIEVERS[kind].format_map(defaultdict(str, settings) | facts)


def _live(manifest: Mapping[str, Any], axis: str) -> bool:
    return any("provider" in person for person in _axis(manifest, axis).values())


def _prompts(manifest: Mapping[str, Any], wanted: Callable[[str], bool]) -> str:
    return ", ".join(f"{n} ({sha[:12]})" for n, sha in manifest.get("prompts", {}).items() if wanted(n))


def _people(axis: str, manifest: Mapping[str, Any], entries: dict[str, str]) -> list[str]:
    """Describe who answered, or who graded."""
    people = []
    for label, person in _axis(manifest, axis).items():
        if "provider" in person:
            people.append(f"{label}: {_model(person, entries)}")
            continue
        settings = [f"threshold = {person['threshold']}"] if "threshold" in person else []
        card = person.get("card") or {}
        if {"what", "fitted_on"} <= set(card):
            settings.append(f"{card['what'].partition(';')[0]}; fitted on {card['fitted_on']}")
        name = person.get("generator") or person.get("name") or _call(person)
        people.append(_named(label, name + (f" ({'; '.join(settings)})" if settings else "")))
    return people


def _model(model: Mapping[str, Any], entries: dict[str, str]) -> str:
    """Describe a model with its options, and add its entry."""
    ollama, digest = model["provider"] == "ollama", (model.get("digest") or "")[:12]
    key, name = "model:" + re.sub(r"[^\w.-]+", "-", model["model"]), escape_latex(model["model"])
    library = rf"\url{{https://ollama.com/library/{model['model'].partition(':')[0]}}}"
    where = library if ollama else escape_latex(model["provider"])
    note = {"note": f"Digest {digest}"} if digest else {}
    entries[key] = bibtex_entry(key, "misc", key=name, title=f"{{{name}}}", howpublished=where, **note)
    options = dict(model.get("options", {}))
    options |= options.pop("options", {}) if isinstance(options.get("options"), Mapping) else {}
    facts = [model["provider"], f"digest {digest}" if digest else "digest not known"]
    facts += [f"{n} = {v}" for n, v in sorted(options.items()) if isinstance(v, str | int | float)]
    return f"{model['model']} ⟦{key}{',ollama' if ollama else ''}⟧ ({', '.join(facts)})"
