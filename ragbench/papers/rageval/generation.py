"""RAGEval's generators (section 5.2): answers over retrieved passages, verdicts on keypoints, Table 3.

data set -> passages -> an answer by any generator (an `Experiment`) -> a verdict per keypoint (embedded, or by a model)
-> one row per answer -> Table 3's cells, without unanswerable questions, as the paper has it.

Section 5.1 gives a generator 4,096 tokens of input and 256 new tokens, and samples as the model does by default
(ChatGPT models: temperature 0.2, top-p 1); `chat_generator` makes a chat model with these settings. The paper prints
no answer prompt, only that all generators got the same one (section 5.2): ours are ``rageval_answer_en`` and ``_zh``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError, DataError
from ragbench.experiment import Experiment
from ragbench.labelling.keypoints import embedded_keypoint_verdicts
from ragbench.papers.rageval import PRINTED, SETTINGS, one_language
from ragbench.papers.rageval.retrieval import Build, ShortQueries, bm25, cut, with_titles
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import Dataset, Question

INPUT_TOKENS, NEW_TOKENS = 4096, 256  # section 5.1
# Measure: its name in Tables 3 to 5.
MEASURES = {
    "completeness": "Completeness",
    "hallucination": "Hallucination",
    "irrelevance": "Irrelevance",
    "rouge_l": "Rouge-L",
}


def chat_generator(spec: str, host: str | None = None, **options: Any) -> Any:
    """Make a chat model with the limits and the sampling of section 5.1.

    Parameters
    ----------
    spec, host, options : as for `ragbench.chat_model`; an option given here goes before the paper's.

    Returns
    -------
    a chat model with 256 new tokens in a window of 4,096 + 256. Temperature and top-p are 0.2 and 1 for OpenAI's GPT
    models and are not sent to others, whose own configuration then holds. The seed is 0.
    """
    from ragbench.llm import chat_model

    gpt = spec.startswith(("openai:gpt-", "openai:chatgpt-"))
    sampling = {"temperature": 0.2, "top_p": 1.0} if gpt else {"temperature": None}
    limits = {"num_ctx": INPUT_TOKENS + NEW_TOKENS, "num_predict": NEW_TOKENS}
    return chat_model(spec, host, **{**limits, **sampling, **options})


def with_keypoints(questions: Sequence[Question], model: Any = None, *, cassette: Any = None) -> tuple[Question, ...]:
    """Give keypoints to the questions that have none: the true answer, cut up by a model or by rule.

    Parameters
    ----------
    questions : their own keypoints stay.
    model, cassette : as for `ragbench.llm.ask`; without a model the rule of `ragbench.datagen.keypoints` cuts.

    Returns
    -------
    the questions. ``meta["keypoints_by"]`` says where each one's come from: ``"data"``, ``"rule"``, ``"model"``, or
    ``"failed: ..."`` with the reason. A question whose reply could not be read has no keypoints, and so no scores.

    Source: RAGEval, section 3.3, which has a model do it.
    """
    from ragbench.datagen import keypoints

    lacking = [q for q in questions if not q.meta.get("keypoints")]
    if model is None:
        cut_up = {q.id: (keypoints(q.answer, q.meta.get("language", "en")), "rule") for q in lacking}
    else:
        cut_up = _keypoints_by_model(lacking, model, cassette)
    done = []
    for question in questions:
        given = question.meta.get("keypoints")
        points, source = (given, "data") if given else cut_up[question.id]
        done.append(replace(question, meta={**question.meta, "keypoints": tuple(points), "keypoints_by": source}))
    return tuple(done)


def _keypoints_by_model(questions: Sequence[Question], model: Any, cassette: Any) -> dict[str, tuple[Any, str]]:
    from ragbench.datagen.parts import QRA
    from ragbench.datagen.questions import model_keypoints

    asked = [QRA(q.id, q.kind, q.meta.get("language", "en"), q.text, (q.answer,), ()) for q in questions]
    done = model_keypoints(model, asked, cassette=cassette)
    failed = {name: ((), f"failed: {reason}") for name, reason in done.failed}
    return failed | {q.id: (q.keypoints, "model") for q in done.made}


def answers(
    data: Dataset,
    generator: Any = None,
    settings: Mapping[str, tuple[int, int]] | None = None,
    *,
    build: Build | None = None,
    how: str = "characters",
    budget: int = INPUT_TOKENS,
    prompt: Prompt | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Answer a data set's questions from retrieved passages, under the settings of section 5.1.

    Parameters
    ----------
    data : questions and documents in one language.
    generator : a reader, or a model from `chat_generator`; None: the extractive reader over these documents.
    settings : name -> (chunk size, passages); None: Table 3's and Table 4's, 512 and 5.
    build : what builds the retriever from chunks; None: BM25 for the language.
    how : how documents are cut, see `ragbench.papers.rageval.retrieval.cut`; their title stands before each chunk, for
        the generator too.
    budget : tokens of the input: prompt, question and passages together, by the embedded WordPiece. The passages are
        cut to what the longest question leaves, for a reader too.
    prompt : id or file with the fields ``{query}`` and ``{documents}``; None: ``rageval_answer_en`` or ``_zh``.
    options : for `Experiment`: ``cassette``, ``folder`` ...

    Returns
    -------
    Rows of the `Experiment` by setting and question, with a column setting; settings that are alike share a row's
    answer. One that a model's limit of new tokens ended is kept as far as it goes (``finish`` is "length"), since the
    paper scores such answers too.

    Raises
    ------
    DataError for questions in several languages or none; ConfigError for a budget that the prompt alone exceeds.
    """
    from ragbench.embedding import default_tokenizer
    from ragbench.experiment.identity import is_model
    from ragbench.generation import ABSTENTIONS, ExtractiveReader

    language = one_language(data.questions)
    prompt = prompt or f"rageval_answer_{language}"
    text = load_prompt(prompt)
    bare = [fill_prompt(text, query=q.text, documents="") for q in data.questions]
    longest = max(len(e.ids) for e in default_tokenizer().encode_batch(bare, add_special_tokens=False))
    if budget <= longest:
        raise ConfigError(f"budget={budget}", f"more than the {longest} tokens of prompt and question", "raise it")
    settings = settings or {"TopK 5": SETTINGS["TopK 5"]}
    sizes = dict.fromkeys(size for size, _ in settings.values())
    chunks = {str(size): with_titles(cut(data.documents, size, how, language)) for size in sizes}
    if generator is None:  # a reader knows how rare a word is among the chunks it reads
        abstention = ABSTENTIONS["chinese" if language == "zh" else "english"]
        generators = {size: ExtractiveReader(cut, abstention=abstention) for size, cut in chunks.items()}
    else:
        generators = dict.fromkeys(chunks, generator)
    wanted = {(str(size), k) for size, k in settings.values()}
    grid = Experiment(
        f"rageval_answers_{data.name}_{language}",
        **{
            "data": {data.name: data},
            "chunker": {size: (lambda documents, cut=cut: cut) for size, cut in chunks.items()},
            "retriever": {"BM25": lambda cut: ShortQueries(cut, build or bm25(language))},
            "k": sorted({k for _, k in settings.values()}),
            "N": budget - longest,
            "generator": generators,
            "prompts": dict.fromkeys(generators, prompt) if is_model(generator) else None,
            "keep": lambda cell: (cell.chunker, cell.k) in wanted and cell.generator == cell.chunker,
            **options,
        },
    )
    rows = grid.run(progress=False)
    parts = [
        rows[(rows["chunker"] == str(size)) & (rows["k"] == k)].assign(setting=name)
        for name, (size, k) in settings.items()
    ]
    return pd.concat(parts, ignore_index=True)


def judge_answers(
    questions: Sequence[Question], rows: pd.DataFrame, model: Any = None, **options: Any
) -> list[list[str | None]]:
    """Judge the keypoints of each answer, by a model or by the stand-in.

    Parameters
    ----------
    questions : with keypoints (`with_keypoints`). rows : from `answers`, about these questions.
    model : a chat model, or None for `embedded_keypoint_verdicts`.
    options : for the model, as for `ragbench.llm.ask`, such as ``cassette``.

    Returns
    -------
    verdicts for `score_answers`, a list per row; None where a model's verdict could not be read, and for an answer
    whose call failed: that is no empty answer, so it is not judged.

    Source: RAGEval, Eq 3-5.
    """
    by_id = {q.id: q for q in questions}
    of_row = [by_id[name] for name in rows["question_id"]]
    verdicts: list[list[str | None]] = [[None] * len(q.meta["keypoints"]) for q in of_row]
    judged = [i for i, ok in enumerate(rows["status"] == "ok") if ok and verdicts[i]]
    points, texts = [of_row[i].meta["keypoints"] for i in judged], rows["answer"].iloc[judged].tolist()
    if model is None:
        labels: Any = embedded_keypoint_verdicts(points, texts, [of_row[i].meta["language"] for i in judged])
    elif not judged:
        labels = []
    else:
        from ragbench.labelling.keypoints import keypoint_verdicts

        ids = [of_row[i].id for i in judged]
        labels = keypoint_verdicts(model, [of_row[i].text for i in judged], texts, points, ids=ids, **options).labels
    for i, words in zip(judged, labels, strict=True):
        verdicts[i] = list(words)
    return verdicts


def score_answers(
    questions: Sequence[Question], rows: pd.DataFrame, verdicts: Sequence[Sequence[str | None]]
) -> pd.DataFrame:
    """Score answers: one row per answer.

    Parameters
    ----------
    questions : with keypoints (`with_keypoints`). rows : from `answers`. verdicts : a list per row.

    Returns
    -------
    DataFrame with columns question_id, domain, language, kind, setting, generator, completeness, hallucination,
    irrelevance (NaN where a verdict could not be read), keypoints, unread, rouge_l (English: the released code's;
    Chinese: characters, where the released code has jieba's words; NaN for a failed call), keypoints_by.

    Raises
    ------
    DataError when rows and verdicts do not pair up.

    Source: RAGEval, Eq 3-5 and ROUGE-L (Table 3).
    """
    from ragbench.metrics.keypoints import answer_rouge_l, keypoint_table

    if len(rows) != len(verdicts):
        raise DataError(f"{len(rows)} answers, {len(verdicts)} lists of verdicts", "as many of each")
    by_id = {q.id: q for q in questions}
    about, rouge = [], []
    for row, labels in zip(rows.itertuples(), verdicts, strict=True):
        question = by_id.get(row.question_id)
        if question is None or len(labels) != len(question.meta["keypoints"]):
            raise DataError(
                f"an answer to {row.question_id!r} with {len(labels)} verdicts",
                "an answer to one of the questions, and a verdict for each of its keypoints",
                "keep rows and verdicts in one order",
            )
        language, variant = question.meta["language"], "released" if question.meta["language"] == "en" else "words"
        about.append((question.id, question.meta["domain"], language, question.kind, row.setting, row.model))
        answer = [row.answer] if row.status == "ok" else []
        rouge += [*answer_rouge_l(answer, [question.answer] * len(answer), language, variant=variant)] or [float("nan")]
    frame = pd.DataFrame(about, columns=["question_id", "domain", "language", "kind", "setting", "generator"])
    frame = frame.join(keypoint_table(verdicts).rename(columns={"n": "keypoints", "unscored": "unread"}))
    source = [by_id[name].meta.get("keypoints_by", "data") for name in frame["question_id"]]
    return frame.assign(rouge_l=rouge, keypoints_by=source)


def table_3(rows: pd.DataFrame, by: str = "generator", *, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Average rows as Table 3 does: by generator and language, without unanswerable questions.

    Parameters
    ----------
    rows : from `score_answers`.
    by : the column that makes the table's rows; ``"setting"`` for the generation half of Tables 4 and 5.
    resamples, seed : of the intervals.

    Returns
    -------
    DataFrame with columns row, column (as printed, e.g. ``"Completeness EN"``), value, low, high (95% bootstrap over
    questions), n, unscored.

    Source: RAGEval, Table 3. Paper value: 0.6845 (GPT-4o, Completeness EN).
    """
    from ragbench.stats import means

    if rows.empty:
        raise DataError("no rows", "at least one answered question", "answer and judge some questions first")
    answerable = rows[rows["kind"] != "unanswerable"].sort_values("language", ascending=False, kind="stable")  # CN, EN
    parts = [
        means(part, [by], measure, resamples=resamples, seed=seed).assign(column=f"{name} {PRINTED[language]}")
        for measure, name in MEASURES.items()
        for language, part in answerable.groupby("language", sort=False)
    ]
    table = pd.concat(parts, ignore_index=True).rename(columns={by: "row", "mean": "value"})
    return table[["row", "column", "value", "low", "high", "n", "unscored"]]
