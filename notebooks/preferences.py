"""What notebooks 21 and 25 share, features of a response and intervals that hold together, for notebook 25."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from itertools import chain, product

import numpy as np
import pandas as pd
import Stemmer

import ragbench as rb
from ragbench.data import ragchecker as rc
from ragbench.metrics import lexical
from ragbench.stats import preference_correlation
from ragbench.text.sentences import split_sentences


def jieba_metrics():
    """BLEU-avg and ROUGE-L as published: on jieba's tokens, which are words, marks and every blank of English."""
    if find_spec("jieba") is None:
        print("jieba is not installed: no BLEU-avg and ROUGE-L rows (pip install jieba)")
        return {}
    import jieba

    jieba.setLogLevel("WARNING")  # it reports the loading of its dictionary on stderr
    plain = {"smoothing": "none", "effective_order": False, "brevity_penalty": False}
    return {
        "BLEU | BLEU-avg": partial(rb.bleu, tokenizer=jieba.lcut, **plain),
        "ROUGE | ROUGE-L": partial(rb.rouge_l, tokenizer=jieba.lcut),
    }


def of_both(meta, metric):
    """A measure of (response, reference) for both responses of every pair: float array, shape (pairs, 2)."""
    sides = zip(meta["responses"], meta["reference"], strict=True)
    return np.array([[metric(response, reference) for response in both] for both, reference in sides], float)


def in_two_lines(table):
    """The columns in two lines: the aspect above the kind of correlation."""
    return table.set_axis(pd.MultiIndex.from_tuples([column.split() for column in table.columns]), axis=1)


WORD, NUMBER = re.compile(r"[^\W_]+(?:[.,]\d+)*"), re.compile(r"\d+(?:[.,]\d+)*")
NAME = re.compile(r"(?<=[^\W_.!?][ \t])[A-Z][\w-]+|(?<=[,;:(\"'] )[A-Z][\w-]+|(?<=[(\"'])[A-Z][\w-]+")
NEGATED = re.compile(r"\b(no|not|never|none|neither|nor|cannot|without|unlikely|false|incorrect)\b|n['’]t\b", re.I)
POLAR = re.compile(
    r"^\W*(is|are|was|were|am|do|does|did|can|could|should|would|will|has|have|had|may|might|must)\b", re.I
)
YES_NO = re.compile(r"^\W*(?:the answer is )?(yes|no)\b", re.I)
DECLINES = re.compile(
    r"\bI (?:do not|don['’]t) (?:know|have)|\b(?:cannot|can['’]t|unable to|not possible to) "
    r"(?:be )?"
    r"(?:answer|determin|find|provid|tell)|\b(?:not|n['’]t) (?:explicitly |directly "
    r"|specifically )?"
    r"(?:mention|specif|provide|contain|state|include|give|discuss|say)|\b"
    r"no (?:explicit |direct |specific |relevant "
    r")?(?:mention|information|answer)\b|\binsufficient\b",
    re.I,
)


STEM = Stemmer.Stemmer("english").stemWord
FIRST_WORD, VOCABULARY = (1996, 30522)  # of MiniLM's vocabulary, which lists words by falling frequency


def log_rank(word):
    """Log of a word's frequency rank, 1.8 for "the"; a word of several pieces is rarer than all."""
    ids = rb.default_tokenizer().encode(word, add_special_tokens=False).ids
    if len(ids) != 1 or ids[0] < 999:
        return np.log(VOCABULARY - FIRST_WORD) + 0.3 * max(len(ids) - 1, 0)
    rank = ids[0] - FIRST_WORD + 1 if ids[0] >= FIRST_WORD else 50  # single characters are frequent
    return np.log(rank + 5)


def stem_weights(words):
    """Weight of each stem: the log rank of its commonest form above that of common words."""
    lightest = {}
    for word in words:
        lightest[STEM(word)] = min(log_rank(word), lightest.get(STEM(word), np.inf))
    return {stem: max(rank - 3.0, 0.1) for stem, rank in lightest.items()}


def overlap(true, said):
    """Recall, precision and F of two bags of weights."""
    shared = sum(min(weight, said[stem]) for stem, weight in true.items() if stem in said)
    recall, precision = (shared / sum(bag.values()) if bag else 0.0 for bag in (true, said))
    both = recall + precision
    return recall, precision, 2 * recall * precision / both if both else 0.0


def bag(stems, weights, left_out):
    """Weight of each stem, more if it comes back."""
    counts = Counter(stem for stem in stems if stem not in left_out)
    return {stem: np.log1p(count) * weights[stem] for stem, count in counts.items()}


def stance(text, polar):
    """1 for yes, -1 for no, 0 for neither; a question that asks for yes or no is answered by the first sentence."""
    if match := YES_NO.match(text):
        return 1 if match[1].lower() == "yes" else -1
    if not polar or not text.strip():
        return 0
    first = next(iter(split_sentences(text, "claims")), text)
    return -1 if NEGATED.search(first) else 1


def numbers(text):
    return {number.replace(",", "").rstrip(".") for number in NUMBER.findall(text)}


def cosine_beside_question(question, one, other, vectors):
    """Cosine of two texts' vectors without what they share with the question; a text without a vector is like none."""
    nothing = np.zeros(len(vectors[question]))
    asked = vectors[question]
    rest = [vectors.get(text, nothing) - (vectors.get(text, nothing) @ asked) * asked for text in (one, other)]
    lengths = [np.linalg.norm(vector) for vector in rest]
    return float(rest[0] @ rest[1] / np.prod(lengths)) if min(lengths) > 1e-6 else 0.0


def features(question, reference, response, vectors):
    """The twelve features of one response, by name."""
    asked_words, true_words, said_words = (WORD.findall(text.lower()) for text in (question, reference, response))
    true, said = ([STEM(word) for word in words] for words in (true_words, said_words))
    asked = {STEM(word) for word in asked_words}
    if asked >= set(true):  # "Paris or Rome?"
        asked = set()
    bags = [bag(true, stem_weights(true_words), asked), bag(said, stem_weights(said_words), asked)]
    found = dict(zip(("overlap_r", "overlap_p", "overlap_f"), overlap(*bags), strict=True))
    ratio = np.log((len(said_words) + 5) / (len(true_words) + 5))
    polar = bool(POLAR.match(question))
    declined, known = (bool(DECLINES.search(text[:300])) for text in (response, reference))
    names = {name.lower() for name in NAME.findall(reference)} - set(asked_words)
    return found | {
        "short": min(ratio, 0.0),
        "long": max(ratio, 0.0),
        "empty": float(not said_words),
        "abstains": float(declined and not known),
        "stance": float(stance(reference, polar) * stance(response, polar)),
        "cosine": cosine_beside_question(question, reference, response, vectors),
        "names": np.log1p(len(names & set(said_words))),
        "numbers": np.log1p(len((numbers(reference) - numbers(question)) & numbers(response))),
        "order_f": 2 * lexical.lcs_length(true, said) / (len(true) + len(said)),
    }


def places(values):
    """The place of each value among the distinct ones: what ranks of a resample need."""
    return np.unique(values, return_inverse=True)[1].reshape(values.shape)


def ranks(places):
    """Ranks by places, equal ones the mean of their ranks (as `rankdata`, in linear time)."""
    counts = np.bincount(places)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def correlations(lean_of, lean_places, labels, label_places, pairs):
    """Pearson and Spearman with both annotators' labels, on some pairs, as (2,)."""
    pearson = np.corrcoef(np.repeat(lean_of[pairs], 2), labels[pairs].ravel())[0, 1]
    of_score = ranks(np.repeat(lean_places[pairs], 2))
    return [pearson, np.corrcoef(of_score, ranks(label_places[pairs].ravel()))[0, 1]]


def differences(sides, pairs, placed, preference):
    """Every difference of two correlations on the same pairs, x 100."""
    known = {}
    found = []
    for (ours_of, theirs_of), aspect in product(sides.values(), rc.ASPECTS):
        for of in (ours_of, theirs_of):
            key = id(of[aspect]), aspect
            if key not in known:
                known[key] = np.array(correlations(of[aspect], placed[key], preference[aspect], placed[aspect], pairs))
        found.append(100 * (known[id(ours_of[aspect]), aspect] - known[id(theirs_of[aspect]), aspect]))
    return np.concatenate(found)


def simultaneous(sides, meta, preference, resamples, seed=0):
    """Estimate, low and high of every difference; all intervals hold together with 95%."""
    rng = np.random.default_rng(seed)
    order = np.argsort((meta["domain"] + "\n" + meta["question"]).tolist())  # not the order of the file
    n = len(order)
    placed = {aspect: places(preference[aspect]) for aspect in rc.ASPECTS}
    for of, aspect in product(chain(*sides.values()), rc.ASPECTS):
        placed[id(of[aspect]), aspect] = places(of[aspect])
    estimate = differences(sides, order, placed, preference)
    drawn = np.array([differences(sides, order[rng.integers(n, size=n)], placed, preference) for _ in range(resamples)])
    spread = drawn.std(axis=0)
    q = np.quantile((abs(drawn - estimate) / spread).max(axis=1), 0.95)
    print(f"q = {q:.2f} standard deviations, 1.96 would be for one interval")
    return estimate, estimate - q * spread, estimate + q * spread


def preference_table(
    scores: Mapping[str, Mapping[str, np.ndarray]],
    preference: Mapping[str, np.ndarray],
    resamples: int = 2000,
) -> pd.DataFrame:
    """Correlate metrics with people's preferences, as in Tables 2 and 5 (x 100).

    Parameters
    ----------
    scores : row of the table -> aspect -> scores of both responses, shape (pairs, 2). A difference
        with a missing side takes the median of the others, as in the authors' code.
    preference : aspect -> labels, shape (pairs, annotators).

    Returns
    -------
    DataFrame, a row per cell: row, aspect, method, value, low, high, n, column.
    """
    cells = []
    for (row, by_aspect), aspect in product(scores.items(), preference):
        for method in ("pearson", "spearman"):
            first, second = by_aspect[aspect].T
            labels = preference[aspect]
            r = preference_correlation(first, second, labels, method, "median", resamples=resamples)
            cells.append((row, aspect, method, r.estimate, r.low, r.high, r.n))
    columns = ["row", "aspect", "method", "value", "low", "high", "n"]
    table = pd.DataFrame(cells, columns=columns)
    table[["value", "low", "high"]] *= 100
    table["column"] = table["aspect"] + " " + table["method"]
    return table
