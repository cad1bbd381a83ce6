"""ragbench: a Jupyter-first research workbench for evaluating retrieval-augmented generation.

``import ragbench as rb`` costs a few milliseconds: every name below loads its module when it is
first used.

To read the package, take ten files in the order in which a question passes them:

1. ``records.py``: what a question, a document, a chunk, a hit and an answer hold.
2. ``data/user.py``: questions and documents from files.
3. ``chunking.py``: documents become chunks.
4. ``retrieval/bm25.py``: chunks are ranked for a question. ``retrieval/table.py`` names all
  retrievers.
5. ``metrics/ir_score.py``: how much of the evidence stands in the retrieved text, cut at N tokens.
6. ``llm/asking.py``: prompts become replies. ``llm/cassette.py`` keeps them.
7. ``labelling/claims.py``: an answer becomes claims, and each claim a label.
8. ``metrics/claims.py``: labels become RAGChecker's numbers. All metrics are written in this way.
9. ``experiment/run.py``: all of it over a grid of data, chunkers, retrievers and models.
10. ``scoring.py``: metrics for rows of any origin. ``stats/intervals.py`` says how sure a mean is.
"""

from ragbench.records import Answer as Answer
from ragbench.retrieval import BM25 as BM25
from ragbench.embedding import CachedEmbeddings as CachedEmbeddings
from ragbench.llm import Cassette as Cassette
from ragbench.records import Chunk as Chunk
from ragbench.errors import ConfigError as ConfigError
from ragbench.errors import DataError as DataError
from ragbench.records import Dataset as Dataset
from ragbench.retrieval import Dense as Dense
from ragbench.records import Document as Document
from ragbench.experiment import Experiment as Experiment
from ragbench.retrieval import FromLangChain as FromLangChain
from ragbench.records import GRADES as GRADES
from ragbench.records import Grade as Grade
from ragbench.records import Hit as Hit
from ragbench.retrieval import Hybrid as Hybrid
from ragbench.stats import Interval as Interval
from ragbench.labelling.people import LabelItem as LabelItem
from ragbench.retrieval import LongContextReorder as LongContextReorder
from ragbench.retrieval import MMR as MMR
from ragbench.embedding import MiniLM as MiniLM
from ragbench.labelling.checkers import ModelChecker as ModelChecker
from ragbench.errors import ModelError as ModelError
from ragbench.labelling.statements import ModelRagas as ModelRagas
from ragbench.retrieval import MultiQuery as MultiQuery
from ragbench.records import Question as Question
from ragbench.errors import RagbenchError as RagbenchError
from ragbench.llm import Reply as Reply
from ragbench.scoring import Scores as Scores
from ragbench.text.tokens import TokenOffsets as TokenOffsets
from ragbench.llm import Usage as Usage
__version__: str
from ragbench.datagen.drafts import accept_drafts as accept_drafts
from ragbench.metrics.reference_free import answer_relevance as answer_relevance
from ragbench.labelling.people import append_labels as append_labels
from ragbench.llm import ask as ask
from ragbench.report.audit import audit as audit
from ragbench.report.audit import audit_rows as audit_rows
from ragbench.metrics.thresholds import best_threshold as best_threshold
from ragbench.labelling.preferences import better_of_two as better_of_two
from ragbench.stats import binomial_ci as binomial_ci
from ragbench.metrics.lexical import bleu as bleu
from ragbench.llm import chat_model as chat_model
from ragbench.labelling.claims import check_claims as check_claims
from ragbench.metrics.claims import claim_metrics as claim_metrics
from ragbench.metrics.claims import claim_metrics_table as claim_metrics_table
from ragbench.metrics.lexical import claim_overlap as claim_overlap
from ragbench.stats import compare as compare
from ragbench.stats import compare_scores as compare_scores
from ragbench.metrics.lexical import contained as contained
from ragbench.metrics.reference_free import context_relevance as context_relevance
from ragbench.stats import correlation as correlation
from ragbench import data as data
from ragbench import datagen as datagen
from ragbench.text.tokens import default_tokenizer as default_tokenizer
from ragbench.datagen.drafts import draft_items as draft_items
from ragbench.datagen.drafts import draft_questions as draft_questions
from ragbench.metrics.keypoints import effective_information_rate as effective_information_rate
from ragbench.metrics.lexical import exact_match as exact_match
from ragbench import experiment as experiment
from ragbench.labelling.claims import extract_claims as extract_claims
from ragbench.metrics.reference_free import faithfulness as faithfulness
from ragbench.metrics.thresholds import fit_thresholds as fit_thresholds
from ragbench.generation import generate as generate
from ragbench.labelling.grades import grade as grade
from ragbench.stats import holm as holm
from ragbench.metrics.lexical import idf_weights as idf_weights
from ragbench.metrics.ir_score import ir_score as ir_score
from ragbench.metrics.ir_score import ir_score_curve as ir_score_curve
from ragbench.metrics.ir_score import ir_score_table as ir_score_table
from ragbench.text.tokens import joined_cutoffs as joined_cutoffs
from ragbench.stats import kappa as kappa
from ragbench.metrics.keypoints import keypoint_metrics as keypoint_metrics
from ragbench.labelling.keypoints import keypoint_verdicts as keypoint_verdicts
from ragbench.scoring import label_items as label_items
from ragbench import llm as llm
from ragbench.retrieval import llm_decomposer as llm_decomposer
from ragbench.labelling.grades import load_graded_answers as load_graded_answers
from ragbench.labelling.people import load_labels as load_labels
from ragbench.rows import load_rows as load_rows
from ragbench.embedding import make_embedder as make_embedder
from ragbench.stats import mean_interval as mean_interval
from ragbench.stats import means as means
from ragbench.labelling.exam import measure_judge as measure_judge
from ragbench.scoring import metric_table as metric_table
from ragbench import metrics as metrics
from ragbench.stats import paired_difference as paired_difference
from ragbench.stats import paired_permutation_test as paired_permutation_test
from ragbench.stats import pairwise_agreement as pairwise_agreement
from ragbench import papers as papers
from ragbench.metrics.keypoints import passage_table as passage_table
from ragbench.scoring import plan_score as plan_score
from ragbench import plots as plots
from ragbench.stats import power_analysis as power_analysis
from ragbench.stats import ppi_mean as ppi_mean
from ragbench.stats import preference_correlation as preference_correlation
from ragbench.labelling.claims import ragchecker_labels as ragchecker_labels
from ragbench.metrics.ranking import rank_table as rank_table
from ragbench.metrics.keypoints import reference_recall as reference_recall
from ragbench.retrieval import reorder as reorder
from ragbench import retrieval as retrieval
from ragbench.metrics.lexical import rouge_l as rouge_l
from ragbench.scoring import score as score
from ragbench.chunking import segment as segment
from ragbench.chunking import semantic_chunks as semantic_chunks
from ragbench.chunking import split_chunks as split_chunks
from ragbench import stats as stats
from ragbench.retrieval import to_langchain as to_langchain
from ragbench.chunking import token_chunks as token_chunks
from ragbench.metrics.lexical import token_f1 as token_f1
from ragbench.text.tokens import truncate as truncate
from ragbench import widgets as widgets
from ragbench.scoring import with_labels as with_labels
