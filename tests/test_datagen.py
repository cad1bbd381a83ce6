"""Data generation offline: values, documents, questions, refinement, keypoints, the validator, the folder."""

import copy
import datetime as dt
import functools
import json
import random
import re
from collections import Counter
from dataclasses import asdict, replace

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shop_schema import RAW

from ragbench import datagen
from ragbench.data import load_questions
from ragbench.datagen.configuration import _blocklist, _configuration, _invent
from ragbench.datagen.parts import KINDS, Derived, FactSentence, Section
from ragbench.datagen.questions import _facts_in, annotate
from ragbench.datagen.wording import _parse_date, choose, derive, fill_pattern, mentions, without
from ragbench.errors import ConfigError, DataError, RagbenchError
from ragbench.text.sentences import split_sentences

SHIPPED = [(domain, language) for domain in ("finance", "law", "medicine") for language in ("en", "zh")]
# Per domain: how many subdomains, and how many profiles each.
SIZES = {"finance": (20, 2), "law": (10, 2), "medicine": (19, 2)}


@pytest.fixture(scope="module")
def shop():
    return datagen.build_schema(RAW)


@pytest.fixture(scope="module", params=SHIPPED, ids="-".join)
def shipped(request):
    schema = datagen.load_schema(*request.param)
    return datagen.make_set(schema, 40, 7)


def raw(path=None, value=None, drop=None):
    """A copy of the small schema with one entry changed or taken out."""
    changed = copy.deepcopy(RAW)
    if path:
        *way, last = path
        inner = changed
        for key in way:
            inner = inner[key]
        if drop:
            del inner[last]
        else:
            inner[last] = value
    return changed


def test_values_follow_their_rules(shop):
    for c in datagen.make_configurations(shop, 6, 3):
        v, t = c.values, c.text
        assert v["takings"] == v["cash"] + v["card"]
        assert v["share"] == round(100 * v["cash"] / (v["cash"] + v["card"]), 1)
        assert 10 <= (v["closed"] - v["opened"]).days <= 20
        assert v["opened"].year == v["year"]
        assert t["takings"] == f"{v['takings']} crowns"
        assert v["goods"] == {"Tea": "green tea", "Rope": "hemp rope"}[c.subdomain]
    assert [c.subdomain for c in datagen.make_configurations(shop, 3)] == ["Tea", "Rope", "Tea"]


@given(st.integers(0, 10**6), st.sampled_from(SHIPPED), st.integers(0, 200))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_shipped_configurations_add_up_and_keep_the_order_of_time(seed, name, index):
    schema = load_schema_cached(*name)
    c = _configuration(schema, index, seed, set())
    for field, rule in schema.fields.items():
        if rule["rule"] == "sum":
            assert c.values[field] == sum(c.values[n] for n in rule["of"])
        elif rule["rule"] == "difference":
            assert c.values[field] == c.values[rule["of"][0]] - c.values[rule["of"][1]] > 0
        elif "after" in rule:
            least, most = rule["days"]
            assert least <= (c.values[field] - c.values[rule["after"]]).days <= most
        elif rule["rule"] == "date":
            assert c.values[field].year == c.values[rule["year"]]
    for one in schema.fact_fields:
        others = [c.text[n] for n in schema.fact_fields if n != one] + [c.text[n] for n in schema.context]
        assert not any(mentions(other, c.text[one]) for other in others), one


load_schema_cached = functools.cache(datagen.load_schema)


def test_a_subdomain_profile_and_name_is_used_in_turn(shipped):
    count, rows = SIZES[shipped.schema.domain]
    assert len(shipped.schema.profiles) == count
    assert {len(r) for r in shipped.schema.profiles.values()} == {rows}
    assert len({c.subdomain for c in shipped.configurations}) == count
    names = [tuple(c.text[n] for n in shipped.schema.named) for c in shipped.configurations]
    assert len(set(names)) == len(names)


def test_invented_names_are_not_on_the_list_of_real_ones():
    rng = random.Random(0)
    for kind in ("person", "place", "firm"):
        for language in ("en", "zh"):
            names = {_invent(kind, language, rng) for _ in range(300)}
            assert len(names) > 50
            assert not any(datagen.real_names(name) for name in names)
    assert datagen.real_names("He works for Google in Paris.") == ["google", "paris"]
    assert datagen.real_names("Parisian googled") == []
    assert datagen.real_names("他在华为工作。") == ["华为"]
    assert len(_blocklist()) > 60


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("It took 412 crowns.", "412 crowns", True),
        ("It took 1,412 crowns.", "412 crowns", False),
        ("It grew by 15%.", "5%", False),
        ("It grew by 5.5%.", "5%", False),
        ("On 12 March 2021", "2 March 2021", False),
        ("on 2 March 2021.", "2 March 2021", True),
        ("Green tea is sold.", "green tea", True),
        ("evergreen tea", "green tea", False),
        ("共12名董事", "2名董事", False),
        ("共2名董事", "2名董事", True),
        ("于2021年3月4日", "2021年3月4日", True),
        ("1,5", "5", False),
        ("a, 5", "5", True),
        ("", "x", False),
    ],
)
def test_a_value_is_mentioned_only_as_a_whole(text, value, found):
    assert mentions(text, value) is found


def test_patterns_choose_and_fill():
    assert choose("[a|b] and [c|d|e]") == "a and c"
    assert fill_pattern("{x} sold {y}.", {"x": "tarn", "y": "it"}) == "Tarn sold it."
    assert fill_pattern("{x}", {"x": "tarn"}, sentence=False) == "tarn"
    with pytest.raises(ConfigError, match="needs 'z'"):
        fill_pattern("{z}", {"x": "tarn"})


@pytest.mark.parametrize(
    ("rule", "texts", "language", "result"),
    [
        ("days", ["28 February 2020", "1 March 2020"], "en", "2 days"),
        ("days", ["2 March 2021", "1 March 2021"], "en", "1 day"),
        ("days", ["2020年2月28日", "2020年3月1日"], "zh", "2天"),
        ("difference", ["1,204 million crowns", "204 million crowns"], "en", "1,000 million crowns"),
        ("difference", ["57.1%", "60.3%"], "en", "3.2 percentage points"),
        ("difference", ["300万元", "1200万元"], "zh", "900万元"),
        ("sum", ["1,204 crowns", "6 crowns"], "en", "1,210 crowns"),
        ("larger", ["5 crowns", "7 crowns"], "en", "B"),
        ("smaller", ["5 crowns", "7 crowns"], "en", "A"),
        ("earlier", ["3 May 2019", "2 May 2019"], "en", "B"),
        ("later", ["3 May 2019", "2 May 2019"], "en", "A"),
        ("larger", ["5 crowns"] * 2, "en", None),
        ("difference", ["5 crowns"] * 2, "en", None),
        ("earlier", ["3 May 2019"] * 2, "en", None),
    ],
)
def test_derived_values_by_hand(rule, texts, language, result):
    assert derive(rule, texts, ["A", "B"], language) == result


@given(st.dates(dt.date(1950, 1, 1), dt.date(2049, 1, 1)), st.dates(dt.date(1950, 1, 1), dt.date(2049, 1, 1)))
def test_days_between_dates_equal_the_calendar(a, b):
    wording = [f"{d.day} {d:%B} {d.year}" for d in (a, b)]
    assert [_parse_date(w) for w in wording] == [a, b]
    assert [_parse_date(f"{d.year}年{d.month}月{d.day}日") for d in (a, b)] == [a, b]
    got = derive("days", wording)
    assert (got is None) if a == b else int(got.split()[0].replace(",", "")) == abs((a - b).days)


def test_a_document_states_its_configuration_and_nothing_it_dropped(shop):
    c = _configuration(shop, 0, 5, set())
    document = datagen.write_documents(shop, [c], 5)[0]
    assert document.dropped == ("owner",)
    assert not mentions(document.text, c.text["owner"])
    for name in ("goods", "opened", "closed", "takings", "cash", "card", "share"):
        assert mentions(document.text, c.text[name])
    assert document.title == f"{c.text['shop']} in {c.text['year']}"
    assert document.sentences[0].facts == ("goods",)
    # Every number of the document comes from the configuration.
    numbers = set(re.findall(r"\d[\d.]*\d|\d", document.text))
    assert numbers <= set(re.findall(r"\d[\d.]*\d|\d", " ".join(c.text.values())))


def test_facts_of_a_section_vary_in_order_and_wording_after_the_first(shipped):
    section = next(i for i, s in enumerate(shipped.schema.sections) if not s.fixed and len(s.facts) > 3)
    written = [d.sections[section].sentences for d in shipped.documents]
    opening = shipped.schema.sections[section].facts[0].fields
    dropped = [set(opening) & set(d.dropped) for d in shipped.documents]
    assert all(s[0].facts == opening for s, lost in zip(written, dropped, strict=True) if not lost)
    orders = {tuple(s.facts for s in sentences) for sentences in written}
    sets = {frozenset(order) for order in orders}
    assert len(orders) > 2 * len(sets)


def test_texts_are_whole_sentences_and_no_pattern_is_left_open(shipped):
    for document in shipped.documents:
        for sentence in document.sentences:
            assert split_sentences(sentence.text, document.language) == (sentence.text,)
    for text in [d.text for d in shipped.documents] + [q.question + q.answer for q in shipped.questions]:
        assert not re.search(r"[\[\]{}|]|\.\.|。。|  ", text), text


def test_all_seven_types_are_asked_and_the_set_passes_the_validator(shipped):
    assert shipped.problems() == []
    counts = Counter(q.kind for q in shipped.questions)
    assert set(counts) == set(KINDS)
    assert len(shipped.questions) >= 500
    assert len({q.id for q in shipped.questions}) == len(shipped.questions)
    for q in shipped.questions:
        many = q.kind in ("information integration", "numerical comparison", "temporal sequence")
        assert len(set(q.doc_ids)) == (2 if many else 1)
        if many:
            assert {r.doc_id for r in q.references} == set(q.doc_ids)
        assert 3 <= len(q.keypoints) <= 5
        assert bool(q.references) == (q.kind != "unanswerable")


def test_questions_do_not_leave_open_which_document_they_mean(shipped):
    named = {c.id: [c.text[n] for n in shipped.schema.named] for c in shipped.configurations}
    for q in shipped.questions:
        assert all(name in q.question for i in q.doc_ids for name in named[i])
    assert len({q.question for q in shipped.questions}) > 0.98 * len(shipped.questions)


def test_a_comparison_names_the_right_side(shipped):
    by_id = {c.id: c for c in shipped.configurations}
    checked = 0
    for q in shipped.questions:
        for d in q.derived:
            values = [by_id[i].values[name] for i, name in d.of]
            if d.rule in ("larger", "smaller", "earlier", "later"):
                pick = max if d.rule in ("larger", "later") else min
                assert d.text == d.names[values.index(pick(values))]
                checked += 1
            elif d.rule == "days":
                assert str(abs((values[0] - values[1]).days)) in d.text.replace(",", "")
    assert checked > 40


def test_a_question_about_a_fact_that_was_left_out_is_not_asked():
    changed, said = raw(), ["{owner} owns it.", "It is {shop}.", "It sells {goods}."]
    changed["questions"]["factual"].append({"id": "who", "ask": ["Who owns {shop}?"], "say": said})
    for drop, wanted in ((0, 2), (1, 1)):
        generated = datagen.make_set(datagen.build_schema({**changed, "drop": drop}), 3, 1)
        assert Counter(q.kind for q in generated.questions)["factual"] == 3 * wanted


def test_as_many_questions_are_asked_of_a_type_as_wanted_and_a_schema_has():
    schema = load_schema_cached("finance", "en")
    configurations = datagen.make_configurations(schema, 2)
    documents = datagen.write_documents(schema, configurations)
    wanted = {"factual": 1, "multi-hop": 99, "unanswerable": 1}
    counts = Counter(q.kind for q in datagen.template_questions(schema, configurations, documents, 0, wanted))
    assert counts["factual"] == counts["unanswerable"] == 2
    assert 2 < counts["multi-hop"] <= 2 * len(schema.questions["multi-hop"])
    assert set(counts) == set(wanted)


def test_a_value_is_taken_out_only_where_it_is_mentioned():
    assert without("It took 1,087 tons, or 87 tons, or 87 TONS.", "87 tons") == "It took 1,087 tons, or , or ."
    assert without("共142天，其中42天", "42天") == "共142天，其中"
    assert without("İzmir paid 5 crowns.", "5 crowns") == "İzmir paid ."
    assert without("unchanged", "") == "unchanged"


@pytest.fixture
def case(shop):
    """A configuration with plain values, its document without the owner, and a draft that asks for the takings."""
    names = ("shop", "year", "trade", "goods", "opened", "closed", "cash", "card", "takings", "share", "owner")
    values = "Tarn Stores|2004|Tea|green tea|1 May 2004|15 May 2004|150 crowns|350 crowns|500 crowns|30.0%|Ada Quarsk"
    text = dict(zip(names, values.split("|"), strict=True))
    configuration = datagen.Configuration("d1", "Tea", text, text)
    sentences = annotate(
        [
            "Tarn Stores sells green tea.",
            "It opened on 1 May 2004 and closed on 15 May 2004.",
            "It took 500 crowns: 150 crowns in cash (30.0%) and 350 crowns by card.",
        ],
        configuration,
        shop.fact_fields,
    )
    document = datagen.GeneratedDocument("d1", "Tarn Stores", "en", (Section("Report", sentences),), ("owner",))
    draft = datagen.QRA("q", "factual", "en", "What did Tarn Stores take?", ("It took 500 crowns.",), ("d1",))
    return configuration, document, draft


def refined(shop, case, **changes):
    configuration, document, draft = case
    return datagen.refine(replace(draft, **changes), shop, {"d1": configuration}, {"d1": document})


def test_sentences_are_annotated_with_the_facts_they_state(case):
    stated = [set(s.facts) for s in case[1].sentences]
    assert stated == [{"goods"}, {"opened", "closed"}, {"takings", "cash", "card", "share"}]


def test_the_name_a_document_is_about_is_no_fact_of_the_other(shop, case):
    configuration = case[0]
    text = {**configuration.text, "shop": "Ada Quarsk", "owner": "Emil Dorvric"}
    namesake = datagen.Configuration("d2", "Tea", text, text)
    assert _facts_in("Ada Quarsk sold it.", [configuration], shop.fact_fields) == [("d1", "owner")]
    assert _facts_in("Ada Quarsk sold it.", [configuration, namesake], shop.fact_fields) == []


def test_a_derived_amount_that_equals_a_dropped_fact_is_not_taken_for_it(shop, case):
    configuration, document, draft = case
    configuration = replace(configuration, text={**configuration.text, "owner": "200 crowns"})
    derived = Derived("200 crowns", "difference", (("d1", "card"), ("d1", "cash")))
    statement = "By card it was 200 crowns more."
    got = refined(shop, (configuration, document, draft), statements=(statement,), derived=(derived,))
    assert statement in got.statements
    assert [r.text for r in got.references] == [document.sentences[2].text]


def test_a_fact_that_ends_like_a_derived_value_keeps_its_reference(shop, case):
    configuration, _, draft = case
    derived = Derived("50 crowns", "difference", (("d1", "opened"),))
    q = replace(draft, derived=(derived,))
    assert datagen.facts_needed(q, "It took 150 crowns in cash.", [configuration], shop.fact_fields) == [("d1", "cash")]
    assert datagen.facts_needed(q, "That is 50 crowns more.", [configuration], shop.fact_fields) == [("d1", "opened")]


TIMES = "It opened on 1 May 2004 and closed on 15 May 2004."


@pytest.mark.parametrize(
    ("more", "references", "statements", "cited", "changes"),
    [
        # The document states the fact: it gains its reference.
        ("It sells green tea.", None, ["It sells green tea."], [0, 2], ["reference added"] * 2),
        # The document does not state it: it is removed from the answer.
        ("The owner is Ada Quarsk.", None, [], [2], ["reference added", "removed: The owner is Ada Quarsk."]),
        # A reference says more than the answer: that is added.
        ("", [1], [TIMES], [1, 2], ["reference added", f"supplemented: {TIMES}"]),
    ],
)
def test_refinement_brings_answer_and_references_together(shop, case, more, references, statements, cited, changes):
    sentences = [sentence.text for sentence in case[1].sentences]
    given = {"statements": tuple(filter(None, ("It took 500 crowns.", more)))}
    if references:
        given["references"] = tuple(datagen.Reference("d1", sentences[i]) for i in references)
    got = refined(shop, case, **given)
    assert got.statements == ("It took 500 crowns.", *statements)
    assert [r.text for r in got.references] == [sentences[i] for i in cited]
    assert all(told.startswith(change) for told, change in zip(got.changes, changes, strict=True))


def test_an_unanswerable_question_stays_as_it_is(shop, case):
    draft = replace(case[2], kind="unanswerable", statements=("The owner is Ada Quarsk.",))
    assert datagen.refine(draft, shop, {"d1": case[0]}, {"d1": case[1]}) == draft


def test_keypoints_are_three_to_five_parts_that_make_up_the_answer():
    assert datagen.keypoints("A grew. B fell. C stood.") == ("A grew.", "B fell.", "C stood.")
    assert datagen.keypoints("A grew; B fell; C stood.") == ("A grew;", "B fell;", "C stood.")
    assert datagen.keypoints("A grew.") == ("A grew.",)
    assert datagen.keypoints("一。二。三。四。五。六。七。", "zh") == ("一。二。", "三。四。", "五。", "六。", "七。")


@given(st.integers(3, 40))
def test_keypoints_lose_nothing(n):
    answer = " ".join(f"Point {i} holds." for i in range(n))
    points = datagen.keypoints(answer)
    assert len(points) == min(n, 5)
    assert " ".join(points) == answer


@pytest.fixture(scope="module")
def finance():
    return datagen.make_set(load_schema_cached("finance", "en"), 4, 1)


def first(generated, kind):
    return next(i for i, q in enumerate(generated.questions) if q.kind == kind)


def with_question(generated, index, **changes):
    questions = list(generated.questions)
    questions[index] = replace(questions[index], **changes)
    return replace(generated, questions=tuple(questions))


def with_sentence(generated, text):
    document = generated.documents[0]
    last = document.sections[-1]
    sections = (*document.sections[:-1], replace(last, sentences=(*last.sentences, FactSentence(text))))
    return replace(generated, documents=(replace(document, sections=sections), *generated.documents[1:]))


def found(generated):
    return " / ".join(p.what for p in generated.problems())


def said(q, *statements):
    return {"statements": (*q.statements, *statements)}


def derived_wrong(q):
    return tuple(replace(d, text="1 million crowns") if d.rule == "difference" else d for d in q.derived)


def moved(q):
    """References that claim to be all of the first document."""
    return tuple(replace(r, doc_id=q.doc_ids[0]) for r in q.references)


def sentence_of(document):
    return datagen.Reference(document.id, document.sentences[0].text)


IDLE = "Everybody hopes for quiet seas next winter."


@pytest.mark.parametrize(
    ("kind", "statement", "message"),
    [
        ("factual", "It asked Google about it.", "names 'google', which is real"),
        ("multi-hop", "It rose by 77.7%.", "the number 77.7 of the answer is in no reference"),
        ("multi-hop", "This was decided by Zorbax.", "the name 'Zorbax' of the answer is in no reference"),
        ("multi-hop", "It names {risk_head}.", "the answer states risk_head = "),
        ("summary", IDLE, "has no fact of the references, and few of their words"),
    ],
)
def test_the_validator_finds_a_statement_that_no_reference_bears(finance, kind, statement, message):
    i = first(finance, kind)
    added = said(finance.questions[i], statement.format(**finance.configurations[0].text))
    assert message in found(with_question(finance, i, **added))


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        ("factual", "keypoints", lambda q, s: ("a", "b"), "2 keypoints, not 3 to 5"),
        ("factual", "question", lambda q, s: f"{q.question} And Google?", "names 'google', which is real"),
        ("factual", "references", lambda q, s: (replace(q.references[0], text="Ha."),), "is not in document finance-"),
        ("factual", "references", lambda q, s: (sentence_of(s.documents[2]),), "which is not among its documents"),
        ("multi-hop", "references", lambda q, s: (), "no reference or no answer"),
        ("multi-hop", "statements", lambda q, s: (), "no reference or no answer"),
        ("numerical comparison", "derived", lambda q, s: derived_wrong(q), "'1 million crowns' is not the difference"),
        ("numerical comparison", "references", lambda q, s: q.references[:1], ", which no reference states"),
        ("unanswerable", "references", lambda q, s: s.questions[0].references, "unanswerable question with references"),
        ("numerical comparison", "references", lambda q, s: moved(q), ", which no reference states"),
    ],
)
def test_the_validator_finds_what_is_wrong_with_a_question(finance, kind, field, value, message):
    assert found(finance) == ""
    i = first(finance, kind)
    assert message in found(with_question(finance, i, **{field: value(finance.questions[i], finance)}))


def test_the_validator_finds_lost_and_dropped_facts(finance):
    document, values = finance.documents[0], finance.configurations[0].text
    dropped = document.dropped[0]
    told = found(with_sentence(finance, f"There is also {values[dropped]}."))
    assert f"{dropped} is listed as dropped" in told
    bad = replace(finance, documents=(replace(document, dropped=()), *finance.documents[1:]))
    assert f"{dropped} = {values[dropped]!r} is neither in the document nor listed as dropped" in found(bad)
    _, asked = finance.questions[first(finance, "unanswerable")].lost[0]
    stated = with_sentence(finance, f"There is also {values[asked]}.")
    assert "an unanswerable question, but document" in found(stated)
    assert "names 'microsoft', which is real" in found(with_sentence(finance, "It competes with Microsoft."))


def test_the_validator_finds_facts_of_one_document_said_of_the_other(finance):
    i = first(finance, "numerical comparison")
    q = finance.questions[i]
    a, b = (next(c for c in finance.configurations if c.id == d) for d in q.doc_ids)
    swapped = [s.replace(a.text["company"], "X").replace(b.text["company"], a.text["company"]) for s in q.statements]
    swapped = tuple(s.replace("X", b.text["company"]) for s in swapped[:2])
    problems = found(with_question(finance, i, statements=(*swapped, *q.statements[2:])))
    assert f"is about {a.id}, whose references do not state " in problems
    assert f"is about {b.id}, whose references do not state " in problems


def test_a_year_that_both_documents_have_names_neither(finance):
    i = first(finance, "numerical comparison")
    q = finance.questions[i]
    a, b = (next(c for c in finance.configurations if c.id == d) for d in q.doc_ids)
    year = a.text["year"]
    same = {b.id: replace(b, text={**b.text, "year": year})}
    titled = {b.id: f"{b.text['company']}: Annual Report {year}"}
    shared = replace(
        finance,
        configurations=tuple(same.get(c.id, c) for c in finance.configurations),
        documents=tuple(replace(d, title=titled.get(d.id, d.title)) for d in finance.documents),
    )
    wrong = f"In {year} {a.text['company']} relied on {b.text['risk_head']}."
    assert f"is about {a.id}, whose references do not state risk_head" in found(
        with_question(shared, i, **said(q, wrong))
    )


def test_a_set_with_a_document_or_configuration_taken_out_is_reported(finance):
    short = replace(finance, documents=finance.documents[:3])
    assert "asks about 'finance-en-0004', which is not in the set" in found(short)
    lone = found(replace(finance, configurations=finance.configurations[1:]))
    assert "a document without its configuration" in lone
    assert "asks about 'finance-en-0001', which is not in the set" in lone


def test_statements_of_refusals_and_of_the_references_words_pass(finance):
    stop, i = first(finance, "unanswerable"), first(finance, "summary")
    assert found(with_question(finance, stop, **said(finance.questions[stop], IDLE))) == ""
    q = finance.questions[i]
    words = " ".join(w for w in q.references[0].text.split() if not re.search(r"\d|[A-Z]", w))
    assert found(with_question(finance, i, **said(q, words))) == ""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (raw(("fields", "opened"), drop=True), "'closed' uses the field 'opened', which is missing"),
        (raw(("fields", "owner"), {"rule": "persn"}), "'fields.owner.rule' is 'persn'"),
        (raw(("sections", 0, "facts", 0, "say"), ["{goods}.", "{owner}."]), "state different fields"),
        (raw(("sections", 0, "facts", 3, "say"), ["By {ownr}."]), "'ownr', which is missing"),
        (raw(("questions", "factual", 0, "say"), ["It took {takings}."]), "has 1 statements"),
        (raw(("questions", "factual", 0, "say", 1), "In cash it was {a.cash}."), "'a.cash', which no document states"),
        (raw(("questions", "factual", 0, "ask"), ["What did it take?"]), "does not name 'shop'"),
        (raw(("sections", 0, "facts", 3, "lost", "ask"), "Who is the owner?"), "does not name 'shop'"),
        (raw(("questions", "summary", 0, "section"), "none"), "names the section 'none'"),
        (raw(("questions", "multi-hop", 0, "derive", "gap", "rule"), "weeks"), "derive.gap.rule' is 'weeks'"),
        (raw(("questions", "riddle"), []), "'questions.riddle.[key]' is 'riddle'"),
        (raw(("profiles", "Tea"), [["green tea", "black tea"]]), "has not one value for each of 1 columns"),
        (raw(("language",), "fr"), "'language' is 'fr'"),
        (raw(("sections",), drop=True), "no field 'sections'"),
        (raw(("context",), ["shop", "town"]), "the context uses the field 'town', which is missing"),
        (raw(("sections", 0, "facts", 0, "id"), drop=True), "no field 'sections.0.facts.0.id'"),
        (raw(("sections", 0, "facts", 3, "lsot"), {}), "'sections.0.facts.3.lsot' is {}"),
        (raw(("sections", 0, "facts", 0, "say"), "{goods}."), "'sections.0.facts.0.say' is '{goods}.'"),
    ],
)
def test_a_faulty_schema_is_refused_with_the_reason(changed, message):
    with pytest.raises(RagbenchError, match=re.escape(message)):
        datagen.build_schema(changed, "my.yaml")


def test_a_fact_whose_wording_holds_another_is_not_made():
    part = raw(("profiles", "Tea"), [["green tea from Ada"]])
    part["fields"]["owner"] = {"rule": "choice", "from": ["Ada", "Boris"]}
    schema = datagen.build_schema(part)
    assert {_configuration(schema, 0, seed, set()).text["owner"] for seed in range(8)} == {"Boris"}


def with_cash(schema, rule):
    return schema.model_copy(update={"fields": {**schema.fields, "cash": rule}})


def test_values_that_cannot_be_made_name_the_field(shop):
    narrow = datagen.build_schema(
        raw(("fields", "card"), {"rule": "amount", "low": 100, "high": 100, "unit": "crowns"})
    )
    same = with_cash(narrow, {"rule": "amount", "low": 100, "high": 100, "unit": "crowns"})
    with pytest.raises(ConfigError, match=r"no usable values for document 1.*'100 crowns'"):
        _configuration(same, 0, 0, set())
    with pytest.raises(ConfigError, match="the rule of 'cash' cannot be used"):
        _configuration(with_cash(shop, {"rule": "amount", "low": 1}), 0, 0, set())
    with pytest.raises(ConfigError, match="the rule of 'owner' cannot be used"):
        _configuration(datagen.build_schema(raw(("fields", "owner"), {"rule": "choice", "from": []})), 0, 0, set())
    with pytest.raises(ConfigError, match="documents=0"):
        datagen.make_configurations(shop, 0)
    with pytest.raises(ConfigError, match="unknown type of question 'riddle'"):
        datagen.template_questions(shop, [], [], 0, {"riddle": 1})


def test_a_schema_file_of_ones_own_is_read_and_faults_name_the_file(tmp_path, shop):
    path = tmp_path / "shops.yaml"
    path.write_text(yaml.safe_dump(RAW), encoding="utf-8")
    assert datagen.read_schema(path).fact_fields == shop.fact_fields
    path.write_text("a: [1", encoding="utf-8")
    with pytest.raises(DataError, match=r"shops\.yaml: no valid YAML[\s\S]*line 1"):
        datagen.read_schema(path)
    path.write_text("- 1", encoding="utf-8")
    with pytest.raises(DataError, match=r"shops\.yaml: 'the record' is \[1\]"):
        datagen.read_schema(path)
    with pytest.raises(DataError, match="there is no file"):
        datagen.read_schema(tmp_path / "none.yaml")


def test_a_set_from_ones_own_schema_keeps_its_domain(tmp_path):
    generated = datagen.make_set(datagen.build_schema(raw(("domain",), "corner-shops")), 5, 2)
    assert generated.problems() == []
    assert Counter(q.kind for q in generated.questions) == dict.fromkeys(ONE_DOCUMENT, 5)
    folder = datagen.write_set(generated, tmp_path / "set")
    for name in ("documents", "questions"):
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert {json.loads(line)["domain"] for line in lines} == {"corner-shops"}


ONE_DOCUMENT = ("factual", "multi-hop", "summary", "unanswerable")


def test_one_document_gets_no_question_over_several():
    one = datagen.make_set(load_schema_cached("law", "en"), 1, 0)
    assert one.problems() == []
    assert {q.kind for q in one.questions} == set(ONE_DOCUMENT)


@pytest.mark.parametrize("name", SHIPPED, ids="-".join)
def test_generate_writes_what_load_questions_reads(name, tmp_path):
    folder = datagen.generate_set(*name, documents=6, seed=7, out=tmp_path / "new" / "set")
    data = load_questions(folder / "questions.jsonl", folder / "documents.jsonl")
    assert len(data.documents) == 6
    texts = {d.id: d.text for d in data.documents}
    assert {q.kind for q in data.questions} == set(KINDS)
    for q in data.questions:
        assert (q.meta["domain"], q.meta["language"]) == name
        owners = q.meta["reference_doc_ids"]
        assert len(owners) == len(q.references)
        assert all(r in texts[i] for r, i in zip(q.references, owners, strict=True))
        assert all(point in q.answer for point in q.meta["keypoints"])
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["documents"], summary["questions"], summary["seed"]) == (6, len(data.questions), 7)
    rows = [json.loads(line) for line in (folder / "configurations.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [len(r["dropped"]) > 0 for r in rows] == [True] * 6
    made = datagen.make_set(load_schema_cached(*name), 6, 7).dataset()  # the same without a folder
    for one, loaded in zip((*made.questions, *made.documents), (*data.questions, *data.documents), strict=True):
        assert json.dumps(asdict(one)) == json.dumps(asdict(loaded))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    files = ("documents.jsonl", "questions.jsonl", "configurations.jsonl", "summary.json")
    folders = [datagen.generate_set("law", "zh", 5, seed, tmp_path / f"{i}") for i, seed in enumerate((3, 3, 4))]
    contents = [[(f / name).read_bytes() for name in files] for f in folders]
    assert contents[0] == contents[1]
    assert all(a != b for a, b in zip(contents[0], contents[2], strict=True))


def test_nothing_is_overwritten_and_nothing_is_written_on_an_error(tmp_path):
    (tmp_path / "own.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match="is not an empty folder"):
        datagen.generate_set("law", "en", 2, 0, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["own.txt"]
    with pytest.raises(DataError, match="is not an empty folder"):
        datagen.generate_set("law", "en", 2, 0, tmp_path / "own.txt")
    for arguments, message in ((("sport", "en"), "finance, law, medicine"), (("law", "fr"), "en, zh")):
        with pytest.raises(ConfigError, match=message):
            datagen.generate_set(*arguments, documents=2, seed=0, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_set_with_problems_is_not_written(finance, tmp_path):
    bad = with_question(finance, 0, keypoints=())
    with pytest.raises(DataError, match="1 problems in the generated set"):
        datagen.write_set(bad, tmp_path / "set")
    assert not (tmp_path / "set").exists()
    mended = with_question(bad, 0, keypoints=finance.questions[0].keypoints)
    assert datagen.write_set(mended, tmp_path / "set").is_dir()
