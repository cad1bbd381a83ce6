"""What an answer does before it says anything: decline, guess, say yes or no, or choose one of two."""

from __future__ import annotations

import re

from ragbench.grading.text import content_stems, tokens

_LOOKED = 400  # characters in which an answer must decline; later, "not mentioned" is a remark inside an answer

_VERBS = (
    "answer|compare|confirm|conclude|decide|determine|establish|find|give|identify|infer|judge|locate|name|provide|"
    "say|see|tell|work out|verify"
)
_STATED = (
    "address\\w*|allow\\w*|appear\\w*|available|clear|contain\\w*|cover\\w*|describe\\w*|detail\\w*|disclose\\w*|"
    "discuss\\w*|enough|explain\\w*|found|given?|gives|identif\\w+|include\\w*|indicate\\w*|known?|knows|let|lets|"
    "list\\w*|mention\\w*|named?|provid\\w+|record\\w*|reveal\\w*|said|says?|shown?|specif\\w+|state[ds]?|sufficient|"
    "supplied|supply|tell|tells|told"
)
_THING = (
    "answer|birthplace|clue|data|date|detail|details|evidence|fact|facts|hint|idea|indication|info|information|"
    "mention|passage|passages|record|reference|statement|text|trace|way"
)
_WEAK = r"(?:\w+ly |yet |at all |really |quite |any |the |an? |it |me |us |be |been |even |have |has )*"
_DECLINES = re.compile(
    rf"\b(?:can ?not|can't|could ?n[o']t|could not|unable to|not able to|impossible to|not possible to|no way to"
    rf"|fail(?:s|ed)? to|difficult to|hard to) {_WEAK}(?:{_VERBS})"
    rf"|(?:\bnot|n't|\bnever|\bnowhere|\bneither) {_WEAK}(?:{_STATED})\b"
    rf"|\bno (?:\w+ ){{0,2}}(?:{_THING})\b|\b(?:no|neither|none) (?:\w+ ){{1,4}}(?:is|are|was|were) (?:{_STATED})\b"
    r"|\bbut (?:not|nothing) (?:about|on)\b"
    rf"|\b(?:\w+ is|is|nothing is|none is|nothing was) (?:missing|lacking|unknown|absent|unclear|unspecified)\b"
    rf"|\bnone of the (?:\w+ ){{0,2}}(?:{_THING}|documents|sources|sentences|paragraphs|excerpts)\b"
    rf"|\b(?:i|we) have no(?:thing|ne)?\b|\bsa(?:y|ys|id) nothing\b|\bnothing (?:is |was |about|here|in the|on |to )"
    rf"|\b(?:insufficient|inconclusive|unspecified|undetermined|unanswerable)\b|^\W*(?:unknown|unclear|unsure|unsaid)\b"
    rf"|\bremains? (?:unknown|unclear|open|unstated)\b|\bunknown to me\b|\bis (?:not known|unknown|unclear)\b"
    rf"|\b(?:lacks?|lacking|without|too little|not enough|leaves? (?:out|open)|omits?|silent)\b.{{0,30}}"
    rf"\b(?:{_THING}|context|documents?|on|about|open)\b"
    rf"|\b(?:not|n't|un)[ -]?(?:sure|certain)\b|\bno idea\b"
)
# The same in other languages: a sentence with one of these says that it does not know.
_DECLINES_ELSEWHERE = re.compile(
    # German
    r"\bnicht (?:genug|genügend|ausreichend|hinreichend)|\breich(?:t|en) nicht (?:aus|hin)"
    r"|\bkein(?:e|erlei) (?:\w+ ){0,2}(?:information(?:en)?|angaben?|hinweise?|auskunft|antwort|daten|aussagen?)\b"
    r"|\bnicht (?:\w+ ){0,3}(?:erwähnt|genannt|enthalten|angegeben|bekannt|hervor|ersichtlich|klar"
    r"|beantwort\w*|entnehmen|entnommen|bestimm\w*|ermitteln|ableiten|feststellen)\b"
    r"|\bweiss (?:ich |es |das |leider )*nicht\b|\bist (?:\w+ )?unbekannt\b"
    # French
    r"|\bpas (?:assez|suffisamment) d|\baucune? (?:\w+ ){0,2}(?:information|mention|réponse|indication|donnée|élément)"
    r"|\bn(?:e |')(?:[\w']+ ){0,2}(?:mentionn|précis|indiqu|perme[tn]|fourni|donn|di[st]|répond)\w* "
    r"(?:\w+ )?(?:pas|rien|aucun)"
    r"|\bn'(?:est|sont|a|ont) pas (?:été )?(?:mentionn|précis|indiqu|connu|possible|donné|clair)"
    r"|\bimpossible de (?:\w+ )?(?:répondre|déterminer|dire|savoir|trouver)|\bje (?:ne )?sais pas\b|\bje l'ignore\b"
    r"|\bne (?:peu[tx]|peuvent|permett?\w*) pas (?:\w+ )?(?:répondre|déterminer|de répondre|de déterminer)"
    # Spanish, Italian
    r"|\bno (?:\w+ ){0,2}(?:suficiente )?(?:información|informaciones)\b|\bno lo sé\b"
    r"|\bno se (?:menciona|indica|especifica|sabe|puede)"
    r"|\bnon (?:\w+ ){0,3}(?:informazioni|menzionat\w|indicat\w|specificat\w|rispondere)\b|\bnon lo so\b"
    # Chinese, both scripts
    r"|(?:不足以|[无無]法|不能|未能|[难難]以)[^。！？\n]{0,12}(?:回答|[确確]定|判[断斷]|得知|找到|作答|推[断斷]|得出)"
    r"|(?:[没沒]有|[并並]?未(?:曾|能|有)?)[^。！？，\n]{0,6}(?:提到|提及|提供|[说說]明|[记記][载載]|包含|[给給]出|涉及|指出)"
    r"|[没沒]有[^。！？，\n]{0,8}(?:信息|資訊|資料|答案)|(?:信息|資訊|資料|文[档檔])不足|不知道|不清楚|不[详詳]"
)
_GUESSES = re.compile(
    r"\b(?:probably|perhaps|possibly|presumably|maybe|might (?:be|have)|may have been|likely|my guess|must have been"
    r"|i(?:'d)? (?:think|guess|believe|assume|suspect|would say))\b"
)
_YES = re.compile(
    r"^\W*(?:yes|yeah|correct|indeed|right|true|certainly|both"
    r"|they (?:did|do|were|are|have|had)(?! ?n[o']t)|(?:he|she|it) (?:did|does|was|is|has|had)(?! ?n[o']t))\b"
)
_NO = re.compile(r"^\W*(?:no|nope|not|never|neither|incorrect|false|wrong|only)\b")
_NEGATION = re.compile(r"\b(?:not|never|neither|nor|no|only|different|differ\w*|another|unlike)\b|n't\b")
_CLAUSE_END = re.compile(r"[.,;:!?\n]|\b(?:because|since|but|although|while|whereas)\b")
_COMPARES = re.compile(r"\b(?:than|before|after|followed|follows|preceded|preceding|behind|instead of|rather than)\b")


def declines(text: str) -> bool:
    """Say whether an answer states, near its beginning or at its end, that it does not know.

    Parameters
    ----------
    text : the answer, in English or a language of `declines_elsewhere`; looked at are its first and last 400
        characters, in any case and with either apostrophe.
    """
    return _says(_DECLINES, text) or declines_elsewhere(text)


def declines_elsewhere(text: str) -> bool:
    """Say the same for German, French, Spanish, Italian and Chinese, without the English words."""
    return _says(_DECLINES_ELSEWHERE, text)


def _says(pattern: re.Pattern[str], text: str) -> bool:
    text = text.casefold().replace("’", "'")
    return bool(pattern.search(text[:_LOOKED]) or pattern.search(text[-_LOOKED:]))


def guesses(text: str) -> bool:
    """Say whether an answer offers something as probable ("but it was probably 1895")."""
    return bool(_GUESSES.search(text.casefold()[:_LOOKED]))


def polarity(text: str) -> int:
    """Return 1 for yes, -1 for no, 0 for neither, from the first clause of the answer to a yes/no question."""
    text = text.casefold().replace("’", "'")[:_LOOKED]
    if declines(text) and not re.match(r"\W*(?:yes|no)\b(?=[,.;:!—–-])", text):
        return 0
    if _NO.match(text):
        return -1
    clause = _CLAUSE_END.split(text.lstrip(" \"'([").removeprefix("the answer is "), maxsplit=1)[0]
    if re.match(r"\W*(?:yes|yeah|correct|indeed|true|right)\b", clause):
        return 1
    if re.match(r"\W*no\b", clause) or _NEGATION.search(clause):
        return -1
    return 1 if _YES.match(text) or re.search(r"\b(?:both|same|either|each|too|also)\b", clause) else 0


def options(question: str, reference: str) -> tuple[frozenset[str], frozenset[str]] | None:
    """Find the two things a question lets one choose from, as the stems that tell them apart.

    Returns
    -------
    (stems of the true one, stems of the other), or None when the question offers no choice that names the true one.
    """
    head, found, tail = question.rpartition(" or ")
    if not found:
        return None
    left = re.split(r"[,:;]", head.rstrip(" ,"))[-1]
    true, sides = content_stems(reference), (content_stems(left), content_stems(tail))
    overlaps = [len(true & side) for side in sides]
    if overlaps[0] == overlaps[1]:
        return None
    right = 0 if overlaps[0] > overlaps[1] else 1
    mine, other = true - sides[1 - right], sides[1 - right] - true - sides[right]
    return (mine, other) if mine and mine <= sides[right] and other else None


def choice(text: str, mine: frozenset[str], other: frozenset[str]) -> int:
    """Return 1 when an answer picks ``mine``, -1 when it picks ``other``, 0 when it names neither.

    The one named first is picked, unless the sentence turns it round ("Titan was not the first"). An answer that
    declines picks neither.
    """
    if declines(text):
        return 0
    said = tokens(text)
    first = next((t for t in said if t.stem in mine or t.stem in other), None)
    if first is None:
        return 0
    picked = 1 if first.stem in mine else -1
    clause = re.split(r"[.,;:!?\n]", text[: first.start + _LOOKED].casefold().replace("’", "'"))
    place = 0
    for part in clause:
        if place <= first.start <= place + len(part):
            return -picked if re.search(r"\bnot\b|n't\b", part) else picked
        place += len(part) + 1
    return picked


def after_comparison(text: str, place: int) -> bool:
    """Say whether what stands at ``place`` comes after "than", "before", "followed": the other term of a comparison."""
    start = max(text.rfind(mark, 0, place) for mark in ",.;!?\n") + 1
    return bool(_COMPARES.search(text[start:place].casefold()))
