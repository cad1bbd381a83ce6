"""Sets of WikiEval's shape (RAGAS, section 4): from MiniHop by rule, offline; from a user's own pages with a model.

Each row holds a text made better and a text made worse for each of the three dimensions: grounded / ungrounded answer,
complete / incomplete answer, focused / padded context. Padding comes from pages that mention the page (back-links).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ragbench.data import load_minihop
from ragbench.data.wikieval import WikiEval, WikiEvalRow
from ragbench.errors import DataError
from ragbench.llm import ask
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.records import Document, Question
from ragbench.text.sentences import split_sentences
from ragbench.text.words import ANY_MONTH

_INTRODUCTION = 12  # sentences
_PADDING = 0.5  # sentences that are added to a context, as a share of its own
# What a model is asked for a page, and what its prompt shows.
_STEPS = {
    "question": ("context",),
    "answer": ("question", "context"),
    "ungrounded": ("question",),
    "incomplete": ("question",),
    "padding": ("context", "count"),
}
_INCOMPLETE = ("without the answer", "evasive", "vague")
_YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-9]{2}\b")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,.]*\d|(?<![\w.,])\d\b")
_NAME = re.compile(rf"(?<=[a-z,;] )(?!(?:{ANY_MONTH})\b)[A-Z][\w’'-]+(?: (?:(?:of|de|von|van) )?[A-Z][\w’'-]+)*")
_EVASIONS = (
    "That has not been recorded in what is known to me.",
    "No definite answer can be given here.",
    "There is more than one side to this matter.",
    "This would have to be looked up elsewhere.",
)


def minihop_ragas_set(limit: int | None = None, seed: int = 0) -> WikiEval:
    """Make a set of WikiEval's shape from MiniHop, by rules alone.

    One row per question with a long answer (65; the first ``limit``). ``ungrounded_answer`` has names and numbers
    exchanged for others of the topic that the context does not hold. ``poor_answer`` is in turn the answer without the
    sentences that answer, an evasion, or the answer made vague; ``meta["incomplete"]`` says which.

    Source: RAGAS, section 4; there ChatGPT writes the answers.
    """
    dataset = load_minihop()
    titles = {d.title: d for d in dataset.documents}
    answered = (q for q in dataset.questions if "long_answer" in q.meta)
    rows = []
    for number, question in enumerate(islice(answered, limit)):
        rng = random.Random(f"{seed}/{question.id}")
        used = dict.fromkeys(title for claim in question.meta["claims"] for title, _ in claim["support"])
        gold = [titles[title] for title in used]
        siblings = [d for d in dataset.documents if d.title not in used and d.meta["topic"] == gold[0].meta["topic"]]
        context = tuple(" ".join(_sentences_of(d)) for d in gold)
        answer, kind = question.meta["long_answer"], _INCOMPLETE[number % 3]
        count = round(_PADDING * sum(len(d.sentences) for d in gold))
        padded = (*context, " ".join(_back_linked(gold, dataset.documents, count, siblings)))
        poor = _incomplete(kind, question, answer, rng, siblings)
        ungrounded = exchanged(answer, f"{' '.join(context)} {question.text}", [d.text for d in siblings], rng)
        about = {"source": ", ".join(used), "meta": {"incomplete": kind}}
        rows.append(WikiEvalRow(question.id, question.text, context, padded, answer, ungrounded, poor, **about))
    return WikiEval("minihop-ragas", tuple(rows))


def exchanged(answer: str, context: str, others: Sequence[str], rng: random.Random) -> str:
    """Exchange the answer's names and numbers for others that the context does not hold; names come from ``others``.

    A name is exchanged for the same one throughout. The first words of sentences are not taken for names.
    """
    names = [n for n in dict.fromkeys(m for text in others for m in _NAME.findall(text)) if n not in context]
    rng.shuffle(names)
    taken: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        if match[0] not in taken and names:
            taken[match[0]] = names.pop()
        return taken.get(match[0], match[0])

    def number(match: re.Match[str]) -> str:
        old = match[0]
        if old not in taken:
            digits = int(re.sub(r"\D", "", old))
            steps = [n for n in range(3, 40) if str(digits + n) not in context]
            taken[old] = str(digits + rng.choice(steps))
        return taken[old]

    return _NUMBER.sub(number, _NAME.sub(name, answer))


def _incomplete(kind: str, question: Question, answer: str, rng: random.Random, siblings: Sequence[Document]) -> str:
    if kind == "without the answer":
        sentences = split_sentences(answer, "en")
        rest = [s for s in sentences if question.answer.lower() not in s.lower()]
        # The opening sentence answers in other words where it does not name the answer itself.
        return " ".join(rest if len(rest) < len(sentences) else rest[1:]) or "That is part of a longer story."
    if kind == "evasive":
        aside = rng.choice([s for d in siblings for s in _sentences_of(d)])
        return f"{rng.choice(_EVASIONS)} {aside}"
    vague = _NAME.sub(lambda match: rng.choice(("somebody", "a certain place", "something of that kind")), answer)
    return _NUMBER.sub("some", _YEAR.sub("some year", vague))


def _back_linked(
    pages: Sequence[Document], others: Iterable[Document], count: int, reserve: Iterable[Document] = ()
) -> list[str]:
    """Return up to ``count`` sentences of other pages that mention one of the pages by title, as back-links do.

    Each once, none of the pages' own; the sentences of ``reserve`` fill what is missing, in order.
    """
    theirs = {sentence for page in pages for sentence in _sentences_of(page)}
    names = [page.title for page in pages]
    links = [d for d in others if d.title not in names]
    linking = [s for d in links for s in _sentences_of(d) if any(_mentions(s, name) for name in names)]
    around = [s for d in links if any(_mentions(d.text, name) for name in names) for s in _sentences_of(d)]
    spare = [s for d in reserve for s in _sentences_of(d)]
    return [s for s in dict.fromkeys([*linking, *around, *spare]) if s not in theirs][:count]


def _sentences_of(page: Document) -> Sequence[str]:
    """Return a page's sentences without white space around them."""
    # MiniHop's sentences after the first begin with a blank, so that they join to the text.
    return [s.strip() for s in page.sentences] or split_sentences(page.text, "en")


def _mentions(text: str, title: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(title)}(?!\w)", text) is not None


def make_ragas_set(model: Any, pages: Sequence[Document], **options: Any) -> WikiEval:
    """Make a set of WikiEval's shape from a user's own pages, with a model, in four or five calls per page.

    The first 12 sentences of a page are its introduction. A page for which a call failed is listed in ``failed``.
    ``options`` are of `ragbench.llm.ask`.

    Source: RAGAS, section 4 (the wording of the prompts is ours).
    """
    if not pages:
        raise DataError("no pages", "at least one document", "load them with ragbench.data.load_documents")
    texts: list[dict[str, str]] = []  # for each page: what its prompts show, and what came back
    for page in pages:
        introduction = " ".join(_sentences_of(page)[:_INTRODUCTION])
        if not introduction:
            raise DataError(f"page {page.id!r} has no text", "a page with an introduction", "leave it out")
        count = max(1, round(_PADDING * len(split_sentences(introduction, "en"))))
        texts.append({"context": introduction, "count": str(count)})
        if linked := _back_linked([page], pages, count):
            texts[-1]["padding"] = " ".join(linked)
    alone, failed = [i for i, known in enumerate(texts) if "padding" not in known], {}
    for step, fields in _STEPS.items():
        template = load_prompt(f"ragas_data_{step}")
        places = [i for i, known in enumerate(texts) if i not in failed and step not in known]
        asked = [fill_prompt(template, **{name: texts[i][name] for name in fields}) for i in places]
        names = [f"{pages[i].id} {step}" for i in places]
        replies = ask(model, asked, ids=names, **{"step": f"ragas {step}", **options}) if asked else []
        for i, reply in zip(places, replies, strict=True):
            if reply.ok and reply.text.strip():
                texts[i][step] = reply.text.strip()
            else:
                failed[i] = f"{step}: {reply.error or 'an empty reply'}"
    rows = []
    for i, (page, known) in enumerate(zip(pages, texts, strict=True)):
        if i not in failed:
            context, padding = known["context"], known["padding"]
            answers = known["answer"], known["ungrounded"], known["incomplete"]
            about = {"source": page.title, "meta": {"padding": "model" if i in alone else "back-links"}}
            rows.append(WikiEvalRow(page.id, known["question"], (context,), (context, padding), *answers, **about))
    return WikiEval("own pages", tuple(rows), tuple((pages[i].id, why) for i, why in sorted(failed.items())))
