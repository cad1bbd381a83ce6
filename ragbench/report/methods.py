"""The methods paragraph of a run, from its manifest: what was asked, of whom, and with which settings.

A citation is marked in the text as ``⟦key⟧`` and written as ``[@key]`` (Pandoc) or ``\\cite{key}`` (LaTeX).
Entries come from ``references.bib`` beside this file and from the run itself: ragbench's version, the models it used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

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


def cite(*keys: str) -> str:
    """Mark a place in a text where keys are cited."""
    return f" ⟦{','.join(keys)}⟧"


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
    paragraphs = [
        " ".join([*_software(manifest, entries), *_data(manifest)]),
        " ".join([*_chunks(manifest), *_retrieval(manifest), *_contexts(manifest)]),
        " ".join([*_people("generator", manifest, entries), *_people("judge", manifest, entries)]),
        _statistics(counts, graded=bool(_axis(manifest, "judge"))),
    ]
    return _cited([p for p in paragraphs if p], entries, _run_claims(manifest))


def _run_claims(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Say who labelled, for which population a run speaks, what was clustered and what was not tested."""
    sets = [f"the {data['questions']:,} of {name}" for name, data in _axis(manifest, "data").items()]
    judges = _axis(manifest, "judge")
    models = [str(person["model"]) for person in judges.values() if "provider" in person]
    return (
        _who(models, embedded=len(models) < len(judges), what="Grades", missing="No answer was graded"),
        f"Population: questions like {listed(sets) or 'these'}, about these documents. Intervals say nothing of other "
        "documents, chunks, models, versions, prompts or seeds, unless they are in the grid.",
        _CLUSTERED,
        "Not tested: differences between systems in the tables of means. Means whose intervals overlap may differ, and "
        "means whose intervals do not were not corrected for the number of comparisons; rb.stats.compare tests pairs.",
    )


_CLUSTERED = (
    "Clustered: nothing; each question counts as independent. Where questions share a document or a topic, intervals "
    "are too narrow: name that column in rb.stats.compare(cluster=) and rb.means(groups=)."
)


def _who(models: Sequence[str], *, embedded: bool, what: str, missing: str) -> str:
    """Say who labelled; nobody known as a person ever did in a run."""
    by = [*models, *(["rules and sentence vectors"] if embedded else [])]
    if not by:
        return f"{missing}: nothing may be claimed about right answers, only about what the tables measure."
    return (
        f"{what} were given by {listed(by)}; checked by a person: 0. They rank systems as far as they agree with "
        "people; a share of right answers needs labels by people (help/study.md, docs/study.md)."
    )


def score_methods(table: pd.DataFrame) -> Methods:
    """Write the methods of a table from `ragbench.score`: what was scored, by which metrics, who labelled."""
    entries: dict[str, str] = {}
    software, columns = environment(), table.attrs["numbers"]
    git = software["git"] or {}
    entries["ragbench"] = ragbench_entry(software["packages"]["ragbench"], git.get("revision", ""))
    systems = table["system"].nunique() if "system" in table else 1
    said = [
        f"{len(table):,} answers of {systems} system{'s' * (systems > 1)} to {table['question_id'].nunique():,} "
        f"questions were scored with ragbench {software['packages']['ragbench']}{cite('ragbench')}."
    ]
    every = numbers_by_column()
    sources: dict[str, list[str]] = {}
    for column in columns:
        sources.setdefault(METRICS[every[column][0]].source, []).append(column.replace("_", " "))
    for source, named in sources.items():
        paper = PAPERS.get(re.split(r"\W", source)[0].lower())
        said.append(f"Metrics ({source}){cite(paper) if paper else ''}: {listed(named)}.")
    checker = table.attrs.get("checker")
    embedded = "labelled_by" in table and bool(table["labelled_by"].str.startswith("embedded").any())
    if model := table.attrs.get("model"):
        key = _add_model(entries, model)
        said.append(f"Labels were given by {model['model']}{cite(key)} ({', '.join(_model(model))}).")
    elif embedded:
        said.append(
            f"{'Other labels' if checker else 'Labels'} were made without a language model, by sentence vectors and "
            "rules; they are stand-ins for those of a model or of people."
        )
    elif "labelled_by" in table:
        said.append("Labels came with the answers.")
    if checker:
        said.append(f"Claims were checked by {checker}.")
    if repairs := table.attrs.get("repairs"):
        said.append(f"Mended while reading: {'; '.join(repairs)}.")
    means = (
        f"Means have 95% percentile bootstrap intervals ({RESAMPLES:,} resamples of questions, seed 0)"
        f"{cite('efron1993bootstrap')}; n counts the answers scored. {int(table[columns].isna().sum().sum()):,} of "
        f"{table[columns].size:,} values are undefined or unscored; they are left out of the means and counted beside."
    )
    compared = 1 < systems <= MOST_COMPARED
    if compared:
        means += (
            " Systems are compared over the same questions by paired permutation tests; Holm's method corrects the "
            "p-values over the whole table."
        )
    labelled_by = set(table.get("labelled_by", ()))
    models = [*([table.attrs["model"]["model"]] if table.attrs.get("model") else []), *([checker] if checker else [])]
    claims = (
        "Labels came with the answers; who gave them, and whether a person checked them, is not known here: say so. "
        "The numbers are worth what these labels are."
        if labelled_by == {"given"}
        else _who(models, embedded=embedded, what="Labels", missing="No label was made"),
        f"Population: questions like these {table['question_id'].nunique():,}; who chose them is not known here.",
        _CLUSTERED,
        "Not tested: " + ("systems that were not asked the same questions." if compared else "any difference."),
    )
    return _cited([" ".join(said), means], entries, claims)


def ledger_methods(papers: Sequence[str]) -> Methods:
    """Write what the numbers of the ledger are, and what may be claimed with them."""
    named = listed([f"{TITLES[paper]}{cite(PAPERS[paper])}" for paper in papers])
    said = (
        f"Beside the number that a paper printed ({named}) stands what is computed here from outputs that others "
        f"recorded, and what was measured here with ragbench {__version__}{cite('ragbench')}. Who recorded and who "
        "measured is said under each table or in its column by."
    )
    claims = (
        "Labels: of printed and recorded numbers those of the papers; of ours those of the tool or model named with "
        "the table, checked by a person: 0.",
        "Population: the n questions or answers beside each number. Where the paper had more or others, a difference "
        "is one of the sample, too.",
        "Clustered: nothing; the numbers here have no intervals.",
        "Not tested: the differences. A number close to the paper's does not show that the method is the same.",
    )
    return _cited([said], {"ragbench": ragbench_entry(__version__)}, claims)


def _cited(paragraphs: Sequence[str], entries: dict[str, str], claims: tuple[str, ...]) -> Methods:
    known = references() | entries
    keys = dict.fromkeys(key for p in paragraphs for marked in _MARK.findall(p) for key in marked.split(","))
    check_known("reference", keys, known)
    return Methods(tuple(paragraphs), {key: known[key] for key in keys}, claims)


def _axis(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return manifest.get("axes", {}).get(name, {})


def listed(parts: Sequence[str]) -> str:
    """Join with commas and a last "and"."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else ""


def _software(manifest: Mapping[str, Any], entries: dict[str, str]) -> list[str]:
    git, machine = manifest.get("git") or {}, manifest.get("machine", {})
    version = manifest.get("packages", {}).get("ragbench", "")
    entries["ragbench"] = ragbench_entry(version, git.get("revision", ""))
    where = (
        f" (revision {git['revision'][:12]}" + (", with uncommitted changes)" if git.get("changed") else ")")
        if git.get("revision")
        else ""
    )
    began = [run["began"][:10] for run in manifest.get("runs", ()) if run.get("began")]
    when = f" between {began[0]} and {began[-1]}" if len(set(began)) > 1 else f" on {began[0]}" if began else ""
    on = f"{machine.get('system', '')} {machine.get('processor', '')}".strip()
    size = f", {machine['cores']} cores" if machine.get("cores") else ""
    size += f", {machine['memory_gib']} GiB of memory" if machine.get("memory_gib") else ""
    python = manifest.get("python", "")
    said = f'The experiment "{manifest.get("name", "")}" was run{when} with ragbench {version}{where}'
    return [f"{said}{cite('ragbench')} under Python {python} ({on}{size})."]


def _data(manifest: Mapping[str, Any]) -> list[str]:
    sets = []
    for label, facts in _axis(manifest, "data").items():
        key = next((key for name, key in _DATA.items() if name in str(facts.get("name", label)).lower()), None)
        out = f", {facts['excluded']} left out" if facts.get("excluded") else ""
        shas = [facts[f"{part}_sha256"][:12] for part in ("questions", "documents")]
        sha = f"; SHA-256 of the questions {shas[0]}, of the documents {shas[1]}"
        named = "" if label == facts.get("name", label) else f"data set {facts['name']!r}, "
        size = f"{named}{facts['questions']:,} questions{out} over {facts['documents']:,} documents{sha}"
        sets.append(f"{label}{cite(key) if key else ''} ({size})")
    return [f"Data: {listed(sets)}."] if sets else []


def _chunks(manifest: Mapping[str, Any]) -> list[str]:
    functions = manifest.get("chunkers", {})
    chunkers = []
    for place, facts in _axis(manifest, "chunker").items():
        how = _call(functions.get(place.rpartition("/")[2], {}))
        chunkers.append(f"{place} ({facts['chunks']:,} chunks{', ' + how if how else ''})")
    return [f"Documents were cut into chunks: {listed(chunkers)}."] if chunkers else []


def _call(function: Mapping[str, Any]) -> str:
    """Describe a function with the arguments it was given."""
    if "partial" in function:
        given = ", ".join(f"{name} = {value}" for name, value in function.get("keywords", {}).items())
        return f"{_call(function['partial'])}{' with ' + given if given else ''}"
    return str(function.get("function", function.get("class", ""))).removeprefix("ragbench.")


def _retrieval(manifest: Mapping[str, Any]) -> list[str]:
    depths = manifest.get("parameters", {}).get("k", {})
    said: dict[str, None] = {}
    retrievers = {place.rpartition("/")[2]: settings for place, settings in _axis(manifest, "retriever").items()}
    names = {_settings(settings): name for name, settings in retrievers.items()}
    for name, settings in retrievers.items():
        k = listed([str(v) for v in depths.get(name, ())])
        said[_named(name, _retriever(settings, names)) + (f", k = {k}" if k else "")] = None
    return [f"Retrievers: {'; '.join(said)}."] if said else []


def _named(label: str, description: str) -> str:
    """Put the grid's label before a description, unless that begins with the label anyway ("BM25: BM25")."""
    return description if description.casefold().startswith(label.casefold()) else f"{label}: {description}"


def _settings(settings: Mapping[str, Any]) -> str:
    """Write settings in one way, without what depends on the chunks: to know a retriever again inside another one."""
    return json.dumps({n: v for n, v in settings.items() if n not in ("class", "chunks")}, sort_keys=True)


def _within(settings: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Describe a retriever inside another one: by its name where it stands in the list itself."""
    return names.get(_settings(settings)) or _retriever(settings, names)


def _retriever(settings: Mapping[str, Any], names: Mapping[str, str]) -> str:
    kind, over = str(settings.get("retriever", settings.get("class", ""))), settings.get("over")
    if kind == "BM25":
        numbers = ", ".join(f"{n} = {settings[n]:g}" for n in ("k1", "b", "k3") if n in settings)
        terms = f", terms of {settings['tokenizer']!r}" if settings.get("tokenizer") else ""
        return f"BM25{cite('robertson2009bm25')} (variant {settings.get('variant')!r}, {numbers}{terms})"
    if kind == "Dense":
        mini = "MiniLM" in str(settings.get("embedder"))
        keys = cite("wang2020minilm", "reimers2019sbert") if mini else ""
        return f"{settings.get('similarity', '')} similarity of vectors by {settings.get('embedder')}{keys}"
    below = f" over {_within(over, names)}" if isinstance(over, Mapping) else ""
    if kind == "MMR":
        numbers = f"λ = {settings.get('lambda_mult')}, {settings.get('fetch_k')} candidates"
        return f"maximal marginal relevance{cite('carbonell1998mmr')} ({numbers}){below}"
    if kind == "LongContextReorder":
        return f"best chunks at both ends{cite('liu2024lost')} (order {settings.get('order')!r}){below}"
    if kind == "Hybrid":
        parts = listed([_within(one, names) for one in over or ()])
        return f"reciprocal rank fusion{cite('cormack2009rrf')} (constant {settings.get('constant')}) of {parts}"
    if kind == "MultiQuery":
        how = settings.get("decompose", {})
        by = f"{how.get('decomposer')}" + (f", {how['model']}" if how.get("model") else "")
        numbers = f"sub-questions by {by}; {settings.get('k_each')} chunks each, {settings.get('keep')} kept"
        return f"multiple queries ({numbers}){below}"
    plain = {n: v for n, v in settings.items() if n not in _NO_SETTING and isinstance(v, str | int | float) and v != ""}
    given = ", ".join(f"{name} = {value}" for name, value in plain.items())
    return kind + (f" ({given})" if given else "") + below


def _contexts(manifest: Mapping[str, Any]) -> list[str]:
    parameters = manifest.get("parameters", {})
    budgets = [n for n in parameters.get("N", ()) if n]
    if not budgets:
        return []
    name = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", r"\1", str(parameters.get("tokenizer", "")))
    token = ", its begin token counted" if parameters.get("begin_token") else ""
    tokens = listed([str(n) for n in budgets])
    alone = " N = 0 asks without documents." if 0 in parameters.get("N", ()) else ""
    kernel = MATCHES[parameters.get("match", "exact")][0]
    compared = "Characters were compared as they are."
    if form := parameters.get("form"):
        compared = f"White space, line breaks and soft hyphens were normalised first, and characters composed ({form})."
    return [
        f"The chunks found were joined and cut to N = {tokens} tokens (tokenizer: {name}{token}).{alone} "
        f"The IR score is the length of the longest common {kernel} of each supporting sentence and the "
        f"context, divided by the sentence's length, and averaged over the sentences{cite(PAPERS['thesis'])}. "
        f"{compared}"
    ]


def _people(axis: str, manifest: Mapping[str, Any], entries: dict[str, str]) -> list[str]:
    """Describe who answered, or who graded."""
    people = []
    for label, person in _axis(manifest, axis).items():
        if "provider" in person:
            keys = [_add_model(entries, person), *(["ollama"] if person["provider"] == "ollama" else [])]
            people.append(f"{label}: {person['model']}{cite(*keys)} ({', '.join(_model(person))})")
        else:
            name = person.get("generator") or person.get("name") or _call(person)
            settings = [f"{n} = {person[n]}" for n in ("threshold",) if n in person]
            card = person.get("card") or {}
            if {"what", "fitted_on"} <= set(card):
                settings.append(f"{card['what'].partition(';')[0]}; fitted on {card['fitted_on']}")
            people.append(_named(label, name + (f" ({'; '.join(settings)})" if settings else "")))
    if not people:
        return []
    used = manifest.get("prompts", {})
    mine = {n: sha for n, sha in used.items() if (n == "thesis_grade") == (axis == "judge")}
    live = any("provider" in person for person in _axis(manifest, axis).values())
    prompts = ", ".join(f"{n} ({sha[:12]})" for n, sha in mine.items())
    said = f" Prompts and their SHA-256: {prompts}." if live and prompts else ""
    if axis == "generator":
        return [f"Answers were given by {'; '.join(people)}.{said}"]
    shown = manifest.get("parameters", {}).get("per_prompt")
    how = f" Answers shown to the judge at once: {shown}." if live else ""
    return [
        f"Answers were graded in five categories, 1 (no information) to 5 (right){cite(PAPERS['thesis'])}, "
        f"by {'; '.join(people)}.{how}{said}"
    ]


def _add_model(entries: dict[str, str], model: Mapping[str, Any]) -> str:
    """Add a model's entry and return its key."""
    key = "model:" + re.sub(r"[^\w.-]+", "-", model["model"])
    library = rf"\url{{https://ollama.com/library/{model['model'].partition(':')[0]}}}"
    where = library if model["provider"] == "ollama" else escape_latex(model["provider"])
    name = escape_latex(model["model"])
    note = {"note": f"Digest {model['digest'][:12]}"} if model.get("digest") else {}
    entries[key] = bibtex_entry(key, "misc", key=name, title=f"{{{name}}}", howpublished=where, **note)
    return key


def _model(model: Mapping[str, Any]) -> list[str]:
    options = dict(model.get("options", {}))
    options |= options.pop("options", {}) if isinstance(options.get("options"), Mapping) else {}
    said = [f"{model['provider']}"]
    said += [f"digest {model['digest'][:12]}"] if model.get("digest") else ["digest not known"]
    return said + [f"{n} = {v}" for n, v in sorted(options.items()) if isinstance(v, str | int | float)]


def _statistics(counts: Mapping[str, int], *, graded: bool) -> str:
    rows, missing = counts.get("rows", 0), counts.get("missing", 0)
    left = f"{counts.get('failed', 0):,} of {rows:,} rows failed"
    left += f"; the run was stopped, {missing:,} of {rows + missing:,} rows are not made yet" if missing else ""
    shares = f" Shares of grades have exact binomial intervals{cite('clopper1934')}." if graded else ""
    return (
        f"Means have 95% percentile bootstrap intervals over questions ({RESAMPLES:,} resamples, seed 0)"
        f"{cite('efron1993bootstrap')}; n counts the questions scored.{shares} {left}. Unscored rows are left out "
        f"of the means and counted beside them; the audit gives the mean for all of them at their worst and best"
        f"{cite('manski1990bounds')}."
    )
