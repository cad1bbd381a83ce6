"""Answers compared word by word: exact match, contained, token F1, BLEU, ROUGE-L, IDF overlaps. All
in [0, 1].

``reference`` is one text or several, of which the best counts. The published definitions know Latin
letters only: texts in another script (more than a tenth of the letters: Russian, Chinese, Thai ...)
are compared by `_characters_and_words`. The tokenizer of BLEU and ROUGE-L is an argument, since
published numbers depend on it: those of RAGChecker's Tables 2 and 5 need the tokens of a Chinese
word segmenter.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragbench.errors import ConfigError, check_known
from ragbench.stats.inputs import as_list
from ragbench.text.common import lcs_length
from ragbench.text.languages import ANY_UNSPACED, HAN, KANA
from ragbench.text.words import (
    ONES,
    TENS,
    folded,
    stemmer,
    stems,
    unified,
    word_characters,
    words,
)

_Words = Callable[[str], Sequence[str]]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ONE_TO_NINE = [word for word, value in ONES.items() if 1 <= value <= 9]
_TENS_IN_WORDS = re.compile(
    rf"(?i)\b(?=[tfsen])({'|'.join(TENS)})(?:[ -]({'|'.join(_ONE_TO_NINE)}))?\b"
)
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_NO_ZERO = re.compile(r"\.(?<![\w.]\.)(?=\d)")  # of p < .05
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_ARTICLES_BUT_A_NAME = ("a", "an", "An", "AN", "the", "The", "THE")  # the A of "A minor" stays
# Per cent, per mille, and the signs of currencies.
_UNITS = "%‰" + "".join(c for c in map(chr, range(0x20D0)) if unicodedata.category(c) == "Sc")
_UNIT = re.compile(f"[{_UNITS}]")
_CLOSED = ("yes", "no", "noanswer")
_LATIN = re.compile("[a-zA-Z0-9\u00aa\u00b5\u00ba\u00c0-\u02ff\u1e00-\u1eff\ufb00-\ufb06]")


def _normalise_answer(text: str) -> str:
    """Lower-case, drop ASCII punctuation and the articles a, an, the, and squeeze white space
    (HotpotQA's script).
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _characters_and_words(text: str) -> list[str]:
    """Return the words of a text that is not in Latin letters; single characters in scripts without
    blanks, and Korean.
    """
    return words(text, unspaced=1)


def _other_script(*texts: str) -> bool:
    """Say whether over a tenth of the letters (of the digits, without letters) are not Latin."""
    if all(map(str.isascii, texts)):
        return False
    joined = "".join(texts)
    letters = list(filter(str.isalpha, joined)) or re.findall(r"\d", joined)
    n_other = sum(not _LATIN.match(letter) for letter in letters)
    return 10 * n_other > len(letters)


def _best_over_references(
    score: Callable[[str, str], float], prediction: str, reference: str | Sequence[str]
) -> float:
    """Return the best score of several references; NaN where all of them are."""
    prediction, *references = _texts(prediction, reference)
    scores = [score(prediction, text) for text in references]
    defined = [value for value in scores if not math.isnan(value)]
    return max(defined, default=math.nan)


def _texts(prediction: str, reference: str | Sequence[str]) -> list[str]:
    """Return the prediction and its references, of which there is at least one."""
    references = [reference] if isinstance(reference, str) else as_list(reference, "reference")
    if not isinstance(prediction, str) or not references:
        raise ConfigError(
            f"prediction is {prediction!r:.60}, reference {reference!r:.60}",
            "a text, and one or several true texts",
            "pass answer.text, not a failure, and question.answer",
        )
    return [prediction, *references]


def exact_match(prediction: str, reference: str | Sequence[str]) -> float:
    """Say whether the normalised prediction equals the normalised reference: 1.0 or 0.0.

    Source: HotpotQA, official evaluation script.

    >>> rb.exact_match("The mill", "mill"), rb.exact_match("the old mill", "mill")
    (1.0, 0.0)
    """

    def equal(got: str, true: str) -> float:
        form = _characters_and_words if _other_script(got, true) else _normalise_answer
        return float(form(got) == form(true))

    return _best_over_references(equal, prediction, reference)


def contained(prediction: str, reference: str | Sequence[str]) -> float:
    """Say whether the true answer stands in the prediction: 1.0 or 0.0; NaN when the true answer
    has no word.

    Both texts are read as words without case, punctuation and articles (`ragbench.text.words`). The
    true answer is contained when a run of the prediction's words spells it, blanks left out:
    "Jean-Paul" is "Jean Paul", "5kg" is "5 kg", and "art" does not stand in "Bart". In scripts
    without blanks, and Korean, each character is a word. Numbers are compared by value: 1,234 is
    1234, three is 3, and 19 stands neither in 1997 nor in 19.5. What changes a value counts: -5 is
    not 5, C# not C++, O- not O+, ≥5 not 5; $5 is not €5, but 5 without a currency (or per cent) is
    either. A true "yes" or "no" is contained when the prediction opens with it and goes on with a
    mark, not a word: "No record is known" is no answer.

    For true answers of a few words. It misses a paraphrase ("the Iron Lady" for Thatcher) and a
    comparison that leaves out the "yes". It also counts a denial ("not Paris"), a list of guesses,
    and the right name in a wrong statement. Measured on answers of a 1.5B model with reference
    grades (grade 5 or not, balanced accuracy): .91.

    Source: the field's "accuracy", or cover exact match: Mallen et al. 2023, section 3 (a true
    answer is a substring of the prediction); Liu et al. 2024, "Lost in the Middle", section 2.1.
    Whole words, numbers, yes and no are ours.

    >>> contained("She died in Trieste, in 1890.", "Trieste"), contained("In 1,190 towns", "190")
    (1.0, 0.0)
    """
    return _best_over_references(_contained, prediction, reference)


def _contained(prediction: str, reference: str) -> float:
    target = _comparable_words(reference)
    said = _comparable_words(prediction)
    if not target:  # nothing but articles, as in The The
        target = _comparable_words(reference, articles=True)
        said = _comparable_words(prediction, articles=True)
    if not target:
        return math.nan
    if target in (["yes"], ["no"]):
        opening = re.match(r"\W*(yes|no)\b(?!\s*\w)", prediction.casefold())
        return float(opening is not None and opening[1] == target[0])
    return float(_spells(*_same_units(said, target)))


def _spells(words: Sequence[str], target: Sequence[str]) -> bool:
    """Say whether a run of words, written without blanks, spells the target."""
    written = "".join(words)
    wanted = "".join(target)
    at = written.find(wanted)
    if at < 0:
        return False
    borders = set(itertools.accumulate(map(len, words), initial=0))
    while at >= 0:
        if at in borders and at + len(wanted) in borders:
            return True
        at = written.find(wanted, at + 1)
    return False


def _same_units(words: Sequence[str], target: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Leave out the units of numbers, but where the same number has another one in the target."""
    units = {word[:-1]: word[-1] for word in target if word[-1] in _UNITS}
    if not units and not _UNIT.search("".join(words)):
        return words, target
    compared = []
    for word in words:
        if word[-1] in _UNITS and units.get(word[:-1], word[-1]) == word[-1]:
            word = word[:-1]
        compared.append(word)
    return compared, [word.rstrip(_UNITS) for word in target]


@functools.cache
def _token() -> re.Pattern[str]:
    """Compile what finds the words and numbers of a text for `contained`."""
    character = f"[{word_characters()}]"
    minus = r"(?<![\w)\]])[-−–]"
    compared = r"[≤≥]\s?|(?<![-=<>/])(?<!<\w)(?<!/\w)[<>]=?(?=[\d.])|(?<=\S )[<>]=? "
    number = rf"(?<!\w)(?<!\w[.,]){_DIGITS.pattern}"
    # 5kg is 5 kg; 19th, 1990s and 3D are one word each
    letters = r"(?!(?i:st|nd|rd|th)\b)[^\W\d_]{2,}(?!\w)"
    return re.compile(
        r"(?=\S)(?:[a-z]+(?=[\s,.;:!?]|$)"  # most words, and quickly
        r"|(?<![\w'’.])[A-Z][A-Za-z]?[-−–](?![\w-])"  # O-, Cl-
        rf"|(?:{minus}|{compared})?(?:[{_UNITS}]\s?-?)?{number}(?:(?!\w)|(?={letters}))(?:\s?[{_UNITS}])?"
        rf"|{number}{character}+"
        rf"|{character}+(?:[#♯♭](?!\d)|\+{{1,2}}(?!\w))?)"  # C#, C++, O+
    )


def _comparable_words(text: str, articles: bool = False) -> list[str]:
    """Return the words of a text for `contained`; articles are left out unless asked for."""
    text = unified(text).replace("_", " ")
    if not text.isascii():
        text = ANY_UNSPACED.sub(r" \g<0> ", text)
    if "inus " in text:
        text = re.sub(r"\b[Mm]inus (?=\d)", "-", text)
    text = _NO_ZERO.sub("0.", _TENS_IN_WORDS.sub(_in_digits, text))
    words = map(_comparable_word, _token().findall(text))
    if articles:
        words = map(_folded_word, _token().findall(text))
    return [word for word in words if word]


@functools.lru_cache(maxsize=65536)
def _comparable_word(token: str) -> str:
    return "" if token in _ARTICLES_BUT_A_NAME else _folded_word(token)


def _folded_word(token: str) -> str:
    """Return a word without case; a number in brackets, so that "1, 2" does not spell 12, with its
    sign inside and its unit behind them.
    """
    word = folded(token)
    if word in ONES:
        return f"<{ONES[word]}>"
    number = _DIGITS.search(token)
    if number is None or token[0].isalpha():
        return re.sub("[−–]", "-", word).replace("♯", "#")
    value = _THOUSANDS.sub("", number[0]).replace(",", ".")
    before = re.sub("[−–]", "-", token[: number.start()])
    sign = re.sub(rf"[{_UNITS}\s]", "", before).replace("<=", "≤").replace(">=", "≥")
    rest = folded(token[number.end() :])
    units = _UNIT.findall(token)
    return f"<{sign}{value}>{rest.strip()}" if not units else f"<{sign}{value}>{units[0]}"


def _in_digits(match: re.Match[str]) -> str:
    return str(sum({**ONES, **TENS}[word.lower()] for word in match.groups() if word))


def token_f1(prediction: str, reference: str | Sequence[str]) -> float:
    """Return the F1 of the normalised tokens, counted with repetition; 0 when either side has none
    left.

    When either side is "yes", "no" or "noanswer" and the other is not the same, the score is 0
    (HotpotQA's rule, which SQuAD's evaluation lacks).

    Source: HotpotQA, official evaluation script.

    >>> round(rb.token_f1("the old mill", "mill"), 2)
    0.67
    """
    return _best_over_references(_token_f1, prediction, reference)


def _token_f1(prediction: str, reference: str) -> float:
    if _other_script(prediction, reference):
        a = _characters_and_words(prediction)
        b = _characters_and_words(reference)
    else:
        got = _normalise_answer(prediction)
        true = _normalise_answer(reference)
        if got != true and (got in _CLOSED or true in _CLOSED):
            return 0.0
        a = got.split()
        b = true.split()
    return _harmonic((Counter(a) & Counter(b)).total(), len(a), len(b))


def _harmonic(common: int, predicted: int, true: int) -> float:
    """Harmonic mean of precision and recall."""
    if not common:
        return 0.0
    precision = common / predicted
    recall = common / true
    return 2 * precision * recall / (precision + recall)


def bleu(
    prediction: str,
    reference: str | Sequence[str],
    *,
    tokenizer: str | _Words | None = None,
    smoothing: str = "exp",
    effective_order: bool = True,
    brevity_penalty: bool = True,
) -> float:
    """Return the sentence BLEU of a prediction; several references are those of one sentence, as in
    sacrebleu.

    Parameters
    ----------
    tokenizer : a name sacrebleu knows or a callable text -> tokens; None: by script, "zh" for
        Chinese, "char" for other scripts without blanks, else "13a".
    smoothing : ``"exp"``, ``"floor"``, ``"add-k"`` or ``"none"``, as sacrebleu calls them.
    effective_order : leave out n-gram orders the prediction is too short for.
    brevity_penalty : False divides it out.

    Source: Papineni et al. 2002, through sacrebleu. RAGChecker's Table 2 has BLEU on jieba's tokens
    (notebook 21).

    >>> round(rb.bleu("Ada built the old mill", "Ada built the mill"), 2)
    0.43
    """
    check_known("BLEU smoothing", [smoothing], ("none", "exp", "floor", "add-k"))
    texts = _texts(prediction, reference)
    if tokenizer is None:
        tokenizer = _bleu_tokenizer(texts)
    if callable(tokenizer):
        # sacrebleu splits at white space, so each distinct token gets a name without any.
        names: dict[str, str] = {}
        texts = [
            " ".join(names.setdefault(token, f"t{len(names)}") for token in tokenizer(text))
            for text in texts
        ]
        tokenizer = "none"
    # A corpus of one sentence: the same number, without the warning that sentence_score prints for
    # every call.
    scorer = _bleu_scorer(tokenizer, smoothing, effective_order)
    result = scorer.corpus_score(texts[:1], [[text] for text in texts[1:]])
    score = result.score / 100
    if not brevity_penalty and result.bp:
        score /= result.bp
    return min(1.0, score)


def _bleu_tokenizer(texts: Sequence[str]) -> str:
    joined = "".join(texts)
    if not _other_script(*texts) or not ANY_UNSPACED.search(joined):
        return "13a"
    if HAN.search(joined) and not KANA.search(joined):
        return "zh"
    return "char"


@functools.cache
def _bleu_scorer(tokenizer: str, smoothing: str, effective_order: bool) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    check_known("BLEU tokenizer", [tokenizer], BLEU.TOKENIZERS)
    return BLEU(tokenize=tokenizer, smooth_method=smoothing, effective_order=effective_order)


def rouge_l(
    prediction: str,
    reference: str | Sequence[str],
    *,
    tokenizer: _Words | None = None,
    stem: bool = False,
) -> float:
    """Return the F1 of ROUGE-L, by the longest common subsequence of tokens; 0 when either side has
    none.

    ``tokenizer``: callable text -> tokens; default rouge-score's own (runs of a-z0-9), and
    `_characters_and_words` for texts in another script. ``stem``: stem the default tokenizer's
    words longer than three letters (Porter; rouge-score adds NLTK's exceptions).

    Source: Lin 2004; equal to rouge-score, whose tables in pure Python are replaced by bit
    operations.

    >>> round(rb.rouge_l("Ada built the mill", "Ada built a mill"), 2)
    0.75
    """

    def score(got: str, true: str) -> float:
        tokens = _stems if stem else _latin_words
        if tokenizer is not None:
            tokens = tokenizer
        elif _other_script(got, true):
            tokens = _characters_and_words
        a = list(tokens(got))
        b = list(tokens(true))
        return _harmonic(lcs_length(a, b), len(a), len(b))

    return _best_over_references(score, prediction, reference)


def _latin_words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _stems(text: str) -> list[str]:
    porter = stemmer("porter").stemWord
    return [porter(word) if len(word) > 3 else word for word in _latin_words(text)]


def idf_weights(texts: Iterable[str]) -> dict[str, float]:
    """Weigh each stem by its rarity: ln(1 + (N - df + 0.5) / (df + 0.5)) over N texts, always above
    0.

    >>> weights = rb.idf_weights(["the mill", "the lake"])
    >>> weights["mill"] > weights["the"]
    True
    """
    N = 0
    frequency: Counter[str] = Counter()
    for text in texts:
        N += 1
        frequency.update(set(stems(text)))
    return {stem: math.log(1 + (N - df + 0.5) / (df + 0.5)) for stem, df in frequency.items()}


def _weight(words: Counter[str], idf: Mapping[str, float], unseen: float) -> float:
    return math.fsum(n * idf.get(stem, unseen) for stem, n in words.items())


def claim_overlap(claim: str, text: str, idf: Mapping[str, float]) -> float:
    """Share of a claim's words that stand in a text, each different word weighted by its IDF; NaN
    without words.

    sum of idf(w) over the stems w of both / sum of idf(w) over the claim's stems

    Parameters
    ----------
    idf : stem -> weight, as `idf_weights` gives of the documents or chunks; a stem that it lacks
        weighs as much as the rarest.

    Words found are no proof that a text says the claim: order, negation and who did what are not
    read. On MiniHop's reference labels it ranks the chunks that entail a claim of the true answer
    above the others (AUC .998), and does far worse for the claims of a model's answer (.78), which
    put true words together wrongly.

    In scripts without blanks, and Korean, the words are overlapping pairs of characters.

    >>> round(claim_overlap("Cats sat", "The cat ran", {"cat": 1.0, "sat": 3.0}), 2)
    0.25
    """
    rarest = max(idf.values(), default=1.0)
    claimed = Counter(set(stems(claim)))
    both = claimed & Counter(stems(text))
    total = _weight(claimed, idf, rarest)
    if not total:
        return math.nan
    return _weight(both, idf, rarest) / total
