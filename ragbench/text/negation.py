"""What a text does before it says anything: decline or guess.

Fitted models depend on what counts as "I do not know", so each use has its own row in `ABSTENTIONS`.

``judge``            English, in the first 300 characters: a feature of the embedded judge.
``grader``           English, German, French, Chinese, in the first and the last 400 characters: the embedded grader.
``other_languages``  the same without English.
``sentence``         English, anywhere in one sentence: the rules beside RAGAS.
``audit``            ``judge``, ``other_languages``, and "not enough information", which models often write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ragbench.errors import check_known

_LOOKED = 400  # characters in which an answer must decline; later, "not mentioned" is a remark inside an answer

_CANNOT = re.compile(
    r"\bI (?:do not|don['’]t) (?:know|have)|\b(?:cannot|can['’]t|unable to|not possible to) (?:be )?"
    r"(?:answer|determin|find|provid|tell)|\b(?:not|n['’]t) (?:explicitly |directly |specifically )?"
    r"(?:mention|specif|provide|contain|state|include|give|discuss|say)|\bno (?:explicit |direct |specific |relevant )?"
    r"(?:mention|information|answer)\b|\binsufficient\b",
    re.I,
)
_TOO_LITTLE = re.compile(r"\b(?:not|n['’]t) (?:have )?enough (?:information|context|details?|evidence)", re.I)

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
    # Chinese, both scripts
    r"|(?:不足以|[无無]法|不能|未能|[难難]以)[^。！？\n]{0,12}(?:回答|[确確]定|判[断斷]|得知|找到|作答|推[断斷]|得出)"
    r"|(?:[没沒]有|[并並]?未(?:曾|能|有)?)[^。！？，\n]{0,6}(?:提到|提及|提供|[说說]明|[记記][载載]|包含|[给給]出|涉及|指出)"
    r"|[没沒]有[^。！？，\n]{0,8}(?:信息|資訊|資料|答案)|(?:信息|資訊|資料|文[档檔])不足|不知道|不清楚|不[详詳]"
)

_NOT = (
    r"\b(?:(?:can|could|do|does|did|is|are|was|were|has|have|had|will|would)(?:\s?not|n['’]t)|cannot|unable\s+to"
    r"|(?:not\s+|im)possible\s+to|nothing|no\s+\w+\s+(?:of|lets?|allows?))\b"
)
_KNOWING = (
    r"(?:know|known|find|found|see|tell|told|say|said|says|determin\w+|answer\w*|specif\w+|record\w*|mention\w*|stat\w+"
    r"|giv\w+|provid\w+|availab\w+|disclos\w+|announc\w+|reveal\w*|compar\w+|clear|certain|sure|information|detail\w*"
    r"|cover\w*|includ\w+|contain\w*|confirm\w*|established|identif\w+|name[ds]?)\b"
)
_EVASION = re.compile(
    rf"{_NOT}[^.;!?]{{0,40}}?\b{_KNOWING}"
    r"|\bno\s+(?:(?:further|explicit|specific|direct|relevant|definite|clear)\s+)?"
    r"(?:mention|information|answer|details?|data|record|indication|evidence|comparison)\b"
    r"|\b(?:none|neither)\s+of\s+the\b|\bun(?:known|clear|certain)\b|\binsufficient\b"
    r"|\bnot\s+(?:yet\s+)?(?:known|clear|available|specified|stated|given|mentioned|recorded|provided)\b"
    r"|\b(?:sorry|apologi[sz]e)\b|\bas\s+an\s+AI\b|\blook(?:ed)?\s+(?:it\s+)?up\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One look for words that decline."""

    pattern: re.Pattern[str]
    first: int | None = None  # characters looked at, from the beginning; None: the whole text
    last: int = 0  # and from the end
    folded: bool = False  # look at folded case with straight apostrophes

    def matches(self, text: str) -> bool:
        text = text.casefold().replace("’", "'") if self.folded else text
        at_end = self.last > 0 and self.pattern.search(text[-self.last :])
        return bool(self.pattern.search(text[: self.first]) or at_end)


_JUDGE = _Pattern(_CANNOT, first=300)
_ELSEWHERE = _Pattern(_DECLINES_ELSEWHERE, _LOOKED, _LOOKED, folded=True)
ABSTENTIONS: dict[str, tuple[_Pattern, ...]] = {
    "judge": (_JUDGE,),
    "grader": (_Pattern(_DECLINES, _LOOKED, _LOOKED, folded=True), _ELSEWHERE),
    "other_languages": (_ELSEWHERE,),
    "sentence": (_Pattern(_EVASION),),
    "audit": (_JUDGE, _ELSEWHERE, _Pattern(_TOO_LITTLE)),
}


def abstains(text: str, profile: str) -> bool:
    """Say whether an answer, or a sentence of it, states that something is not known, by a row of `ABSTENTIONS`."""
    check_known("abstention profile", [profile], ABSTENTIONS)
    return any(look.matches(text) for look in ABSTENTIONS[profile])


NEGATION = re.compile(r"\b(no|not|never|none|neither|nor|cannot|without|unlikely|false|incorrect)\b|n['’]t\b", re.I)
_GUESSES = re.compile(
    r"\b(?:probably|perhaps|possibly|presumably|maybe|might (?:be|have)|may have been|likely|my guess|must have been"
    r"|i(?:'d)? (?:think|guess|believe|assume|suspect|would say))\b"
)


def guesses(text: str) -> bool:
    """Say whether an answer offers something as probable ("but it was probably 1895")."""
    return bool(_GUESSES.search(text.casefold()[:_LOOKED]))
