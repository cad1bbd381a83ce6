"""Who says what of an answer. One file a kind of label: what it means, and how a model gives it.

``grades``       1 to 5, by a judge model; graded answers, and the judge's ``exam`` on them
``claims``       a text's claims, and whether other texts entail them, as ``checkers`` say
``statements``   RAGAS: statements, verdicts, questions, needed sentences
``keypoints``    RAGEval: the true answer's keypoints; is each covered, contradicted, or neither
``preferences``  which of two texts is better, by a model, asked in both orders
``people``       labels that people give: what is asked, the file, the session, the agreement of two
                 people
``asking``       how every label is asked of a model: each different prompt once

A reply that cannot be read leaves its item unscored (None); `ragbench.llm.ask` logs how many, and
why, and a cassette keeps the reply.
`ragbench.scoring.LABELS` lists the labels that `ragbench.score` makes. The prompts are
``ragbench/prompts/*.txt``; any can be replaced.
"""

from ragbench.labelling import asking as asking
from ragbench.labelling import checkers as checkers
from ragbench.labelling import claims as claims
from ragbench.labelling import exam as exam
from ragbench.labelling import grades as grades
from ragbench.labelling import keypoints as keypoints
from ragbench.labelling import people as people
from ragbench.labelling import preferences as preferences
from ragbench.labelling import statements as statements
