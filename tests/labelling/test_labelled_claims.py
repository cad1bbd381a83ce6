"""Labelled claims: what MiniHop's file promises."""

import hashlib
from collections import Counter

import pytest

from ragbench import stats
from ragbench.data import load_minihop
from ragbench.data.ragchecker import CLAIM_LABELS
from ragbench.errors import ConfigError
from ragbench.labelling.claims import load_labelled_claims

E = "Entailment"
N = "Neutral"
C = "Contradiction"


def test_there_are_hundreds_of_claims_about_a_third_of_each_label_in_either_split():
    claims = load_labelled_claims()
    assert len(claims) == claims["id"].nunique() == 425
    assert claims["document"].nunique() == 123
    assert not claims.duplicated(["document", "claim"]).any()
    assert (claims.groupby("document")["split"].nunique() == 1).all()
    texts = {document.title: document.text for document in load_minihop().documents}
    assert claims["text"].tolist() == [texts[title] for title in claims["document"]]
    for split in ("dev", "test"):
        shares = load_labelled_claims(split=split)["label"].value_counts(normalize=True)
        assert set(shares.index) == set(CLAIM_LABELS)
        assert shares.between(0.3, 0.36).all()
        assert len(load_labelled_claims(split=split)) == (claims["split"] == split).sum() > 200
    with pytest.raises(ConfigError, match="dev, test"):
        load_labelled_claims("train")


def test_the_place_of_a_claim_says_nothing_of_its_label():
    """Within a document claims stand in the order of the SHA-256 of their text."""
    first = Counter()
    for _, claims in load_labelled_claims().groupby("document"):
        digests = [hashlib.sha256(claim.encode()).hexdigest() for claim in claims["claim"]]
        assert digests == sorted(digests)
        assert claims["id"].is_monotonic_increasing
        first[claims["label"].iloc[0]] += 1
    assert first == {N: 54, C: 36, E: 33}


def test_two_labellings_agree_but_for_the_claim_whose_label_was_changed():
    claims = load_labelled_claims()
    twice = claims[claims["second_label"].notna()]
    assert len(twice) == 422
    for column in ("second_label", "label"):
        assert twice.loc[twice["first_label"] != twice[column], "id"].tolist() == ["claim-239"]
    assert stats.kappa(twice["first_label"], twice["second_label"]).estimate > 0.98
    assert claims.loc[claims["second_label"].isna(), "first_label"].isna().tolist() == [True] * 3
