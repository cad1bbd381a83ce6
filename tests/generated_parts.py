"""A schema, two documents and a question, written by hand, and a server that answers as told."""

import json

from ragbench.datagen import QRA, Configuration, GeneratedDocument, Reference, Schema

SCHEMA = Schema(
    "finance",
    "company",
    {
        "Results": ("revenue", "net_profit", "cause"),
        "Events": ("new_chairman", "meeting_date", "plan"),
    },
    ("fishing", "publishing"),
)
TARN = Configuration(
    "finance-01",
    "fishing",
    {
        "company": "Tarn Trawlers",
        "revenue": "80 million crowns",
        "net_profit": "6 million crowns",
        "cause": "rising fish prices",
        "new_chairman": "Ada Ruck",
        "meeting_date": "4 May 2020",
        "plan": "a second harbour",
    },
)
VOLE = Configuration(
    "finance-02",
    "publishing",
    {
        "company": "Vole Books",
        "revenue": "50 million crowns",
        "net_profit": "2 million crowns",
        "cause": "a popular atlas",
        "new_chairman": "Bo Lind",
        "meeting_date": "9 June 2021",
        "plan": "a shop in Oster",
    },
)
CONFIGURATIONS = (TARN, VOLE)
REVENUE = (
    "In the year Tarn Trawlers had revenue of 80 million crowns and a net profit of 6 "
    "million crowns."
)
CHAIRMAN = "Ada Ruck became chairman at the meeting on 4 May 2020."
DOCUMENTS = (
    GeneratedDocument(
        "finance-01",
        "Tarn Trawlers",
        {"Results": (REVENUE, "The cause was rising fish prices."), "Events": (CHAIRMAN,)},
        {name: value for name, value in TARN.values.items() if name != "plan"},
        lost=("plan",),
    ),
    GeneratedDocument(
        "finance-02",
        "Vole Books",
        {
            "Results": ("Vole Books had revenue of 50 million crowns thanks to a popular atlas.",),
            "Events": ("On 9 June 2021 Bo Lind was elected.", "It plans a shop in Oster."),
        },
        {name: value for name, value in VOLE.values.items() if name != "net_profit"},
        lost=("net_profit",),
    ),
)
TEXTS = {document.id: document for document in DOCUMENTS}
FACTUAL = QRA(
    "finance-01 factual",
    "factual",
    "What were the revenue and the net profit of Tarn Trawlers?",
    ("Tarn Trawlers had revenue of 80 million crowns.", "The net profit was 6 million crowns."),
    ("finance-01",),
    (Reference("finance-01", REVENUE),),
    (
        "Revenue of 80 million crowns.",
        "A net profit of 6 million crowns.",
        "Both are of Tarn Trawlers.",
    ),
)
LOST = QRA(
    "finance-01 unanswerable",
    "unanswerable",
    "What is the plan of Tarn Trawlers?",
    (
        "The documents state no plan.",
        "Nothing allows to infer it.",
        "The question cannot be answered.",
    ),
    ("finance-01",),
    keypoints=("No plan is stated.", "It cannot be inferred.", "The question cannot be answered."),
    lost=("plan",),
)


class Script:
    """A server's replies: each by the first rule whose words stand in the prompt. ``prompts`` are
    those sent.
    """

    def __init__(self):
        self.rules = []
        self.prompts = []

    def on(self, words, answer):
        """Answer prompts with these words: a text, a record for JSON, or a function of the prompt."""
        self.rules.append((words, answer))

    def __call__(self, body):
        prompt = body["messages"][-1]["content"]
        self.prompts.append(prompt)
        for words, answer in self.rules:
            if words in prompt or words in body["messages"][0]["content"]:
                reply = answer(prompt) if callable(answer) else answer
                return reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
        raise AssertionError(f"no rule for {prompt[:80]}")
