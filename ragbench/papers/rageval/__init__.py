"""RAGEval (Zhu et al. 2024): its data sets and Table 1, answers over retrieved passages and Table 3.

data set -> passages -> an answer by any generator (an `Experiment`) -> a verdict per keypoint and one row per answer
(notebook 43) -> Table 3's cells, without unanswerable questions, as the paper has it. ``retrieval`` has the retrieval
half of Tables 4 and 5. Notebook 43 has what people are asked, too: Table 2, Figures 5 and 6.

The paper prints no answer prompt, only that all generators got the same one (section 5.2): ours are
``rageval_answer_en`` and ``_zh``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ragbench.data import load_dragonball
from ragbench.data.dragonball import DOMAINS, LANGUAGES
from ragbench.datagen import keypoints, load_schema, make_set
from ragbench.datagen.parts import QRA
from ragbench.datagen.questions import model_keypoints
from ragbench.errors import ConfigError
from ragbench.experiment import Experiment
from ragbench.labelling.keypoints import embedded_keypoint_verdicts, keypoint_verdicts
from ragbench.papers import published
from ragbench.papers.rageval.retrieval import SETTINGS, ShortQueries, bm25, cut, one_language, with_titles
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.records import Dataset, Document, Question

PRINTED = {"zh": "CN", "en": "EN", "finance": "Finance", "law": "Law", "medicine": "Medical"}
_INPUT_TOKENS = 4096  # section 5.1
# Measure: its name in Tables 3 to 5.
_MEASURES = {
    "completeness": "Completeness",
    "hallucination": "Hallucination",
    "irrelevance": "Irrelevance",
    "rouge_l": "Rouge-L",
}
# Rows of Table 1: our name of a domain or type, and the paper's.
_TABLE_1 = {
    "finance": "Finance",
    "law": "Legal",
    "medicine": "Medical",
    "information integration": "Information Integration",
    "factual": "Factual",
    "multi-hop": "Multi-hop Reasoning",
    "summary": "Summary",
    "numerical comparison": "Numerical Comparison",
    "temporal sequence": "Time-series",
    "unanswerable": "Irrelevant/Unanswerable",
}
_COUNTS = ("0 Documents", "1 Document", "2 Documents", "3 Documents", "4 Documents", "More than 4")


def dragonball(language: str = "en", domain: str = "finance", documents: int = 40, seed: int = 0) -> Dataset:
    """Load the first so many documents of one language and domain, and the questions about no others.

    DRAGONBall has 40 documents on finance, the domain of the paper's tables, in each language. ``seed`` has no effect.
    """
    data = load_dragonball(language=language, domain=domain)
    kept = data.documents[:documents]
    ids = {d.id for d in kept}
    questions = tuple(q for q in data.questions if ids.issuperset(q.meta["doc_ids"]))
    return replace(data, documents=kept, questions=questions)


def generated(language: str = "en", domain: str = "finance", documents: int = 20, seed: int = 7) -> Dataset:
    """Make documents and questions of one language and domain by templates, offline, as `load_dragonball` has them."""
    made, about = make_set(load_schema(domain, language), documents, seed), {"domain": domain, "language": language}
    questions = []
    for q in made.questions:
        meta = {**about, "doc_ids": q.doc_ids, "keypoints": q.keypoints}
        questions.append(Question(q.id, q.question, q.answer, tuple(r.text for r in q.references), q.kind, "", meta))
    texts = tuple(Document(d.id, d.title, d.text, (), about) for d in made.documents)
    return Dataset("generated", tuple(questions), texts, meta={**about, "setting": f"templates, seed {seed}"})


DATA: Mapping[str, Callable[..., Dataset]] = {"dragonball": dragonball, "generated": generated}


def table_1(dataset: Dataset) -> pd.DataFrame:
    """Recompute Table 1 from the files (both languages, all domains), beside the paper's cells.

    Columns: row, column, value (counts, or percent with n as the count behind), n, paper.

    Source: RAGEval, Table 1. Its "reference document count" is taken as the number of references: no question's
    references come from more than three documents.
    """
    total = len(dataset.questions)
    documents = Counter((d.meta["domain"], d.meta["language"]) for d in dataset.documents)
    places = [(d, language) for d in DOMAINS for language in reversed(LANGUAGES)]
    counts = [(f"{_TABLE_1[d]} {PRINTED[language]}", "documents", documents[d, language]) for d, language in places]
    kinds = Counter(q.kind for q in dataset.questions)
    counts += [(row, "share of questions", kinds[k]) for k, row in _TABLE_1.items() if k not in DOMAINS]
    sizes = Counter(min(len(q.references), 5) for q in dataset.questions)
    counts += [(row, "share by reference count", sizes[i]) for i, row in enumerate(_COUNTS)]
    table = pd.DataFrame([*counts, ("All", "questions", total)], columns=["row", "column", "n"])
    share = table["column"].str.startswith("share")
    table.insert(2, "value", (100 * table["n"] / total).where(share, table["n"]))
    paper = published("rageval", "Table 1").rename(columns={"value": "paper"})[["row", "column", "paper"]]
    return table.merge(paper, on=["row", "column"], how="left", validate="1:1")


def answers(
    data: Dataset,
    generator: Any = None,
    settings: Mapping[str, tuple[int, int]] | None = None,
    *,
    budget: int = _INPUT_TOKENS,
    **options: Any,
) -> pd.DataFrame:
    """Answer a data set's questions, all in one language, from retrieved passages under the settings of section 5.1.

    Parameters
    ----------
    generator : a reader, or a chat model; None: the extractive reader over these documents.
    settings : name -> (chunk size, passages); None: Table 3's and Table 4's, 512 and 5. Chunks are made by `cut`, each
        with its title before it, for the generator too, and searched by BM25 for the language.
    budget : tokens of prompt, question and passages together, by the embedded WordPiece. The passages are cut to what
        the longest question leaves, for a reader too.
    options : for `Experiment`: ``cassette``, ``folder`` ...

    Returned are rows of the `Experiment` by setting and question, with a column setting; settings that are alike share
    a row's answer. An answer that the limit of new tokens ended counts as it is, as in the paper.
    """
    from ragbench.experiment.axes import is_model
    from ragbench.generation import ABSTENTIONS, ExtractiveReader
    from ragbench.text.wordpiece import default_tokenizer

    language = one_language(data.questions)
    prompt = f"rageval_answer_{language}"
    text = load_prompt(prompt)
    bare = [fill_prompt(text, query=q.text, documents="") for q in data.questions]
    longest = max(len(e.ids) for e in default_tokenizer().encode_batch(bare, add_special_tokens=False))
    if budget <= longest:
        raise ConfigError(f"budget={budget}", f"more than the {longest} tokens of prompt and question", "raise it")
    settings = settings or {"TopK 5": SETTINGS["TopK 5"]}
    sizes = dict.fromkeys(size for size, _ in settings.values())
    chunks = {str(size): with_titles(cut(data.documents, size, language=language)) for size in sizes}
    if generator is None:  # a reader knows how rare a word is among the chunks it reads
        abstention = ABSTENTIONS["chinese" if language == "zh" else "english"]
        generators = {size: ExtractiveReader(some, abstention=abstention) for size, some in chunks.items()}
    else:
        generators = dict.fromkeys(chunks, generator)
    wanted = {(str(size), k) for size, k in settings.values()}
    grid = Experiment(
        f"rageval_answers_{data.name}_{language}",
        **{
            "data": {data.name: data},
            "chunker": {size: (lambda documents, some=some: some) for size, some in chunks.items()},
            "retriever": {"BM25": lambda some: ShortQueries(some, bm25(language))},
            "k": sorted({k for _, k in settings.values()}),
            "N": budget - longest,
            "generator": generators,
            "prompts": dict.fromkeys(generators, prompt) if is_model(generator) else None,
            "keep": lambda cell: (cell.chunker, cell.k) in wanted and cell.generator == cell.chunker,
            **options,
        },
    )
    cells = grid.run(progress=False).set_index(["chunker", "k"], drop=False).rename_axis([None, None])
    parts = [cells.loc[[(str(size), k)]].assign(setting=name) for name, (size, k) in settings.items()]
    return pd.concat(parts, ignore_index=True)


def table_3(rows: pd.DataFrame, by: str = "generator", *, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Average scored answers (notebook 43) as Table 3 does: by generator and language, without unanswerable questions.

    Columns: row, column (as printed, e.g. ``"Completeness EN"``), value, low, high (95% bootstrap over questions), n,
    unscored. ``by="setting"`` makes the generation half of Tables 4 and 5.

    Source: RAGEval, Table 3. Paper value: 0.6845 (GPT-4o, Completeness EN).
    """
    from ragbench.stats import means

    asked = rows[rows["kind"] != "unanswerable"].sort_values("language", ascending=False, kind="stable")  # CN, EN
    parts = [
        means(part, [by], measure, resamples=resamples, seed=seed).assign(column=f"{name} {PRINTED[language]}")
        for measure, name in _MEASURES.items()
        for language, part in asked.groupby("language", sort=False)
    ]
    table = pd.concat(parts, ignore_index=True).rename(columns={by: "row", "mean": "value"})
    return table[["row", "column", "value", "low", "high", "n", "unscored"]]
