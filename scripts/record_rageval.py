"""Record RAGEval's 350 finance questions by a model, without a text, for notebook 41.

    RAGBENCH_DATA=... python scripts/record_rageval.py gguf:MODEL.gguf FILE

FILE is the cassette of the replies, which stays here: DRAGONBall's licence is non-commercial. Run
again to go on. Shipped is `rageval_finance.csv`, a row per question: ROUGE-L of the model's answer,
and how many key points its verdicts call covered, contradicted or neither in the true answer, in
GPT-4o's recorded answer and in its own; for 60 drawn key points, also in the true answer of another
question of the kind.
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
        table = rageval.finance_table(model, questions, recorded, cassette=replies)
    path = packaged_data("recordings") / "rageval_finance.csv"
    table.round(6).to_csv(path, index=False)
    print(f"{path}: {len(table)} questions, {int(table['rouge_l'].isna().sum())} without an answer")


if __name__ == "__main__":
    main(*sys.argv[1:])
