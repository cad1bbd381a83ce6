"""English stop words for the Terrier-like profile of BM25.

Terrier drops about seven hundred function words before stemming. This list was written for ragbench from the closed
word classes of English (and the adverbs, quantifiers and discourse words that behave like them); it is not Terrier's
file, so some words differ. Tokens come from ``[a-z0-9]+``, so the pieces that contractions leave are listed too.
"""

from __future__ import annotations

_BY_CLASS = {
    "articles, determiners": """
a an the this that these those each every either neither both all any some no none such what which whichever whatever
another other others same own several many much more most few fewer fewest little less least enough certain various
""",
    "pronouns": """
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones oneself who whom whose whoever whomever whosever
someone somebody something anyone anybody anything everyone everybody everything nobody nothing thee thou thy
""",
    "prepositions": """
about above across after against along alongside amid amidst among amongst around as at atop before behind below beneath
beside besides between beyond by concerning despite down during except excepting excluding for from in inside into like
near of off on onto opposite out outside over past per regarding round since than through throughout till to toward
towards under underneath unlike until unto up upon versus via with within without
""",
    "conjunctions": """
and but or nor so yet because although though whereas while whilst if unless lest whether when whenever where wherever
whereby wherein whereupon once how however why provided providing
""",
    "verbs": """
am is are was were be been being have has had having do does did doing done can could may might must shall should will
would ought need dare used become becomes became becoming get gets got getting gotten go goes going gone went
let lets make makes made keep keeps kept seem seems seemed seeming say says said saying see sees saw seen
take taken tell tends think thought thinks try tries tried trying want wants wish use uses using
come comes came know known knows look looks looking appear ask asking believe
""",
    "adverbs": """
again ago almost alone already also altogether always apart anyhow anyway anyways anywhere away back
clearly currently definitely else elsewhere especially even evenly ever everywhere
exactly far formerly forth further furthermore hence henceforth here hereafter hereby herein hereupon
hither hopefully indeed instead inward inasmuch just largely lately later latter latterly likely
likewise mainly maybe meanwhile merely moreover mostly namely nearly necessarily never nevertheless nonetheless not
notwithstanding novel now nowhere obviously often oh ok okay only otherwise overall particularly perhaps
possibly presumably probably quite rather really reasonably relatively respectively
secondly seldom seriously similarly simply somehow sometime sometimes somewhat somewhere
soon specifically still sure surely thence then there thereafter thereby therefore therein thereupon
thoroughly thus together too truly twice unfortunately usually very well whence whither yes
""",
    "quantities": """
two three four five six seven eight nine ten first second third lot lots plenty half
""",
    "discourse": """
able according accordingly actually afterwards ahead allow allows apparently appreciate appropriate
associated available awfully better best consequently consider considering contain containing contains
corresponding course different downwards e eg etc et ie example entirely followed following follows
former given gives given happens hello help hi immediate important indicate indicated indicates
inner insofar inc ltd need needs new next non normally particular placed please possible
qv rd re regardless regards right self selves sensible serious sent several thank thanks thanx theres thorough
unlikely useful value viz vs way welcome whole willing wonder zero
""",
    # What an apostrophe leaves behind: don't -> don t, they're -> they re.
    "pieces": """
s t d ll m re ve o y ain aren couldn didn doesn don hadn hasn haven isn mightn mustn needn shan shouldn wasn weren won
wouldn cannot cant dont
""",
}

STOP_WORDS: frozenset[str] = frozenset(" ".join(_BY_CLASS.values()).split())
