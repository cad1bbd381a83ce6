"""RAGEval (Zhu et al. 2024): its data sets and Table 1, answers over retrieved passages and Table 3.

data set -> passages -> an answer by any generator (an `Experiment`) -> a verdict per keypoint (embedded, or by a model)
-> one row per answer -> Table 3's cells, without unanswerable questions, as the paper has it. ``retrieval`` has the
retrieval half of Tables 4 and 5. Notebook 43 has what people are asked: Table 2, Figures 5 and 6.

Section 5.1 gives a generator 4,096 tokens of input and 256 new tokens, and samples as the model does by default
(ChatGPT models: temperature 0.2, top-p 1); `chat_generator` makes a chat model with these settings. The paper prints
no answer prompt, only that all generators got the same one (section 5.2): ours are ``rageval_answer_en`` and ``_zh``.
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
_INPUT_TOKENS, _NEW_TOKENS = 4096, 256  # section 5.1
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
    """Make documents and questions of one language and domain by templates, offline."""
    return as_dataset(make_set(load_schema(domain, language), documents, seed), seed=seed)


DATA: Mapping[str, Callable[..., Dataset]] = {"dragonball": dragonball, "generated": generated}


def as_dataset(generated: Any, *, seed: int | None = None) -> Dataset:
    """Turn a `ragbench.datagen.GeneratedSet` into a `Dataset`, as `load_dragonball` has it."""
    about = {"domain": generated.schema.domain, "language": generated.schema.language}
    questions = []
    for q in generated.questions:
        meta = {**about, "doc_ids": q.doc_ids, "keypoints": q.keypoints}
        questions.append(Question(q.id, q.question, q.answer, tuple(r.text for r in q.references), q.kind, "", meta))
    documents = tuple(Document(d.id, d.title, d.text, (), about) for d in generated.documents)
    setting = "templates" if seed is None else f"templates, seed {seed}"
    return Dataset("generated", tuple(questions), documents, meta={**about, "setting": setting})


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


def chat_generator(spec: str | Mapping[str, Any], host: str | None = None, **options: Any) -> Any:
    """Make a chat model with the limits and the sampling of section 5.1; an option given here goes before the paper's.

    It writes 256 new tokens in a window of 4,096 + 256. Temperature and top-p are 0.2 and 1 for OpenAI's GPT models and
    are not sent to others, whose own configuration then holds. The seed is 0.
    """
    from ragbench.llm import chat_model, model_name

    gpt = model_name(spec).startswith(("openai:gpt-", "openai:chatgpt-"))
    sampling = {"temperature": 0.2, "top_p": 1.0} if gpt else {"temperature": None}
    limits = {"num_ctx": _INPUT_TOKENS + _NEW_TOKENS, "num_predict": _NEW_TOKENS}
    return chat_model(spec, host, **{**limits, **sampling, **options})


def with_keypoints(questions: Sequence[Question], model: Any = None, *, cassette: Any = None) -> tuple[Question, ...]:
    """Give keypoints to the questions that have none: the true answer, cut up by a model or by rule.

    ``meta["keypoints_by"]`` says where each one's come from: ``"data"``, ``"rule"``, ``"model"``, or ``"failed: ..."``
    with the reason. A question whose reply could not be read has no keypoints, and so no scores.

    Source: RAGEval, section 3.3, which has a model do it.
    """
    points = {q.id: (q.meta["keypoints"], "data") for q in questions if q.meta.get("keypoints")}
    lacking = [q for q in questions if q.id not in points]
    if model is None:
        points |= {q.id: (keypoints(q.answer, q.meta.get("language", "en")), "rule") for q in lacking}
    elif lacking:
        asked = [QRA(q.id, q.kind, q.meta.get("language", "en"), q.text, (q.answer,), ()) for q in lacking]
        done = model_keypoints(model, asked, cassette=cassette)
        points |= {name: ((), f"failed: {reason}") for name, reason in done.failed}
        points |= {q.id: (q.keypoints, "model") for q in done.made}
    cut_up = ((q, *points[q.id]) for q in questions)
    return tuple(replace(q, meta=q.meta | {"keypoints": tuple(k), "keypoints_by": by}) for q, k, by in cut_up)


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
    generator : a reader, or a model from `chat_generator`; None: the extractive reader over these documents.
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


def judge_answers(
    questions: Sequence[Question], rows: pd.DataFrame, model: Any = None, **options: Any
) -> list[list[str | None]]:
    """Judge the keypoints of each row of `answers`, by a model or by the stand-in (`embedded_keypoint_verdicts`).

    Returned are verdicts for `score_answers`, a list per row; None where a model's verdict could not be read, and for
    an answer whose call failed: that is no empty answer, so it is not judged. ``options`` are those of
    `ragbench.llm.ask`.

    Source: RAGEval, Eq 3-5.
    """
    by_id = {q.id: q for q in questions}
    asked = [by_id[name] for name in rows["question_id"]]
    verdicts: list[list[str | None]] = [[None] * len(q.meta["keypoints"]) for q in asked]
    judged = [i for i, ok in enumerate(rows["status"] == "ok") if ok and verdicts[i]]
    asked, texts = [asked[i] for i in judged], rows["answer"].iloc[judged].tolist()
    points = [q.meta["keypoints"] for q in asked]
    if model is None:
        labels: Any = embedded_keypoint_verdicts(points, texts, [q.meta["language"] for q in asked])
    else:
        ids = [q.id for q in asked]
        labels = keypoint_verdicts(model, [q.text for q in asked], texts, points, ids=ids, **options).labels
    for i, words in zip(judged, labels, strict=True):
        verdicts[i] = list(words)
    return verdicts


def score_answers(
    questions: Sequence[Question], rows: pd.DataFrame, verdicts: Sequence[Sequence[str | None]]
) -> pd.DataFrame:
    """Score answers, rows of `answers` with a list of verdicts each: one row per answer.

    Completeness, hallucination and irrelevance are NaN where a verdict could not be read. rouge_l is in English the
    released code's, in Chinese of characters, where the released code has jieba's words; NaN for a failed call.

    Source: RAGEval, Eq 3-5 and ROUGE-L (Table 3).
    """
    from ragbench.metrics.keypoints import answer_rouge_l, keypoint_table

    by_id = {q.id: q for q in questions}
    about, rouge = [], []
    for row in rows.itertuples():
        q = by_id[row.question_id]
        language, source = q.meta["language"], q.meta.get("keypoints_by", "data")
        about.append((q.id, q.meta["domain"], language, q.kind, row.setting, row.model, source))
        answer = [row.answer] if row.status == "ok" else []
        variant = "released" if language == "en" else "words"
        rouge += [*answer_rouge_l(answer, [q.answer] * len(answer), language, variant=variant)] or [float("nan")]
    columns = ["question_id", "domain", "language", "kind", "setting", "generator", "keypoints_by"]
    frame = pd.DataFrame(about, columns=columns)
    table = keypoint_table(verdicts).rename(columns={"n": "keypoints", "unscored": "unread"})
    return frame.join(table).assign(rouge_l=rouge, keypoints_by=frame.pop("keypoints_by"))


def table_3(rows: pd.DataFrame, by: str = "generator", *, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Average rows of `score_answers` as Table 3 does: by generator and language, without unanswerable questions.

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
