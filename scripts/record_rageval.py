"""Record RAGEval's 350 finance questions by a model, without a text, for notebook 41.

    RAGBENCH_DATA=... python scripts/record_rageval.py gguf:MODEL.gguf FILE

FILE is the cassette of the replies, which stays here: DRAGONBall's licence is non-commercial. Run again to go on.
Shipped is `rageval_finance.csv`, a row per question: ROUGE-L of the model's answer, and how many key points its
verdicts call covered, contradicted or neither in the true answer, in the true answer of another question of its kind,
in GPT-4o's recorded answer and in its own.
"""

import sys

from ragbench import data
from ragbench.llm import Cassette, chat_model
from ragbench.papers import rageval
from ragbench.paths import packaged_data


def main(name, cassette):
    """Ask for the answers and for the verdicts, and write the table."""
    model = chat_model(name, num_ctx=8192)
    questions, recorded = data.load_dragonball_answers()
    with Cassette(cassette) as replies:
        answers = rageval.answer_recorded(model, questions, recorded, cassette=replies)
        table = rageval.answer_rows(questions, answers)
        texts = {
            "true": [question.answer for question in questions],
            "other": rageval.answers_of_others(questions),
            "gpt-4o": [answer.text for answer in recorded],
            "own": [answer.text for answer in answers],
        }
        for whose, responses in texts.items():
            labelled = rageval.verdicts(model, questions, responses, cassette=replies)
            print(whose, labelled.report)
            table = table.join(rageval.verdict_counts(labelled.labels).add_prefix(f"{whose} "))
    path = packaged_data("recordings") / "rageval_finance.csv"
    table.round(6).to_csv(path, index=False)
    print(f"{path}: {len(table)} questions, {int(table['rouge_l'].isna().sum())} without an answer")


if __name__ == "__main__":
    main(*sys.argv[1:])
