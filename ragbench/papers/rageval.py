"""RAGEval (Zhu et al. 2024): its data sets, its retrieval and its generators (sections 5.1 to 5.4,
Tables 1, 3, 4, 5).

data set -> passages -> Recall and EIR (`retrieval_rows`); recorded passages -> an answer
(`answer_recorded`) -> ROUGE-L (`_answer_rows`) and a verdict per key point (`verdicts`).

The paper gives chunk sizes without a unit. The passages of the 350 recorded retrievals (English
finance) are whole sentences, 450 characters or 75 WordPiece tokens in the median and never above
146 tokens: not "512 tokens". The default here packs whole sentences up to ``size`` *characters*,
which comes nearest to the published EIR in both languages (notebook 42); 30% of the recorded
passages are longer, so the paper's splitter was another one. Tokens, and plain windows of tokens,
are there to compare.

The paper prints no answer prompt, only that all generators got the same one (section 5.2): ours is
``rageval_answer_en``.
"""

from __future__ import annotations

import importlib.util
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from ragbench.chunking import UNITS, sentence_chunks, token_chunks
from ragbench.data import load_dragonball
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.generation import generate
from ragbench.labelling.keypoints import keypoint_verdicts
from ragbench.metrics.keypoints import VERDICTS, answer_rouge_l, passage_table
from ragbench.records import Answer, Chunk, Dataset, Document, Question
from ragbench.retrieval import make_retriever
from ragbench.retrieval.text import jieba_words
from ragbench.text.tokens import TokenOffsets, truncate

PRINTED = {"zh": "CN", "en": "EN", "finance": "Finance", "law": "Law", "medicine": "Medical"}
_NEW_TOKENS = 256  # section 5.1
CONTROLS = 60  # key points that a judge must not find
CONTROL_SEED = 20261126
_NUMBER = re.compile(r"\s*\d+[.)]?\s+")  # before a key point
# Chunk size and passages: of Table 4 (section 5.1: 512 and 5), then the rows of Table 5 by their
# names.
SETTINGS: Mapping[str, tuple[int, int]] = {
    "TopK 5": (512, 5),
    "TopK 2": (512, 2),
    "TopK 4": (512, 4),
    "TopK 6": (512, 6),
    "Chunk-TopK 128-8": (128, 8),
    "Chunk-TopK 256-4": (256, 4),
    "Chunk-TopK 512-2": (512, 2),
}
MEASURES = ("recall", "eir")
CUTS = (*UNITS, "windows")
_TOKENIZERS = ("auto", "jieba", "bigrams")
_QUERY_TOKENS = 128  # section 5.1
_RUN = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")

Build = Callable[[Sequence[Chunk]], Any]


def dragonball(language: str = "en", domain: str = "finance", documents: int = 40) -> Dataset:
    """Load the first so many documents of one language and domain, and the questions about no
    others.

    DRAGONBall has 40 documents on finance in each language.
    """
    data = load_dragonball(language=language, domain=domain)
    kept = data.documents[:documents]
    ids = {d.id for d in kept}
    questions = tuple(q for q in data.questions if ids.issuperset(q.meta["doc_ids"]))
    return replace(data, documents=kept, questions=questions)


DATA: Mapping[str, Callable[..., Dataset]] = {"dragonball": dragonball}


def _one_language(questions: Sequence[Question]) -> str:
    """Return the one language of the questions; DataError where they have several, or none."""
    languages = {str(question.meta.get("language")) for question in questions}
    if len(languages) != 1:
        got = f"a data set with {', '.join(sorted(languages)) or 'no questions'}"
        raise DataError(got, "questions in one language", "load one language at a time")
    return languages.pop()


def cut(
    documents: Iterable[Document], size: int, how: str = "characters", language: str = "en"
) -> list[Chunk]:
    """Cut documents: whole sentences by ``"characters"`` or ``"tokens"``, or ``"windows"`` of
    tokens, within words.
    """
    check_known("way to cut", [how], CUTS)
    if how == "windows":
        return token_chunks(documents, size, 0.0, words=False)
    return sentence_chunks(documents, size, how, language)


def _with_titles(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Put each chunk's title in brackets before its text, as the paper's indexer does (section
    5.1).
    """
    return [replace(c, text=f"({c.title}) {c.text}") if c.title else c for c in chunks]


def character_bigrams(text: str) -> list[str]:
    """Overlapping pairs of Chinese characters, and runs of Latin letters and digits; a lone
    character stays.
    """
    terms = []
    for run in _RUN.findall(text.lower()):
        if run[0] >= "\u3400" and len(run) > 1:
            terms += [run[i : i + 2] for i in range(len(run) - 1)]
        else:
            terms.append(run)
    return terms


def chinese_tokenizer(name: str = "auto") -> Callable[[str], list[str]]:
    """Return the tokenizer ``"jieba"`` or ``"bigrams"``; ``"auto"`` takes jieba where it is
    installed.
    """
    check_known("Chinese tokenizer", [name], _TOKENIZERS)
    installed = importlib.util.find_spec("jieba") is not None
    if name == "jieba" and not installed:
        raise ConfigError(
            "jieba, which is not installed",
            "the package jieba",
            "pip install jieba, or use 'bigrams'",
        )
    return jieba_words if installed and name != "bigrams" else character_bigrams


def bm25(
    language: str = "en", tokenizer: str | Callable[[str], list[str]] = "auto", **options: Any
) -> Build:
    """Return what builds BM25 for a language: ``"en"`` with Terrier's stems and stop words,
    ``"zh"`` words or bigrams.

    ``tokenizer`` is in Chinese a name `chinese_tokenizer` knows, in English one ``BM25`` knows; or
    a callable. The variant is ``lucene`` unless ``options`` of ``BM25`` name it: in a collection
    about one subject many terms stand in more than half of the chunks, where Terrier's idf is
    negative.
    """
    if language == "zh" and isinstance(tokenizer, str):
        tokenizer = chinese_tokenizer(tokenizer)
    chosen = "terrier" if tokenizer == "auto" else tokenizer
    return partial(make_retriever, "BM25", **{"variant": "lucene", "tokenizer": chosen, **options})


def cut_queries(queries: Sequence[str]) -> list[str]:
    """Cut queries to their first 128 WordPiece tokens (section 5.1)."""
    tokens = TokenOffsets()
    tokens.warm(queries)
    return [truncate(query, _QUERY_TOKENS, tokens) for query in queries]


def retrieval_rows(
    data: Dataset,
    retrievers: Mapping[str, Build],
    settings: Mapping[str, tuple[int, int]] = SETTINGS,
    *,
    prefix: Sequence[bool] = (False, True),
    how: str = "characters",
) -> pd.DataFrame:
    """Run the experiment: Recall and EIR of every question, all in one language, under every
    setting.

    Parameters
    ----------
    retrievers : name -> what builds one from chunks (`bm25`, a partial ``make_retriever``, or your
        own).
    settings : name -> (chunk size, passages).
    prefix : index the chunks with (True) and without (False) their document's title. Scores are
        always taken on the chunks themselves: the title is not retrieved text.
    how : as for `cut`.

    One row per setting, prefix, retriever and question. Recall and EIR are NaN without references.

    Source: RAGEval, sections 5.3 and 5.4, Tables 4 and 5.
    """
    if not retrievers or not settings:
        raise ConfigError("no retriever or no setting", "at least one of each", "name some")
    language = _one_language(data.questions)
    queries = cut_queries([question.text for question in data.questions])
    references = [question.references for question in data.questions]
    asked = [(question.id, question.kind) for question in data.questions]
    about = pd.DataFrame(asked, columns=["question_id", "kind"])
    sizes = {size for size, _ in settings.values()}
    chunks = {size: cut(data.documents, size, how, language) for size in sizes}
    found = _search(chunks, retrievers, queries, prefix, max(k for _, k in settings.values()))
    frames = []
    for (setting, (size, k)), titled, name in product(settings.items(), prefix, retrievers):
        passages = [texts[:k] for texts in found[size, titled, name]]
        scores = passage_table(references, passages, language, "paper", prefix=False)
        place = {"retriever": name, "setting": setting, "size": size, "k": k, "cut": how}
        frames.append(about.assign(**place, prefix=titled).join(scores))
    return pd.concat(frames, ignore_index=True)


def _search(
    chunks: Mapping[int, Sequence[Chunk]],
    retrievers: Mapping[str, Build],
    queries: Sequence[str],
    prefix: Sequence[bool],
    k: int,
) -> dict[tuple[int, bool, str], list[list[str]]]:
    """Return the first k texts for each question by size, prefix and retriever; those for a smaller
    k are their beginning.
    """
    found = {}
    for size, titled, name in product(chunks, prefix, retrievers):
        texts = {chunk.id: chunk.text for chunk in chunks[size]}
        indexed = _with_titles(chunks[size]) if titled else chunks[size]
        hits_of = retrievers[name](indexed).search(queries, k)
        found[size, titled, name] = [[texts[hit.chunk.id] for hit in hits] for hits in hits_of]
    return found


def answer_recorded(
    model: Any, questions: Sequence[Question], recorded: Sequence[Answer], **options: Any
) -> list[Answer]:
    """Answer questions from the passages that were recorded with another model's answers.

    ``questions``, ``recorded``: of `load_dragonball_answers`. ``options``: for `generate`. Passages
    stand a blank line apart with the heads that the paper's indexer gave them; an answer has at
    most 256 tokens, and one that this limit ended counts as it is, as in the paper.

    Source: RAGEval, section 5.1. Its prompt is not printed: ours is ``rageval_answer_en``.
    """
    contexts = ["\n\n".join(answer.meta["passages"]) for answer in recorded]
    settings = {"with_documents": "rageval_answer_en", "num_predict": _NEW_TOKENS}
    return generate(model, questions, contexts, **settings | options)


def verdicts(
    model: Any,
    questions: Sequence[Question],
    responses: Sequence[str],
    **options: Any,
) -> list[tuple[str | None, ...] | None]:
    """Judge by a model which key points of each question its response covers or contradicts, one in
    a prompt.

    Key points are shown without the numbers that the data set writes before them. ``options``: as
    for `keypoint_verdicts`.
    """
    points = [
        [_NUMBER.sub("", point) for point in question.meta["keypoints"]] for question in questions
    ]
    texts = [question.text for question in questions]
    options = {"ids": [question.id for question in questions], **options}
    return keypoint_verdicts(model, texts, responses, points, **options)


def _answers_of_others(questions: Sequence[Question]) -> pd.Series:
    """Return for each question the true answer of the next one of its kind: a judge must not find
    its points there.
    """
    asked = pd.DataFrame([(question.kind, question.answer) for question in questions])
    answers = asked.groupby(0)[1]
    return answers.shift(-1).fillna(answers.transform("first"))


def _stray_points(
    questions: Sequence[Question], count: int = CONTROLS, seed: int = CONTROL_SEED
) -> dict[int, str]:
    """Draw answerable questions, by their places, and one key point of each."""
    draw = random.Random(seed)
    places = [place for place, question in enumerate(questions) if question.kind != "unanswerable"]
    draw.shuffle(places)
    return {place: draw.choice(questions[place].meta["keypoints"]) for place in places[:count]}


def _verdict_counts(labels: Iterable[Sequence[str | None]]) -> pd.DataFrame:
    """Count the verdicts of each response: columns covered, contradicted, neither, unread."""
    counts = [Counter("unread" if label is None else label for label in each) for each in labels]
    return pd.DataFrame(counts, columns=[*VERDICTS, "unread"]).fillna(0).astype(int)


def _answer_rows(questions: Sequence[Question], answers: Sequence[Answer]) -> pd.DataFrame:
    """Return a row per answer: question_id, kind, document (the first it is about), rouge_l, words,
    finish.

    ``rouge_l`` is the released code's; NaN where there is no answer.
    """
    texts = [answer.text for answer in answers]
    rouge = answer_rouge_l(texts, [question.answer for question in questions], variant="released")
    rows = [
        {
            "question_id": question.id,
            "kind": question.kind,
            "document": next(iter(question.meta["doc_ids"]), question.id),
            "rouge_l": score if answer.text else float("nan"),
            "words": len(answer.text.split()),
            "finish": answer.meta.get("finish"),
        }
        for question, answer, score in zip(questions, answers, rouge, strict=True)
    ]
    return pd.DataFrame(rows)


def finance_table(
    model: Any, questions: Sequence[Question], recorded: Sequence[Answer], **options: Any
) -> pd.DataFrame:
    """Let a model answer the recorded questions and judge key points.

    Returns
    -------
    One row per question as of `_answer_rows`, with ``recorded rouge_l`` and ``recorded words`` of
    the recorded answer, and the `_verdict_counts` of four answers, each under its name: ``true``,
    ``recorded``, ``own``, and ``other``, the true answer of another question, for one key point of
    each of `_stray_points`. No text is in it.
    """
    answers = answer_recorded(model, questions, recorded, **options)
    table = _answer_rows(questions, answers)
    of_recorded = _answer_rows(questions, recorded)[["rouge_l", "words"]]
    table = table.join(of_recorded.add_prefix("recorded "))
    responses = {
        "true": [question.answer for question in questions],
        "recorded": [answer.text for answer in recorded],
        "own": [answer.text for answer in answers],
    }
    for whose, texts in responses.items():
        labelled = verdicts(model, questions, texts, **options)
        table = table.join(_verdict_counts(labelled).add_prefix(f"{whose} "))
    drawn = _stray_points(questions)
    others = _answers_of_others(questions)
    with_one_point = []
    for place, point in drawn.items():
        question = questions[place]
        with_one_point.append(replace(question, meta={**question.meta, "keypoints": (point,)}))
    labelled = verdicts(model, with_one_point, [others[place] for place in drawn], **options)
    stray = _verdict_counts(labelled).set_index(pd.Index(drawn))
    stray = stray.reindex(table.index, fill_value=0)
    return table.join(stray.add_prefix("other "))
