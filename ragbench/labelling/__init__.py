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

from ragbench._lazy import lazy

__getattr__, __dir__ = lazy(__name__, path=__path__)
