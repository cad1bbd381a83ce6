"""RAGEval's generators (Zhu et al. 2024, section 5.2): answers over retrieved passages, verdicts, Table 3.

data set -> five passages -> an answer by any generator -> a verdict per keypoint (embedded, or by a model) -> one row
per question -> Table 3's cells. The paper leaves unanswerable questions out of that table; so does `table_3`.

Section 5.1 gives a generator 4,096 tokens of input and 256 new tokens, and samples as the model does by default
(ChatGPT models: temperature 0.2, top-p 1); `chat_generator` makes a chat model with these settings. The paper prints
no answer prompt, only that all generators got the same one (section 5.2): ours are ``rageval_answer_en`` and ``_zh``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, DataError
from ragbench.rageval_index import Make, bm25, cut, cut_queries, with_metadata
from ragbench.records import Answer, Dataset, Question
from ragbench.text.sentences import check_language, split_sentences

if TYPE_CHECKING:
    import pandas as pd

INPUT_TOKENS, NEW_TOKENS = 4096, 256  # section 5.1
MEASURES = ("completeness", "hallucination", "irrelevance", "rouge_l")
VERDICT = {"Entailment": "covered", "Contradiction": "contradicted", "Neutral": "neither"}
_CHINESE = re.compile(r"[A-Za-z0-9]+(?:[.,][0-9]+)*|[^\W_]")


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
        own = question.meta.get("keypoints")
        points, source = (own, "data") if own else cut_up[question.id]
        done.append(replace(question, meta={**question.meta, "keypoints": tuple(points), "keypoints_by": source}))
    return tuple(done)


def _keypoints_by_model(questions: Sequence[Question], model: Any, cassette: Any) -> dict[str, tuple[Any, str]]:
    from ragbench.datagen.live_questions import model_keypoints
    from ragbench.datagen.parts import QRA

    asked = [QRA(q.id, q.kind, q.meta.get("language", "en"), q.text, (q.answer,), ()) for q in questions]
    done = model_keypoints(model, asked, cassette=cassette)
    failed = {name: ((), f"failed: {reason}") for name, reason in done.failed}
    return failed | {q.id: (q.keypoints, "model") for q in done.made}


def passage_answers(
    data: Dataset,
    generator: Any = None,
    *,
    make: Make | None = None,
    size: int = 512,
    k: int = 5,
    how: str = "characters",
    budget: int = INPUT_TOKENS,
    prompt: str | os.PathLike[str] | None = None,
    cassette: Any = None,
) -> list[Answer]:
    """Answer a data set's questions from retrieved passages, under the settings of section 5.1.

    Parameters
    ----------
    data : questions and documents in one language.
    generator : what `ragbench.generate` takes, a model from `chat_generator`; None: the extractive reader over these
        documents.
    make : what builds the retriever (`ragbench.rageval_index`); None: BM25 for the language.
    size, how : of chunks, see `ragbench.rageval_index.cut`; their title stands before them, for the generator too.
    k : passages.
    budget : tokens of the input: prompt, question and passages together, by the embedded WordPiece. The passages are
        cut to what the longest question leaves, for a reader too.
    prompt : id or file with the fields ``{query}`` and ``{documents}``; None: ``rageval_answer_en`` or ``_zh``.
    cassette : for a model.

    Returns
    -------
    Answers in the order of the questions. One that a model's limit of new tokens ended is kept as far as it goes, with
    ``meta["finish"] == "length"``, since the paper scores such answers too.

    Raises
    ------
    DataError for questions in several languages or none; ConfigError for a budget that the prompt alone exceeds.
    """
    from ragbench.embedding import default_tokenizer
    from ragbench.generation import ABSTENTIONS, ExtractiveReader, contexts_from_hits, generate
    from ragbench.prompts import fill_prompt, load_prompt

    language = _language(data.questions)
    prompt = prompt or f"rageval_answer_{language}"
    text = load_prompt(prompt)
    bare = [fill_prompt(text, query=q.text, documents="") for q in data.questions]
    longest = max(len(e.ids) for e in default_tokenizer().encode_batch(bare, add_special_tokens=False))
    if budget <= longest:
        raise ConfigError(f"budget={budget}", f"more than the {longest} tokens of prompt and question", "raise it")
    chunks = with_metadata(cut(data.documents, size, how, language))
    hits = (make or bm25(language))(chunks).search(cut_queries([q.text for q in data.questions]), k)
    contexts = [row[0] for row in contexts_from_hits(hits, [budget - longest])]
    if generator is None:
        generator = ExtractiveReader(chunks, abstention=ABSTENTIONS["chinese" if language == "zh" else "english"])
    options = {} if cassette is None else {"cassette": cassette}
    return generate(generator, data.questions, contexts, with_documents=prompt, **options)


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
    sentences = {s for own, text in zip(claims, texts, strict=True) for s in (*own, *split_sentences(text, "claims"))}
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
    verdicts for `generation_rows`; None where a model's verdict could not be read, and for an answer whose call failed:
    that is no empty answer, so it is not judged.

    Source: RAGEval, Eq 3-5.
    """
    pairs = list(zip(questions, answers, strict=True))
    asked = [(q, a.text) for q, a in pairs if "error" not in a.meta and q.meta["keypoints"]]
    points, texts = [q.meta["keypoints"] for q, _ in asked], [text for _, text in asked]
    if model is None:
        judged = embedded_verdicts(points, texts, [q.meta["language"] for q, _ in asked])
    else:
        from ragbench.metrics.steps import keypoint_verdicts

        ids, about = [q.id for q, _ in asked], [q.text for q, _ in asked]
        judged = keypoint_verdicts(model, about, texts, points, ids=ids, **options).labels if asked else []
    told = {q.id: list(own) for (q, _), own in zip(asked, judged, strict=True)}
    return [told.get(q.id, [None] * len(q.meta["keypoints"])) for q in questions]


def _readable(text: str, language: str) -> str:
    """Chinese as the checker can read it: a line per sentence, a blank around each character, numbers whole."""
    if language != "zh":
        return text
    return "\n".join(" ".join(_CHINESE.findall(sentence)) for sentence in split_sentences(text, language))


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
    (NaN where a verdict could not be read), rouge_l (English: the released code's; Chinese: characters, where the
    released code has jieba's words; NaN for a failed call), keypoints, unread, keypoints_by.

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
    scores = []
    for q, a in zip(questions, answers, strict=True):
        g = q.meta["language"]
        got = answer_rouge_l([a.text], [q.answer], g, variant="released" if g == "en" else "words")
        scores.append(float("nan") if "error" in a.meta else got[0])
    rows["rouge_l"] = scores
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
