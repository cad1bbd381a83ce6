"""What people are asked: the samples of RAGEval's section 4, made into items for the labelling form."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragbench.data.dragonball import DOMAINS, LANGUAGES, QUESTION_TYPES
from ragbench.errors import ConfigError
from ragbench.labelling import Label, LabelItem
from ragbench.records import Answer, Document, Question

if TYPE_CHECKING:
    import pandas as pd

PER_CELL = 10
DOCUMENTS_RANKED: Mapping[str, int] = {"finance": 20, "law": 20, "medicine": 19}
OURS, BASELINES = "RAGEval", ("zero-shot", "one-shot")


def _order(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


def question_name(question: Question) -> str:
    """The name of a question's item in label files: ``domain/language/type/question``."""
    return f"{question.meta['domain']}/{question.meta['language']}/{question.kind}/{question.id}"


def document_name(document: Document) -> str:
    """The name of a document's item in label files: ``domain/language/document``."""
    return f"{document.meta['domain']}/{document.meta['language']}/{document.id}"


def question_sample(
    questions: Iterable[Question], per_cell: int = PER_CELL, seed: int = 0
) -> tuple[tuple[Question, ...], pd.DataFrame]:
    """Choose the questions that people score: so many of each type, language and domain, at random.

    Parameters
    ----------
    questions : of any languages and domains, as `load_dragonball` or `ragbench.rageval.as_dataset` have them.
    per_cell : questions of each type, language and domain.
    seed : the choice goes by a hash of seed and name: it does not change when other questions are added to the set.

    Returns
    -------
    sample : in the order of domain, language, type.
    cells : DataFrame, one row for each of the 42 cells: domain, language, type, available, sampled, short. A cell with
        too few questions gives what it has.

    Raises
    ------
    ConfigError for a ``per_cell`` below 1.

    Source: RAGEval, section 4 (420 samples).
    """
    import pandas as pd

    if per_cell < 1:
        raise ConfigError(f"per_cell={per_cell}", "at least 1", "the paper took 10")
    cells = defaultdict(list)
    for question in questions:
        cells[question.meta["domain"], question.meta["language"], question.kind].append(question)
    sample, counts = [], []
    for key in ((d, g, t) for d in DOMAINS for g in LANGUAGES for t in QUESTION_TYPES):
        own = sorted(cells[key], key=lambda q: _order(seed, question_name(q)))[:per_cell]
        sample += own
        counts.append((*key, len(cells[key]), len(own), per_cell - len(own)))
    columns = ["domain", "language", "type", "available", "sampled", "short"]
    return tuple(sample), pd.DataFrame(counts, columns=columns)


def document_sample(documents: Iterable[Document], seed: int = 0) -> tuple[Document, ...]:
    """Choose the documents that people rank: 20 of finance, 20 of law, 19 of medicine per language, or all there are.

    Source: RAGEval, section 4.
    """
    cells = defaultdict(list)
    for document in documents:
        cells[document.meta["domain"], document.meta["language"]].append(document)
    return tuple(
        document
        for (domain, _), own in sorted(cells.items())
        for document in sorted(own, key=lambda d: _order(seed, document_name(d)))[: DOCUMENTS_RANKED[domain]]
    )


def question_items(questions: Iterable[Question], documents: Iterable[Document]) -> list[LabelItem]:
    """Make the items of Figure 3: document, question, its type, answer and references, to be scored 0 to 5.

    Source: RAGEval, section 4 (what annotators are given).
    """
    texts = {d.id: d.text if d.text.startswith(d.title) else f"{d.title}\n{d.text}" for d in documents}
    items = []
    for q in questions:
        shown = {"Question": f"{q.text}\n({q.kind})", "Answer": q.answer}
        shown["References"] = "\n".join(f"- {r}" for r in q.references) or "(none)"
        shown["Documents"] = "\n\n".join(texts[i] for i in q.meta.get("doc_ids", ()) if i in texts) or "(not named)"
        items.append(LabelItem(question_name(q), shown))
    return items


def document_items(
    documents: Sequence[Document], baselines: Mapping[str, Mapping[str, str]]
) -> tuple[list[LabelItem], tuple[tuple[str, str], ...]]:
    """Make the items of Figure 4: each document beside those that a model wrote without a configuration.

    Parameters
    ----------
    documents : ours; from `document_sample`.
    baselines : writer ("zero-shot", "one-shot") -> document id -> text; see `write_baselines`.

    Returns
    -------
    items, left_out : the latter as (document, reason), where a writer has no text.
    """
    items, left_out = [], []
    for document in documents:
        texts = {OURS: document.text} | {writer: own.get(document.id, "") for writer, own in baselines.items()}
        lacking = [writer for writer, text in texts.items() if not text.strip()]
        if lacking or len(texts) < 2:
            left_out.append((document_name(document), f"no text by {', '.join(lacking) or 'another writer'}"))
        else:
            items.append(LabelItem(document_name(document), {}, texts))
    return items, tuple(left_out)


def write_baselines(
    model: Any, schema: Any, configurations: Sequence[Any], sample: str, cassette: Any = None
) -> tuple[dict[str, dict[str, str]], tuple[tuple[str, str], ...]]:
    """Let a model write each document without its configuration: zero-shot, and one-shot with a sample document.

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    schema, configurations : which documents; only domain, subdomain and language reach the model.
    sample : the document shown in one-shot mode.

    Returns
    -------
    texts, failed : writer -> document id -> text, and what failed as (document, reason).
    """
    from ragbench.datagen.live import model_documents

    texts, failed = {}, []
    for mode in BASELINES:
        given = {"sample": sample} if mode == "one-shot" else {}
        done = model_documents(model, schema, configurations, mode, cassette=cassette, **given)
        texts[mode] = {d.id: d.text for d in done.made}
        failed += [(f"{name} {mode}", reason) for name, reason in done.failed]
    return texts, tuple(failed)


def keypoint_items(questions: Sequence[Question], answers: Sequence[Answer]) -> list[LabelItem]:
    """Make the items of Figure 6: question, answer, and the true answer's keypoints to be judged one by one."""
    items = []
    for question, answer in zip(questions, answers, strict=True):
        points = {str(n): text for n, text in enumerate(question.meta["keypoints"], 1)}
        shown = {"Question": question.text, "Answer": answer.text or "(empty)"}
        items.append(LabelItem(question_name(question), shown, {}, points))
    return items


def verdict_labels(questions: Sequence[Question], verdicts: Sequence[Sequence[str | None]], judge: str) -> list[Label]:
    """Write a judge's verdicts as labels, the judge as annotator: what `figure_6` and ``agreement`` compare.

    A verdict that could not be read (None) makes no label.
    """
    return [
        Label("keypoints", question_name(question), str(n), verdict, judge, "")
        for question, own in zip(questions, verdicts, strict=True)
        for n, verdict in enumerate(own, 1)
        if verdict is not None
    ]
