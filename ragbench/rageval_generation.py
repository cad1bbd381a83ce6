"""RAGEval's generators (Zhu et al. 2024, section 5.2): answers over retrieved passages, verdicts, Table 3.

data set -> five passages -> an answer by any generator -> a verdict per keypoint (embedded, or by a model) -> one row
per question -> Table 3's cells. The paper leaves unanswerable questions out of that table; so does `table_3`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, DataError
from ragbench.metrics._sentences import check_language
from ragbench.metrics._sentences import split_sentences as split_by_language
from ragbench.rageval_index import Make, bm25, cut, cut_queries, with_metadata
from ragbench.records import Answer, Dataset, Question

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("completeness", "hallucination", "irrelevance", "rouge_l")
VERDICT = {"Entailment": "covered", "Contradiction": "contradicted", "Neutral": "neither"}
_CHINESE = re.compile(r"[A-Za-z0-9]+(?:[.,][0-9]+)*|[^\W_]")
_ABSTENTION = {"zh": "现有文档不足以回答该问题。"}


def with_keypoints(questions: Sequence[Question]) -> tuple[Question, ...]:
    """Give keypoints to the questions that have none: the true answer, cut up by rule.

    ``meta["keypoints_by"]`` says where each question's come from, ``"data"`` or ``"rule"``.

    Source: RAGEval, section 3.3, which has a model do it; see `ragbench.datagen.keypoints`.
    """
    from ragbench.datagen import keypoints

    done = []
    for question in questions:
        own = question.meta.get("keypoints")
        made = tuple(own or keypoints(question.answer, question.meta.get("language", "en")))
        source = "data" if own else "rule"
        done.append(replace(question, meta={**question.meta, "keypoints": made, "keypoints_by": source}))
    return tuple(done)


def passage_answers(
    data: Dataset,
    generator: Any = None,
    *,
    make: Make | None = None,
    size: int = 512,
    k: int = 5,
    how: str = "characters",
    budget: int = 4096,
    cassette: Any = None,
) -> list[Answer]:
    """Answer a data set's questions from retrieved passages, under the settings of section 5.1.

    Parameters
    ----------
    data : questions and documents in one language.
    generator : what `ragbench.generate` takes; None: the extractive reader over these documents.
    make : what builds the retriever (`ragbench.rageval_index`); None: BM25 for the language.
    size, how : of chunks, see `ragbench.rageval_index.cut`; their title stands before them, for the generator too.
    k : passages. budget : tokens of the passages together (the paper: 4,096 of input).
    cassette : for a model.

    Returns
    -------
    Answers in the order of the questions.

    Raises
    ------
    DataError for questions in several languages or none.
    """
    from ragbench.generation import ExtractiveReader, contexts_from_hits, generate

    language = _language(data.questions)
    chunks = with_metadata(cut(data.documents, size, how, language))
    hits = (make or bm25(language))(chunks).search(cut_queries([q.text for q in data.questions]), k)
    contexts = [row[0] for row in contexts_from_hits(hits, [budget])]
    if generator is None:
        words = {"abstention": _ABSTENTION[language]} if language in _ABSTENTION else {}
        generator = ExtractiveReader(chunks, **words)
    options = {} if cassette is None else {"cassette": cassette}
    return generate(generator, data.questions, contexts, **options)


def _language(questions: Sequence[Question]) -> str:
    languages = {q.meta.get("language") for q in questions}
    if len(languages) != 1:
        shown = ", ".join(sorted(map(str, languages))) or "no questions"
        raise DataError(f"a data set with {shown}", "questions in one language", "load one language at a time")
    return languages.pop()


def embedded_verdicts(
    keypoints: Sequence[Sequence[str]],
    answers: Sequence[str],
    language: str | Sequence[str] = "en",
    checker: Any = None,
) -> list[list[str]]:
    """Judge keypoints without a language model: the stand-in for RAGEval's judge, to be labelled as such.

    Parameters
    ----------
    keypoints : for each answer its true answer's points.
    answers : texts, shape (n,).
    language : "en" or "zh", one for all or one per answer. The checker knows words by the blanks between them, so
        Chinese characters are set apart for it, and sentences on lines of their own; without that it finds 20% of the
        keypoints in their own references, with it most (notebook 43). It knows no Chinese negation.
    checker : default `ragbench.EmbeddedChecker`, which goes by shared words, vectors, numbers and negations.

    Returns
    -------
    "covered", "contradicted" or "neither" for each keypoint. An empty answer covers nothing.

    Raises
    ------
    ConfigError for arguments of different lengths or another language.

    Source: RAGEval, Eq 3-5 (the paper's judge is GPT-4o).
    """
    from ragbench.judge import EmbeddedChecker
    from ragbench.judge.text import split_sentences

    languages = [language] * len(answers) if isinstance(language, str) else list(language)
    if not len(keypoints) == len(answers) == len(languages):
        found = f"{len(keypoints)} lists of keypoints for {len(answers)} answers in {len(languages)} languages"
        raise ConfigError(found, "one of each per answer", "keep them in one order")
    for code in languages:
        check_language(code)
    checker = checker or EmbeddedChecker()
    claims = [
        [" ".join(_readable(point, code).split("\n")) for point in own]
        for own, code in zip(keypoints, languages, strict=True)
    ]
    texts = [_readable(answer, code) for answer, code in zip(answers, languages, strict=True)]
    # All sentences in one call: the vectors are kept, so each check finds its own.
    sentences = {s for own, text in zip(claims, texts, strict=True) for s in (*own, *split_sentences(text))}
    if sentences:
        checker.embedder.embed_documents(sorted(sentences))
    return [[VERDICT[label] for label in checker.check(own, text)] for own, text in zip(claims, texts, strict=True)]


def judge_answers(
    questions: Sequence[Question], answers: Sequence[Answer], model: Any = None, **options: Any
) -> list[list[str | None]]:
    """Judge each question's keypoints, by a model or by the stand-in.

    Parameters
    ----------
    questions : with keypoints (`with_keypoints`). answers : in the same order.
    model : a chat model, or None for `embedded_verdicts`.
    options : for the model, as for `ragbench.llm.ask`, such as ``cassette``.

    Returns
    -------
    verdicts for `generation_rows`; None where a model's verdict could not be read.

    Source: RAGEval, Eq 3-5.
    """
    points, texts = [q.meta["keypoints"] for q in questions], [a.text for a in answers]
    if model is None:
        return embedded_verdicts(points, texts, [q.meta["language"] for q in questions])
    from ragbench.metrics.steps import keypoint_verdicts

    asked = [q.text for q in questions]
    judged = keypoint_verdicts(model, asked, texts, points, ids=[q.id for q in questions], **options)
    return [list(own) for own in judged.labels]


def _readable(text: str, language: str) -> str:
    """Chinese as the checker can read it: a line per sentence, a blank around each character, numbers whole."""
    if language != "zh":
        return text
    return "\n".join(" ".join(_CHINESE.findall(sentence)) for sentence in split_by_language(text, language))


def generation_rows(
    questions: Sequence[Question], answers: Sequence[Answer], verdicts: Sequence[Sequence[str | None]]
) -> pd.DataFrame:
    """Score answers: one row per question.

    Parameters
    ----------
    questions : with keypoints (`with_keypoints`). answers, verdicts : in the same order.

    Returns
    -------
    DataFrame with columns question_id, domain, language, kind, generator, completeness, hallucination, irrelevance
    (NaN where a verdict could not be read), rouge_l, keypoints, unread, keypoints_by.

    Raises
    ------
    DataError when the three do not pair up.

    Source: RAGEval, Eq 3-5 and ROUGE-L (Table 3).
    """
    import pandas as pd

    from ragbench.metrics.keypoints import answer_rouge_l, keypoint_table

    if not len(questions) == len(answers) == len(verdicts):
        raise DataError(
            f"{len(questions)} questions, {len(answers)} answers, {len(verdicts)} lists of verdicts", "as many of each"
        )
    for question, answer, own in zip(questions, answers, verdicts, strict=True):
        if question.id != answer.question_id or len(own) != len(question.meta["keypoints"]):
            raise DataError(
                f"question {question.id!r} beside an answer to {answer.question_id!r} with {len(own)} verdicts",
                "the answer to the question, and a verdict for each of its keypoints",
                "keep the three in one order",
            )
    about = [
        {
            "question_id": q.id,
            "domain": q.meta["domain"],
            "language": q.meta["language"],
            "kind": q.kind,
            "generator": a.generator,
        }
        for q, a in zip(questions, answers, strict=True)
    ]
    rows = pd.DataFrame(about).join(keypoint_table(verdicts).rename(columns={"n": "keypoints", "unscored": "unread"}))
    rows["rouge_l"] = [
        answer_rouge_l([a.text], [q.answer], q.meta["language"])[0] for q, a in zip(questions, answers, strict=True)
    ]
    return rows.assign(keypoints_by=[q.meta.get("keypoints_by", "data") for q in questions])


def table_3(rows: pd.DataFrame, by: str = "generator", *, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Average rows as Table 3 does: by generator and language, without unanswerable questions.

    Parameters
    ----------
    rows : from `generation_rows`.
    by : the column that makes the table's rows; ``"setting"``, say, for the generation half of Tables 4 and 5.
    resamples, seed : of the intervals.

    Returns
    -------
    DataFrame with columns row, column (as printed, e.g. ``"Completeness EN"``), value, low, high (95% bootstrap over
    questions), n, unscored.

    Source: RAGEval, Table 3. Paper value: 0.6845 (GPT-4o, Completeness EN).
    """
    import pandas as pd

    from ragbench.stats import bootstrap_ci

    if rows.empty:
        raise DataError("no rows", "at least one answered question", "answer and judge some questions first")
    answerable = rows[rows["kind"] != "unanswerable"]
    shown = {"zh": "CN", "en": "EN"}
    names = dict(zip(MEASURES, ("Completeness", "Hallucination", "Irrelevance", "Rouge-L"), strict=True))
    cells = []
    for row, own in answerable.groupby(by, sort=False):
        for measure, name in names.items():
            for language, code in shown.items():
                i = bootstrap_ci(own.loc[own["language"] == language, measure], resamples=resamples, seed=seed)
                cells.append((row, f"{name} {code}", i.estimate, i.low, i.high, i.n, i.n_missing))
    return pd.DataFrame(cells, columns=["row", "column", "value", "low", "high", "n", "unscored"])
