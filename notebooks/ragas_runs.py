"""Notebook 30's runs: the method of the release ragas 0.0.11, and the recorded files: Qwen's labels,
Llama-3-8B-Instruct's runs and how their replies are read.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import chain
from typing import Literal

import pandas as pd
from pydantic import ConfigDict, Field, create_model

from ragbench import plots
from ragbench.embedding import embed_distinct
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import ask, chat_model
from ragbench.metrics import reference_free as rf
from ragbench.paths import packaged_data
from ragbench.prompts import fill_prompt, load_prompt, names_demonstration


class RagasAsRun(ModelRagas):
    """RAGAS's labels by the method of the release ragas 0.0.11: demonstrations, all statements of an answer in one
    prompt, and n questions by n calls at temperature .2.

    Context relevance is the paper's: one extraction at temperature 0, Eq 2. The release takes two at temperature .2
    after three demonstrations, and multiplies their mean share by how far a cross-encoder finds them alike.

    ``model`` is a name, or a name with options. Each of the n calls has a seed of its own; of a provider that takes no
    seed a cassette keeps one question n times.
    """

    def __init__(self, model, embedder=None, n=3, **options):
        super().__init__(chat_model(model), embedder, n, **options)
        named = {"use": model} if isinstance(model, str) else model
        self.samplers = [chat_model({**named, "temperature": 0.2, "seed": seed}) for seed in range(n)]

    def statements(self, questions, answers):
        """The statements of each answer, after three demonstrations."""
        step = ModelRagas(self.model, prompt="ragas_statements_as_run", **self.options)
        return step.statements(questions, answers)

    def questions(self, answers):
        """n questions for each answer, one a call; None where one of them could not be read."""
        by_sampler = []
        for sampler in self.samplers:
            step = ModelRagas(sampler, n=1, prompt="ragas_question_as_run", **self.options)
            by_sampler.append(step.questions(answers))
        return [None if None in made else tuple(chain(*made)) for made in zip(*by_sampler, strict=True)]

    def verdicts(self, statements, contexts):
        """A verdict on each statement, all of an answer in one prompt; None where the reply could not be read."""
        # `ModelRagas` asks jointly too, but for labels by number, and once more for one that is missing; here the
        # reply's form has the verdicts in order, and as many as there are statements.
        template = load_prompt("ragas_verdicts_as_run")
        places = [place for place, listed in enumerate(statements) if listed]
        prompts = []
        for place in places:
            numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(statements[place], 1))
            counted = {"count": str(len(statements[place])), "statements": numbered}
            prompts.append(fill_prompt(template, context=contexts[place].strip(), **counted))
        schemas = [_verdicts_on(len(statements[place])) for place in places]
        asked = {"step": "verdicts", "num_predict": 2048, **self.options}
        judged = list(statements)  # None and an empty list stay
        replies = ask(self.model, prompts, schemas, **asked)
        for place, prompt, reply in zip(places, prompts, replies, strict=True):
            judged[place] = (None,) * len(statements[place])
            if reply.ok and not names_demonstration(reply.parsed.model_dump_json(), template, prompt):
                judged[place] = tuple(reply.parsed.verdicts)
        return judged


@lru_cache
def _verdicts_on(count):
    """The form of a reply on so many statements: explanations, then verdicts."""
    each = Field(min_length=count, max_length=count)
    fields = {"explanations": (list[str], each), "verdicts": (list[Literal["Yes", "No"]], each)}
    return create_model(f"VerdictsOn{count}", __config__=ConfigDict(extra="forbid"), **fields)


def recorded_texts():
    """Qwen's labels of each text: verdicts, cosines, or counts of sentences; no text."""
    return pd.read_json(packaged_data("recordings", "ragas_metrics.jsonl.gz"), lines=True)


def recorded_baselines():
    """Qwen's scores of both texts of each pair, and the place that it chose in each order."""
    return pd.read_csv(packaged_data("recordings", "ragas_baselines.csv"))


TIE = 6  # decimals: vectors differ in the seventh between machines, which is no preference


def both_sides(pairs, dimension):
    """All texts made better, then all others; their questions; their contexts where the dimension shows them."""
    texts = [pair.better for pair in pairs] + [pair.worse for pair in pairs]
    questions = [pair.question for pair in pairs] * 2
    contexts = [pair.context for pair in pairs] * 2 if dimension == "faithfulness" else None
    return texts, questions, contexts


def run_labels(scored, dimension):
    """One text's labels, None where a reply could not be read."""
    if dimension == "faithfulness":
        return {"verdicts": scored["verdicts"] and list(scored["verdicts"])}
    if dimension == "answer_relevance":
        return {"cosines": scored["cosines"] and [round(cosine, TIE) for cosine in scored["cosines"]]}
    names = {"extracted": "extracted", "sentences": "n", "altered": "altered"}
    if scored["status"] == "extraction unread":
        return dict.fromkeys(names)
    return {name: scored[theirs] for name, theirs in names.items()}


def as_pairs(texts, score):
    """A score of texts (columns id and side) side by side: id, better, worse."""
    wide = texts.pivot(index="id", columns="side", values=score)
    return wide.reset_index().reindex(columns=["id", "better", "worse"]).rename_axis(columns=None)


def draw_pairs(points):
    """Score of the text made worse against made better, a panel a source and dimension; above the diagonal it wins."""
    sources, dimensions = points["source"].unique(), points["dimension"].unique()
    figure, axes = plots.open_figure(6.3, 0.7 + 2.4 * len(sources), ncols=len(dimensions), nrows=len(sources))
    for (source, name), part in points.groupby(["source", "dimension"], sort=False):
        axis = axes[list(sources).index(source), list(dimensions).index(name)]
        known = part.dropna(subset=["better", "worse"])
        scores = [*known["better"], *known["worse"]] or [0, 1]
        margin = 0.06 * (max(scores) - min(scores) + 0.01)
        ends = (min(scores) - margin, max(scores) + margin)
        axis.plot(ends, ends, color="#777777", lw=0.8, ls=":")
        above = known["better"] > known["worse"]
        for label, shown, i, marker in (("text made better wins", above, 0, "o"), ("tie or loss", ~above, 4, "X")):
            look = {"color": plots.PALETTE[i], "marker": marker, "s": 16, "alpha": 0.75, "linewidths": 0}
            axis.scatter(known["worse"][shown], known["better"][shown], label=label, **look)
        unscored = f", {len(part) - len(known)} unscored" if len(known) < len(part) else ""
        axis.set(xlim=ends, ylim=ends, aspect="equal")
        axis.set_title(f"{name}\n{source}\n{above.sum()} of {len(known)} won{unscored}", fontsize=7.5)
        axis.tick_params(labelsize=7.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("score, text made worse", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("score, text made better", fontsize=8)
    return figure


RUNS = {
    "ff": "faithfulness",
    "ff_base": "faithfulness",
    "ar": "answer_relevance",
    "cr": "context_relevance",
    "cr_base": "context_relevance",
}
COLUMNS = {
    "verdicts": "labels",
    "extracted_sentences": "labels",
    "raw_judge_outputs": "replies",
    "gen_questions": "guesses",
    "noncommittal_flags": "flags",
    "output_parse_status": "parse_status",
}


def read_run(cells, ids):
    """A recorded run, a row per judged text: its score, labels and replies; ids by question."""
    run = cells.rename(columns=COLUMNS)
    listed = [name for name in ("labels", "replies", "guesses", "flags") if name in run]
    run[listed] = run[listed].map(json.loads)  # verdicts 1 and 0, or extracted sentences
    if "raw_output" in run:
        run["replies"] = [[reply] for reply in run["raw_output"]]
    run["id"] = run["question"].map(ids)
    run["better"] = run["is_better_by_construction"] == "1"
    run["score"] = run.filter(regex="_score$").iloc[:, 0].astype(float)
    run["truncated"] = (run.filter(regex="truncated$") == "1").any(axis=1)
    return run


def rescore(name, run, embedder):
    """The scores of a recorded run by our functions; evasive answers are 0, as in that run."""
    if RUNS[name] == "faithfulness":
        return run["labels"].map(rf.faithfulness)
    if RUNS[name] == "context_relevance":
        counts = run["labels"].map(len, na_action="ignore")
        return counts.combine(run["total_sentences"].astype(int), rf.context_relevance)
    vectors = embed_distinct(embedder, [*run["question"], *run["guesses"].explode()])
    scores = []
    for row in run.itertuples():
        guesses = [vectors[text] for text in row.guesses]
        score = rf.answer_relevance(vectors[row.question], guesses)
        scores.append(0.0 if any(row.flags) else score)
    return scores


VERDICT = re.compile(r"\s*(?:Verdict|Answer)\s*:\s*([01])\b(?!\s+or\b)", re.I)
INSUFFICIENT = re.compile(r"""[\s\["'`]*(?:Insufficient Information|\]\s*$)""", re.I)


def read_verdicts(replies):
    """The verdicts with which replies begin ("Verdict: 1"); None for a reply that begins otherwise."""
    found = [VERDICT.match(reply) for reply in replies]
    return [None if match is None else int(match[1]) for match in found]


def extraction(row):
    """The extracted sentences; None where none were read though the reply names some."""
    return row.labels if row.labels or any(map(INSUFFICIENT.match, row.replies)) else None


def flagged(run):
    """Whether the recorded parse status says that a reply was not parsed, or parsed in part."""
    return run["parse_status"].str.contains("fail|error|partial", case=False)


def readability(name, run):
    """Verdicts, or replies with sentences, and how many could not be read."""
    if RUNS[name] == "faithfulness":
        labels = [read_verdicts(replies) for replies in run["replies"]]
    else:
        labels = [(extraction(row),) for row in run.itertuples()]
    return {
        "dimension": RUNS[name],
        "labels": sum(map(len, labels)),
        "unread": sum(of_row.count(None) for of_row in labels),
        "rows": len(labels),
        "rows_unread": sum(None in of_row for of_row in labels),
        "flagged": flagged(run).sum(),
        "truncated": run["truncated"].sum(),
    }
