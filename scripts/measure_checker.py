"""Measure a trained claim checker by its plan in ANALYSIS.md: choose on the dev sets, then look at the test sets.

    python scripts/measure_checker.py MODEL choose            # writes MODEL/choices.json, from the dev sets alone
    python scripts/measure_checker.py MODEL test              # reads it; writes two tables for notebook 20b

MODEL is a folder with model.onnx, tokenizer.json and config.json (`train_checker.py` makes it). The plan takes int8
weights where dev loses less than .01. They are made by onnxruntime.quantization's
``quantize_dynamic(SOURCE, TARGET, weight_type=QuantType.QInt8, per_channel=True)``; the shipped tables are theirs.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax

import ragbench as rb
from ragbench import stats
from ragbench.data.files import read_jsonl
from ragbench.data.ragchecker import read_ragchecker
from ragbench.labelling.claims import load_labelled_claims
from ragbench.metrics.claims import CHECKS, METRICS, claim_metrics_table
from ragbench.onnx_models import Classifier
from ragbench.papers.ragchecker import question_clusters
from ragbench.paths import packaged_data, shared_data
from ragbench.text.sentences import split_sentences

WINDOWS = (None, 1, 2, 3)  # sentences the checker reads at once; None: the whole text
UNSEEN = ("breaking_nli", "conjnli_dev", "hover")
ENTAILED, OTHER = "Entailment", "Neutral"


def pairs_of(results, check):
    """Return a frame of (text, claim, cluster, entailed) of one table of labels, in its order."""
    clusters, rows = question_clusters(rb.data.load_minihop()), []
    for r in results:
        side, against = check.split("_in_")
        claims = r.response_claims if side == "response" else r.reference_claims
        other = [r.reference] if against == "reference" else [r.response]
        texts = [chunk.text for chunk in r.chunks] if against == "chunks" else other
        for claim, labels in zip(claims, getattr(r, check), strict=True):
            given = labels if against == "chunks" else [labels]
            rows += [
                (text, claim, clusters[r.extra["question_id"]], label == ENTAILED)
                for text, label in zip(texts, given, strict=True)
            ]
    return pd.DataFrame(rows, columns=["text", "claim", "cluster", "entailed"])


def natural(split):
    """Return MiniHop's labelled claims likewise."""
    claims = load_labelled_claims(split)
    return claims.assign(entailed=claims["label"] == ENTAILED, cluster=claims["document"])[
        ["text", "claim", "cluster", "entailed"]
    ]


class Probabilities:
    """P(entailment) of pairs, the highest of a text's windows; each different pair is read once."""

    def __init__(self, folder):
        self._model, self._known = Classifier(folder, cut="first"), {}

    def __call__(self, pairs, sentences):
        windows = {text: runs(text, sentences) for text in pairs["text"].unique()}
        needed = {
            (w, c) for t, c in zip(pairs["text"], pairs["claim"], strict=True) for w in windows[t]
        } - self._known.keys()
        needed = sorted(needed)
        for pair, logits in zip(needed, self._model.logits(needed), strict=True):
            self._known[pair] = softmax(logits, axis=1)[:, 0].max()
        each = zip(pairs["text"], pairs["claim"], strict=True)
        return np.array([max((self._known[w, c] for w in windows[t]), default=0.0) for t, c in each])


def runs(text, sentences):
    """Return a text's runs of so many sentences, or the whole of it."""
    parts = split_sentences(text, "claims") if sentences else []
    if len(parts) <= (sentences or 0):
        return [text] if text.strip() else []
    return [" ".join(parts[i : i + sentences]) for i in range(len(parts) - sentences + 1)]


def embedded(pairs):
    """Return what the embedded checker says: entailed or not."""
    ready = rb.EmbeddedChecker().warm(pairs["claim"].unique(), pairs["text"].unique())
    each = zip(pairs["text"], pairs["claim"], strict=True)
    return np.array([ready.check([claim], text)[0] == ENTAILED for text, claim in each])


def balanced(entailed, said):
    """Return the mean of the shares found among the entailed and cleared among the others."""
    entailed = np.asarray(entailed, bool)
    return (said[entailed].mean() + (~said[~entailed]).mean()) / 2


def best_cut(entailed, values):
    """Return (balanced accuracy, threshold) of the best threshold of 0.01 to 0.99; the middle one of several."""
    cuts = np.arange(1, 100) / 100
    found = np.array([balanced(entailed, values >= cut) for cut in cuts])
    best = np.flatnonzero(found == found.max())
    return found.max(), cuts[best[len(best) // 2]]


def choose(folder):
    """Choose windows, thresholds and tools on the dev sets."""
    results = read_ragchecker(packaged_data("minihop", "answer_claims.json")).results
    sets = {check: pairs_of(results, check) for check in CHECKS} | {"natural": natural("dev")}
    model, rows, values = Probabilities(folder), [], {}
    for name, pairs in sets.items():
        cheap = balanced(pairs["entailed"], embedded(pairs))
        for sentences in WINDOWS:
            values[name, sentences] = model(pairs, sentences)
            found, cut = best_cut(pairs["entailed"], values[name, sentences])
            rows.append((name, sentences, cut, found, cheap))
    table = pd.DataFrame(rows, columns=["set", "sentences", "threshold", "trained", "embedded"])
    choices = {"directions": {}}
    for check in CHECKS:
        best = table[table["set"] == check].sort_values("trained", kind="stable").iloc[-1]
        window = None if pd.isna(best["sentences"]) else int(best["sentences"])
        tool = "trained" if best["trained"] > best["embedded"] else "embedded"
        choices["directions"][check] = {"tool": tool, "sentences": window, "threshold": best["threshold"]}
    cuts = np.arange(1, 100) / 100
    means = {
        (w, cut): np.mean([balanced(pairs["entailed"], values[name, w] >= cut) for name, pairs in sets.items()])
        for w in WINDOWS
        for cut in cuts
    }
    window, cut = max(means, key=means.get)
    choices["elsewhere"] = {"sentences": window, "threshold": cut, "balanced": means[window, cut]}
    choices["dev"] = table.astype(object).where(table.notna(), None).to_dict("records")
    (folder / "choices.json").write_text(json.dumps(choices, indent=1), encoding="utf-8")
    print(table.round(3).to_string(), json.dumps({k: v for k, v in choices.items() if k != "dev"}, indent=1), sep="\n")


def test(folder):
    """Measure both tools on the test sets, with the choices of the dev sets."""
    choices, model = json.loads((folder / "choices.json").read_text(encoding="utf-8")), Probabilities(folder)
    results = read_ragchecker(packaged_data("minihop", "claims_1000.json")).results
    elsewhere, rows, said = choices["elsewhere"], [], {}
    sets = {check: (pairs_of(results, check), choices["directions"][check]) for check in CHECKS}
    sets["MiniHop natural claims, test"] = natural("test"), elsewhere
    for name in UNSEEN:
        given = pd.DataFrame([row for _, row in read_jsonl(shared_data("entailment", f"{name}.jsonl.gz"))])
        given = given.assign(text=given["premise"], entailed=given["label"] == 1, cluster=given["premise"])
        sets[name] = given[["text", "claim", "cluster", "entailed"]], elsewhere
    for name, (pairs, choice) in sets.items():
        tools = {"trained": model(pairs, choice["sentences"]) >= choice["threshold"], "embedded": embedded(pairs)}
        said[name] = tools[choice.get("tool", "trained")]
        entailed = pairs["entailed"].to_numpy()
        tools["constant"] = np.full(len(pairs), entailed.mean() > 0.5)
        for tool, given in tools.items():
            right = stats.bootstrap_ci((given == entailed).astype(float), groups=pairs["cluster"], resamples=2000)
            both = balanced(entailed, given)
            chosen = tool == choice.get("tool", "trained")
            rows.append((name, tool, len(pairs), right.estimate, right.low, right.high, both, chosen))
    columns = ["set", "tool", "pairs", "accuracy", "low", "high", "balanced accuracy", "chosen on dev"]
    table = pd.DataFrame(rows, columns=columns)
    table.round(6).to_csv(packaged_data("recordings") / "trained_checker.csv", index=False)
    kept = survivors(results, {check: said[check] for check in CHECKS})
    kept.round(6).to_csv(packaged_data("recordings") / "trained_checker_metrics.csv", index=False)
    print(table.round(3).to_string(), kept.round(3).to_string(), sep="\n")


def survivors(results, said, resamples=2000):
    """Return which metrics survive with the chosen tool of each direction, by the rule of notebook 24."""
    clusters = question_clusters(rb.data.load_minihop())
    cluster = pd.Series({r.id: clusters[r.extra["question_id"]] for r in results})
    labels = {check: iter(np.where(values, ENTAILED, OTHER)) for check, values in said.items()}

    def like(cell, given):
        return next(given) if isinstance(cell, str) else [like(part, given) for part in cell]

    taken = [replace(r, **{check: like(getattr(r, check), labels[check]) for check in CHECKS}) for r in results]
    ways, rows = {"reference": claim_metrics_table(results), "chosen": claim_metrics_table(taken)}, []
    for metric in METRICS:
        both = pd.DataFrame({way: table[metric] for way, table in ways.items()}).dropna()
        options = {"groups": cluster[both.index], "resamples": resamples}
        bias = stats.bootstrap_ci(both["chosen"] - both["reference"], **options)
        rho = stats.correlation(both["chosen"], both["reference"], "spearman", **options)
        survives = bias.low >= -0.1 and bias.high <= 0.1 and rho.low > 0.5
        numbers = [number for found in (bias, rho) for number in (found.estimate, found.low, found.high)]
        rows.append((metric, *numbers, len(both), survives))
    names = [f"{what}{end}" for what in ("bias", "rank correlation") for end in ("", " low", " high")]
    return pd.DataFrame(rows, columns=["metric", *names, "answers", "survives"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("step", choices=["choose", "test"])
    options = parser.parse_args()
    {"choose": choose, "test": test}[options.step](options.folder)
