"""Paired comparisons of two systems: permutation test, correction for many tests, how many questions are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.stats._inputs import Seed, as_floats, as_resamples, same_length

# Up to this many pairs all 2^n sign patterns are counted.
_EXACT = 16
_BLOCK = 4_000_000


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """Result of a paired permutation test. ``exact``: all sign patterns were counted, not a sample of them."""

    difference: float
    p_value: float
    n: int
    n_missing: int
    resamples: int
    exact: bool
    alternative: str


def paired_permutation_test(
    a: Any,
    b: Any,
    *,
    alternative: Literal["two-sided", "greater", "less"] = "two-sided",
    resamples: int = 10_000,
    seed: Seed = 0,
) -> PermutationTest:
    """Test whether two systems have the same mean score, by flipping the sign of each question's difference.

    Parameters
    ----------
    a, b : scores of two systems, shape (n,), in the same order of questions. A pair with a missing side is left out.
    alternative : "two-sided", or that a is "greater" or "less" than b.
    resamples : random sign patterns; with up to 16 pairs all 2**n patterns are counted instead.
    seed : an int, or a numpy Generator.

    Returns
    -------
    PermutationTest with the mean of a - b. The p-value of a sample of patterns is (hits + 1) / (resamples + 1), never
    0; NaN without pairs.

    Source: Fisher's randomisation test; Smucker et al. (2007) for retrieval; Phipson & Smyth (2010) for the + 1.
    """
    if alternative not in ("two-sided", "greater", "less"):
        raise unknown("alternative", alternative, ("two-sided", "greater", "less"))
    same_length(a=a, b=b)
    if as_resamples(resamples) == 0:
        raise ConfigError("resamples 0", "1 or more random sign patterns")
    both = as_floats(a, "a") - as_floats(b, "b")
    d = both[~np.isnan(both)]
    missing = int(both.size - d.size)
    if not d.size:
        return PermutationTest(float("nan"), float("nan"), 0, missing, 0, False, alternative)
    exact = d.size <= _EXACT
    total = 2**d.size if exact else resamples
    # Sums of the same numbers in another order differ in the last bits; they must count as equal.
    slack = 1e-12 * np.abs(d).sum()
    observed, hits = d.sum(), 0
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // d.size)
    for start in range(0, total, block):
        rows = min(block, total - start)
        if exact:
            flips = (np.arange(start, start + rows)[:, None] >> np.arange(d.size)) & 1
        else:
            width = -(-d.size // 8)
            bits = np.frombuffer(rng.bytes(rows * width), np.uint8).reshape(rows, width)
            flips = np.unpackbits(bits, axis=1, count=d.size)
        sums = observed - 2 * (flips @ d)
        if alternative == "two-sided":
            hits += int((np.abs(sums) >= abs(observed) - slack).sum())
        else:
            sign = 1 if alternative == "greater" else -1
            hits += int((sign * sums >= sign * observed - slack).sum())
    p_value = hits / total if exact else (hits + 1) / (total + 1)
    return PermutationTest(float(d.mean()), p_value, d.size, missing, total, exact, alternative)


def holm(p_values: Any) -> np.ndarray:
    """Holm's step-down adjustment of p-values for several tests.

    Parameters
    ----------
    p_values : shape (m,); NaN stands for a test that was not made and is not counted among them.

    Returns
    -------
    float array, shape (m,): adjusted p-values in the given order, at most 1. Those below alpha are rejected with a
    family-wise error of at most alpha.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.

    >>> holm([0.01, 0.04, 0.03, 0.005]).round(3).tolist()
    [0.03, 0.06, 0.06, 0.02]
    """
    p = as_floats(p_values, "p-values")
    made = np.flatnonzero(~np.isnan(p))
    if ((p[made] < 0) | (p[made] > 1)).any():
        raise DataError("p-values outside [0, 1]", "probabilities")
    result = np.full(p.size, np.nan)
    order = made[np.argsort(p[made], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    result[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return result


def paired_power(n: int, difference: float, sd: float, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t test on n questions finds a true mean difference.

    Parameters
    ----------
    n : number of questions, 2 or more.
    difference : true mean difference between the systems.
    sd : standard deviation of the per-question differences.
    alpha : level of the test.

    Returns
    -------
    float in (alpha, 1].

    Source: noncentral t distribution; Cohen (1988), chapter 2.
    """
    from scipy import stats

    _check_design(difference, sd, alpha)
    if n < 2 or n != int(n):
        raise ConfigError(f"n {n!r}", "a whole number of questions, 2 or more")
    critical = stats.t.isf(alpha / 2, n - 1)
    shift = abs(difference) / sd * np.sqrt(n)
    # From a shift of 5 on the wrong tail holds less than 1e-8, and scipy gives NaN for some of it.
    wrong = stats.nct.cdf(-critical, n - 1, shift) if shift < 5 else 0.0
    return float(stats.nct.sf(critical, n - 1, shift) + wrong)


def questions_needed(difference: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Smallest number of questions at which a paired comparison finds a difference.

    Parameters
    ----------
    difference : the mean difference worth finding, e.g. 0.02 of IR score.
    sd : standard deviation of the per-question differences, e.g. from a pilot run.
    power : chance of finding it.
    alpha : level of the two-sided test; divide it by the number of comparisons when there are several.

    Returns
    -------
    int, the smallest n with :func:`paired_power` at least ``power``.

    >>> questions_needed(0.5, 1.0)
    34
    """
    _check_design(difference, sd, alpha)
    if not alpha < power < 1:
        raise ConfigError(f"power {power!r}", f"between alpha ({alpha}) and 1, e.g. 0.8")
    high = 2
    while paired_power(high, difference, sd, alpha) < power:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if paired_power(middle, difference, sd, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def _check_design(difference: float, sd: float, alpha: float) -> None:
    if not (np.isfinite(difference) and difference != 0):
        raise ConfigError(f"difference {difference!r}", "a finite difference other than 0")
    if not (np.isfinite(sd) and sd > 0):
        raise ConfigError(f"sd {sd!r}", "a positive standard deviation of the differences")
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha {alpha!r}", "between 0 and 1, e.g. 0.05")
