"""Statistics for evaluations: intervals, paired tests, correlations, agreement, few labels with
many judge grades.

Numbers in, small frozen records out. Missing values (NaN, None) are left out and counted
(``n_missing``); what is undefined is NaN. Everything random takes a seed and gives the same answer
twice.
"""

from ragbench.stats.clusters import Clusters as Clusters
from ragbench.stats.intervals import Interval as Interval
from ragbench.stats.intervals import MISSING as MISSING
from ragbench.stats.agreement import PairwiseAgreement as PairwiseAgreement
from ragbench.stats.paired import PermutationTest as PermutationTest
from ragbench.stats.paired import PowerAnalysis as PowerAnalysis
from ragbench.stats.intervals import binomial_ci as binomial_ci
from ragbench.stats.tables import compare as compare
from ragbench.stats.tables import compare_pairs as compare_pairs
from ragbench.stats.tables import compare_scores as compare_scores
from ragbench.stats.intervals import correlation as correlation
from ragbench.stats.clusters import find_clusters as find_clusters
from ragbench.stats.paired import holm as holm
from ragbench.stats.intervals import interval_text as interval_text
from ragbench.stats.agreement import kappa as kappa
from ragbench.stats.intervals import mean_interval as mean_interval
from ragbench.stats.tables import means as means
from ragbench.stats.intervals import paired_difference as paired_difference
from ragbench.stats.paired import paired_permutation_test as paired_permutation_test
from ragbench.stats.agreement import pairwise_agreement as pairwise_agreement
from ragbench.stats.paired import power_analysis as power_analysis
from ragbench.stats.ppi import ppi_difference as ppi_difference
from ragbench.stats.ppi import ppi_mean as ppi_mean
from ragbench.stats.ppi import ppi_shares as ppi_shares
from ragbench.stats.agreement import preference_correlation as preference_correlation
from ragbench.stats.agreement import preference_difference as preference_difference
from ragbench.stats.intervals import rogan_gladen as rogan_gladen
from ragbench.stats.ppi import stratified_draw as stratified_draw
from ragbench.stats.intervals import with_interval as with_interval
