"""Which language a text is in: by its script, else by its most frequent function words.

A table, not a model: good enough to choose a stemmer or the language of a stock sentence, wrong for a text of a few
words and for languages it does not list. Mixed texts count as the language most of their words are in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# Words that a running text of that language is full of, question words included. In doubt the first one wins.
FUNCTION_WORDS = {
    "english": "the of and to in is was for that with as by on are from it this which be at who what when where how or "
    "a an did does do were had has have whose why his her its their than not but also into both are s",
    "german": "der die das und den dem des ist war mit sich auf für im nicht ein eine einer von zu als auch wird wurde "
    "wer wo wann wie welche welcher welches nach bei aus durch am",
    "french": "le la les des et est une un dans du que qui pour sur par avec au aux ce cette il elle sont été quel "
    "quelle où quand comment pas ne se ou d l",
    "spanish": "el la los las de y que en un una es por con para del se al su como fue son lo qué quién cuál dónde "
    "cuándo cómo más o",
    "italian": "il lo la i gli le di e che è in un una per con del della dei delle nel nella al da sono si chi quale "
    "dove quando come più ha",
    "portuguese": "o a os as de e que em um uma é por com para do da dos das no na ao se foi são quem qual onde quando "
    "como não mais",
    "dutch": "de het een en van in is was dat die op te voor met zijn aan door niet bij ook wie wat waar wanneer welke "
    "hoe werd naar",
    "swedish": "och att det som en ett är av för på med den till inte har var från om vem vad när vilken hur blev "
    "eller",
    "danish": "og at det som en et er af for på med den til ikke har var fra om hvem hvad hvor hvornår hvilken blev "
    "eller efter også",
    "norwegian": "og at det som en et er av for på med den til ikke har var fra om hvem hva hvor når hvilken ble eller "
    "etter også",
    "finnish": "ja on ei se että oli hän joka mutta ovat myös kuka mikä missä milloin kun sekä tai",
    "hungarian": "a az és hogy nem egy is van volt meg ki mi hol mikor melyik mint ez azt de",
    "romanian": "și de la în a cu pe care un o este din nu se pentru mai al sau cine ce unde când",
    "turkish": "ve bir bu için ile de da olan olarak kim ne nerede hangi daha çok en gibi",
    "polish": "i w na z się do nie jest to że o po od za jak kto co gdzie kiedy który była był",
    "czech": "a v na se je že z do s o to jako pro po který která kdo co kde kdy byl byla",
    "russian": "и в не на что с по как это к из у для от был была кто где когда какой о",
    "greek": "και το να του η της με που για από στο την τον ο οι είναι ποιος πού πότε",
    "arabic": "في من على إلى أن هذا هذه التي الذي عن مع كان هو هي ما أين متى",
    "persian": "و در به از که این را با است برای آن یک بود کجا",
    "hindi": "के का की में है और से को पर ने एक यह था कि थे",
}
# Scripts without blanks between words, and Korean, whose words change with the particles on them.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han, Kana
    r"\u1100-\u11ff\uac00-\ud7a3"  # Hangul
)
_SCRIPTS = {
    "japanese": "\u3040-\u30ff",
    "korean": "\u1100-\u11ff\uac00-\ud7a3",
    "thai": "\u0e00-\u0e7f",
    "chinese": "\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff",
}
LANGUAGES = (*FUNCTION_WORDS, *_SCRIPTS)
_LEAST_SHARE = 0.08  # of the words that must be function words of the language; running text has 0.25 to 0.45
_LEAST_WORDS = 2  # different ones
_LEAST_KANA = 0.05  # of the characters of a Japanese text; a Chinese one may quote a Japanese name

_KNOWN = {language: frozenset(words.split()) for language, words in FUNCTION_WORDS.items()}
_WORD = re.compile(rf"[{UNSPACED}]|[^\W\d_{UNSPACED}]+")
_IN_SCRIPT = {language: re.compile(f"[{span}]") for language, span in _SCRIPTS.items()}
_ONE_UNSPACED = re.compile(f"[{UNSPACED}]")


def language_of(texts: Iterable[str]) -> str | None:
    """Name the language most of some texts, read as one, is written in.

    Returns
    -------
    one of `LANGUAGES`; None when nothing tells.

    >>> language_of(["Wer gründete die Mühle?"])
    'german'
    """
    counts = Counter(word for text in texts for word in _WORD.findall(text.casefold()))

    def total(pattern: re.Pattern[str]) -> int:
        return sum(n for word, n in counts.items() if pattern.match(word))

    unspaced = total(_ONE_UNSPACED)
    words = counts.total() - unspaced
    if unspaced > 2 * words:  # a word of these scripts has about two characters
        shares = {language: total(pattern) / unspaced for language, pattern in _IN_SCRIPT.items()}
        return "japanese" if shares["japanese"] >= _LEAST_KANA else max(shares, key=shares.__getitem__)
    best, most = None, _LEAST_SHARE
    for language, known in _KNOWN.items():
        hits = [counts[word] for word in known if word in counts]
        if len(hits) >= _LEAST_WORDS and sum(hits) / words > most:
            best, most = language, sum(hits) / words
    return best
