"""The five categories: the embedded grader on hand-worked answers, judge models through the fake server, reports."""

import json
import math
import re
import time

import pandas as pd
import pytest
from checks import load_script, refusals
from fake_ollama import FakeOllama
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import ConfigError, DataError
from ragbench.labelling.embedded_grader import FEATURES, EmbeddedGrader, _choice, _offered, _polarity, _tokens, evidence
from ragbench.labelling.graded_answers import GradedAnswer, judge_report
from ragbench.labelling.grades import _grading_prompts, grade, group_answers, repeated_grades
from ragbench.llm import Cassette
from ragbench.papers.thesis import steps
from ragbench.records import GRADES, Answer, Question, facts_of
from ragbench.text.negation import abstains

BRIDGE = Question(
    "b1",
    "In which town was the inventor of the Nordal lamp born?",
    "Åkerby",
    (
        "The Nordal lamp was invented by Sven Halvorsen in 1884.",
        "He was born in Åkerby on 3 March 1851, the son of a watchmaker.",
    ),
    "bridge",
    meta={"supporting_facts": (("Nordal lamp", 0), ("Sven Halvorsen", 0))},
)
YES_NO = Question(
    "y1",
    "Were the painters Olga Brandt and Emil Brandt born in the same city?",
    "no",
    ("Olga Brandt was born in Lübeck in 1860.", "Emil Brandt was born in Riga in 1866."),
)
EITHER_OR = Question(
    "c1",
    "Which bridge was opened first, Tarn Bridge or Velden Bridge?",
    "Tarn Bridge",
    ("Tarn Bridge was opened in 1902.", "Velden Bridge was opened in 1911."),
)
PERSON = Question(
    "p1",
    "Who taught the composer of the opera Silver Pines?",
    "Johann Adam Reiter",
    ("Silver Pines is an opera by Clara Westphal.", "She studied with Johann Adam Reiter in Graz."),
)
ALL = (BRIDGE, YES_NO, EITHER_OR, PERSON)


@pytest.fixture(scope="module")
def embedded():
    return EmbeddedGrader()


def by(grader, question, text):
    return grader.grade(question.text, text, question.answer, facts_of(question))


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        (BRIDGE, "The passages do not say where the inventor was born.", 1),
        (BRIDGE, "I don't know.", 1),
        (YES_NO, "It cannot be determined from the documents.", 1),
        (BRIDGE, "Sven Halvorsen was born in Åkerby in 1879.", 2),
        (EITHER_OR, "Tarn Bridge, which was opened in Helsinki in 1899.", 2),
        (YES_NO, "No, Olga was born in Lübeck and Emil in Königsberg.", 2),
        (BRIDGE, "The lamp was invented by Sven Halvorsen, but his birthplace is not given.", 3),
        (PERSON, "Silver Pines is by Clara Westphal; her teacher is not mentioned.", 3),
        (BRIDGE, "He was born in Bergen.", 4),
        (YES_NO, "Yes, both were born in Lübeck.", 4),
        (EITHER_OR, "Velden Bridge was opened first.", 4),
        (PERSON, "She was taught by Franz Gruber.", 4),
        (BRIDGE, "I am not sure, but it was probably Trondheim.", 4),
        (BRIDGE, "Åkerby", 5),
        (BRIDGE, "Sven Halvorsen was born in Åkerby.", 5),
        (BRIDGE, "He was born in akerby.", 5),
        (YES_NO, "No, Olga was born in Lübeck and Emil in Riga.", 5),
        (YES_NO, "They were not.", 5),
        (EITHER_OR, "Tarn Bridge was opened first, in 1902.", 5),
        (PERSON, "Reiter", 5),
    ],
)
def test_hand_worked_answers_of_each_category(embedded, question, text, expected):
    assert by(embedded, question, text) == expected


def test_an_answer_with_nothing_unbacked_cannot_get_grade_two(embedded):
    clean, wrong = (
        embedded.probabilities(BRIDGE.text, text, BRIDGE.answer, facts_of(BRIDGE))
        for text in ("Sven Halvorsen was born in Åkerby in 1851.", "Sven Halvorsen was born in Åkerby in 1852.")
    )
    assert clean[1] == 0 < wrong[1]
    assert clean.sum() == pytest.approx(1)


def test_number_words_months_accents_and_contractions_are_made_comparable():
    assert [t.word for t in _tokens("Eighteen sixty-seven")] == ["1867"]
    assert [t.word for t in _tokens("sixteen hundred, forty-two, 1,600")] == ["1600", "42", "1600"]
    assert [t.word for t in _tokens("Sept. 3, St Étienne’s")] == ["september", "3", "saint", "etienne"]
    assert [t.word for t in _tokens("the Siberian one")] == ["the", "siberian", "one"]
    assert [t.word for t in _tokens("can't 東京")] == ["ca", "東", "京"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unfortunately, the text doesn't mention it.", True),
        ("There is not enough information.", True),
        ("Hard to say: the dates are missing.", True),
        ("None of the passages helps.", True),
        ("I have no information on that.", True),
        ("Unknown.", True),
        ("He was not a painter.", False),
        ("Mentioned in 1902, the bridge was opened in May.", False),
        ("No, they were born in different towns.", False),
    ],
)
def test_declining_is_told_from_answering(text, expected):
    assert abstains(text, "grader") is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Yes.", 1), ("Yes, but not soon.", 1), ("No, both did.", -1), ("They did not.", -1), ("Both were.", 1),
     ("They were, in 1902.", 1), ("Neither of them.", -1), ("Can't tell.", 0), ("In 1902 it rained.", 0)],
)  # fmt: skip
def test_polarity_of_the_first_clause(text, expected):
    assert _polarity(text) == expected


def test_the_option_named_first_is_picked_unless_negated():
    mine, other = _offered(EITHER_OR.text, EITHER_OR.answer)
    assert (mine, other) == ({"tarn"}, {"velden"})
    assert _choice("Tarn Bridge, before Velden Bridge.", mine, other) == 1
    assert _choice("Velden Bridge came before Tarn Bridge.", mine, other) == -1
    assert _choice("Velden Bridge was not the first.", mine, other) == 1
    assert _choice("The older one.", mine, other) == 0
    assert _offered(BRIDGE.text, BRIDGE.answer) is None


def test_evidence_counts_what_nothing_backs():
    said = "Halvorsen was born in Åkerby in 1879, near Bergen."
    values = evidence(BRIDGE.text, said, BRIDGE.answer, facts_of(BRIDGE))
    f = dict(zip(FEATURES, values, strict=True))
    assert f["hit"] == 1
    assert f["wrong_numbers"] == pytest.approx(math.log(2))  # 1879
    assert f["wrong_names"] == pytest.approx(math.log(2))  # Bergen
    assert f["missed"] == f["declines"] == f["contradicts"] == 0


def test_part_of_a_true_answer_is_a_part_and_a_surname_is_the_whole():
    def outcome(reference, answer):
        f = dict(zip(FEATURES, evidence("When and by whom?", answer, reference, ()), strict=True))
        return f["hit"], f["hit_part"], f["missed"]

    assert outcome("November 2018", "It was in 2018.") == (0, 0.5, 0)
    assert outcome("November 2018", "In Nov. 2018.") == (1, 0, 0)
    assert outcome("Johann Adam Reiter", "A man named Reiter.") == (1, 0, 0)
    assert outcome("Johann Adam Reiter", "Johann.") == (0, pytest.approx(1 / 3), 0)
    assert outcome("Johann Adam Reiter", "Gruber.") == (0, 0, 1)


@pytest.mark.parametrize(
    ("text", "expected"), [("", 1), (" \n", 1), ("...?!", 1), ("德国作曲家", 4), ("Он родился там", 4)]
)
def test_answers_without_words_and_in_other_scripts_have_defined_grades(embedded, text, expected):
    assert by(embedded, BRIDGE, text) == expected


@pytest.mark.parametrize("text", ["born in Bergen " * 7000, "n't " * 25_000, "(" * 100_000])
def test_an_answer_of_100000_characters_is_graded_quickly(embedded, text):
    began = time.process_time()
    assert by(embedded, BRIDGE, text) in GRADES
    assert time.process_time() - began < 2


test_bad_input_of_the_embedded_grader_is_named = refusals(
    (lambda: EmbeddedGrader().grade("q", "a", "∅", ()), DataError, "'∅' has no letter or digit"),
    (lambda: EmbeddedGrader().grade("q", "a", " ", ()), DataError, "the true answer is empty"),
    (lambda: EmbeddedGrader().grade("q", None, "r", ()), "answer is NoneType"),
    (lambda: EmbeddedGrader().grade("q", "a", "r", "one text"), "facts"),
)


@pytest.mark.parametrize(
    ("question", "true", "text"),
    [
        ("Wer gründete die Mühle?", "Ada Ruck", "Das geht aus den Dokumenten nicht hervor."),
        ("Wer gründete die Mühle?", "Ada Ruck", "Ich weiß es leider nicht."),
        ("Wer gründete die Mühle?", "Ada Ruck", "Dazu enthält der Text keine genauen Angaben."),
        ("Qui a fondé le moulin ?", "Ada Ruck", "Le texte ne mentionne pas le fondateur du moulin."),
        ("Qui a fondé le moulin ?", "Ada Ruck", "Aucune information n’est donnée à ce sujet."),
        ("谁建了磨坊？", "张三", "根据所给文档，无法确定答案。"),
        ("谁建了磨坊？", "张三", "文中没有提到这一点。"),
        ("谁建了磨坊？", "张三", "The documents do not contain enough information to answer this question."),
        ("Who built the mill?", "Ada Ruck", "现有文档不足以回答该问题。"),
    ],
)
def test_an_abstention_in_another_language_is_no_information_and_not_fully_wrong(embedded, question, true, text):
    assert embedded.grade(question, text, true, ()) == 1
    assert embedded.grade(question, true, true, (text,)) == 5


@pytest.mark.parametrize(
    ("true", "text", "expected"),
    [
        ("-(x+1)", "-(x+1)", 5),
        ("-(x+1)", "−( x + 1 )", 5),
        ("-(x+1)", "The derivative is -(x + 1).", 5),
        ("-(x+1)", "It is 42.", 4),
        ("-(x+1)", "-(x-1)", None),
        ("x+1", "The result is 2x+10, or x and 1.", None),
        ("C++", "C++", 5),
        ("C++", "C", None),
        ("C", "C++", None),
        ("5", "-5", None),
        ("-5", "5", None),
        ("42", "~42", 5),
        ("x", "x", 5),
        ("🚀", "🚀", 5),
        ("🚀", "🐶", 1),
        ("🚀", "I do not know.", 1),
        ("🚀", "A rocket 🚀", None),
        ("∅", "", 1),
        ("print('hi')", "print('hi')", 5),
        ("", "anything", None),
    ],
)
def test_code_formulas_and_signs_are_graded_or_unscored_with_a_reason(embedded, true, text, expected):
    question = Question("f", "What comes out?", true)
    one = embedded.grade_all([question], [Answer("f", text, "made up")])[0]
    assert one.value == expected
    assert (one.meta.get("error") == "unscored") is (expected is None)
    if expected is None:
        assert "true answer" in one.meta["detail"]
        with pytest.raises(DataError, match="true answer"):
            embedded.grade(question.text, text, true, ())


ANYTHING = st.text(max_size=30) | st.text("x1+-=()∅🚀C# n't'’.,−yes", max_size=12)


@settings(max_examples=400, deadline=None)
@given(ANYTHING, ANYTHING, ANYTHING, st.lists(ANYTHING, max_size=2))
def test_any_texts_are_graded_or_unscored_with_a_reason(question, text, true, facts):
    embedded = EmbeddedGrader()
    asked = [Question("any", question, true, tuple(facts))]
    one, itself = embedded.grade_all(asked, [Answer("any", t, "") for t in (text, true)])
    assert one.value in GRADES or (one.meta["error"] == "unscored" and one.meta["detail"])
    assert itself.value == (5 if true.strip() else None)


def shown_answers(body):
    """The candidates of a prompt, as the fake server sees them."""
    text = body["messages"][-1]["content"] if len(body["messages"]) == 1 else body["messages"][0]["content"]
    block = text.split("candidate answers:\n")[1].split("\n\nReply")[0]
    return re.findall(r"^\d+\. (.*)$", block, re.M)


def grade_by_word(body):
    """Grade "w3" as 3, whatever its place."""
    return json.dumps({"grades": [int(text[1]) for text in shown_answers(body)]})


def judged(reply, answers, **options):
    """The grades of a judge model that replies so, and how often it was asked."""
    with FakeOllama(reply=reply) as fake:
        return grade(fake.model(num_ctx=8192), ALL, answers, progress=False, **options), len(fake.calls)


def grid(budgets=(100, 200, 300), retrievers=("bm25", "sim"), questions=(BRIDGE, YES_NO)):
    cells = [(q.id, r, b) for q in questions for r in retrievers for b in budgets]
    return [Answer(q, f"w{i % 5 + 1}", "g", meta={"retriever": r, "budget": b}) for i, (q, r, b) in enumerate(cells)]


@pytest.mark.parametrize(("per_prompt", "calls"), [("one", 12), ("ten", 4), ("systems", 6), (4, 4), (100, 2)])
def test_any_number_of_answers_per_prompt_and_each_grade_reaches_its_answer(per_prompt, calls):
    answers = grid()
    grades, asked = judged(grade_by_word, answers, per_prompt=per_prompt)
    assert asked == calls
    assert [g.value for g in grades] == [int(a.text[1]) for a in answers]
    assert len(group_answers(answers, per_prompt)) == calls
    assert {g.judge for g in grades} == {"ollama:llama3:8b"}


def test_ten_per_prompt_is_one_call_per_question_and_retriever_as_the_thesis_counts():
    budgets, retrievers = range(100, 1001, 100), ("bm25", "sim", "mmr", "mlq", "reo")
    answers = grid(budgets, retrievers, ALL)
    groups = group_answers(answers, "ten")
    assert len(groups) == len(ALL) * 5
    assert all(len({answers[p].meta["retriever"] for p in g}) == 1 and len(g) == 10 for g in groups)
    assert len(groups) / len(ALL) * 7404 == steps()["grading"] == 37_020


def test_six_systems_of_one_question_share_a_prompt_the_one_without_context_too():
    retrieved = [Answer("b1", "w1", "g", meta={"retriever": r, "budget": b}) for b in (100, 1000) for r in "abcde"]
    alone = Answer("b1", "w2", "g", meta={"retriever": None, "budget": 0})
    assert group_answers([alone, *retrieved], "systems") == [(0, 6, 7, 8, 9, 10), (1, 2, 3, 4, 5)]


def test_the_prompt_holds_question_true_answer_facts_and_every_answer_on_its_own_line():
    (made,) = _grading_prompts(ALL, [Answer("b1", "one\n2. two", "g"), Answer("b1", "", "g")], 2)
    facts = (BRIDGE.text, "True answer: Åkerby", "- Nordal lamp: The Nordal lamp was")
    for part in (*facts, "\n1. one 2. two\n2. (empty)\n"):
        assert part in made.text
    assert "exactly 2 numbers" in made.text


def test_shuffling_is_recorded_seeded_and_changes_no_grade_of_a_fair_judge():
    answers = grid(budgets=range(100, 1001, 100))
    orders = (None, 1, 1, 2)
    plain, one, again, two = (judged(grade_by_word, answers, per_prompt="ten", order=o)[0] for o in orders)
    assert [g.value for g in plain] == [g.value for g in one] == [g.value for g in two]
    positions = [[g.meta["position"] for g in run] for run in (plain, one, again, two)]
    assert positions[0] == list(range(1, 11)) * 4
    assert positions[1] == positions[2] != positions[3]
    assert sorted(positions[1][:10]) == list(range(1, 11))
    assert positions[1][:10] != positions[1][10:20]  # each prompt has an order of its own
    assert one[0].meta["order"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        '{"grades": [1, 2]}',
        '{"grades": [1, 2, 3, 4]}',
        '{"grades": [1, 2, 6]}',
        '{"grades": ["1", "2", "3"]}',
        '{"grades": [true, 2, 3]}',
        '{"scores": [1, 2, 3]}',
        "All three are fine.",
    ],
)
def test_wrong_counts_and_unreadable_verdicts_are_unscored_with_the_raw_reply(reply):
    answers = grid(retrievers=("bm25",), questions=(BRIDGE,))
    grades, asked = judged(lambda body: reply, answers, per_prompt=3)
    assert asked == 2  # one repair try
    assert [g.value for g in grades] == [None] * 3
    assert {g.raw for g in grades} == {reply}
    assert all(g.meta["error"] and g.meta["detail"] and g.meta["repairs"] <= 1 for g in grades)


def test_a_bad_reply_costs_only_the_answers_of_its_own_prompt():
    answers = grid()

    def sometimes(body):
        return "no" if BRIDGE.text in body["messages"][0]["content"] else grade_by_word(body)

    grades, _ = judged(sometimes, answers, per_prompt="ten")
    assert [g.value is None for g in grades] == [a.question_id == "b1" for a in answers]


def test_a_long_answer_is_cut_in_the_prompt_and_told():
    answers = [Answer("b1", "w5 " + "x" * 100_000, "g"), Answer("b1", "w4", "g")]
    with FakeOllama(reply=grade_by_word) as fake:
        grades = grade(fake.model(num_ctx=8192), ALL, answers, per_prompt=2, progress=False)
        assert len(fake.calls[0].prompt) < 8000
    assert [(g.value, g.meta["cut"]) for g in grades] == [(5, True), (4, False)]


FRAME = pd.DataFrame({"question": ["Who?"], "answer": ["Ann"]})
ASKED = [Question("1", "Who?", "Ann")]
test_answers_and_orders_that_cannot_work_are_named = refusals(
    (
        lambda: _grading_prompts(ALL, [Answer("b1", "", "g"), Answer("zz", "", "g")], 1),
        DataError,
        "answer 1 belongs to question 'zz'",
    ),
    (lambda: _grading_prompts((BRIDGE, BRIDGE), grid(), 1), "one question per id"),
    *((lambda n=n: group_answers(grid(), n), f"per_prompt={n!r}") for n in (0, -1, "all", 2.5)),
    # A column of a table where records are wanted.
    (
        lambda: grade(EmbeddedGrader(), FRAME["question"], FRAME["answer"]),
        DataError,
        r"(?s)questions: item 0 is str 'Who.'.*one Question per row",
    ),
    (
        lambda: grade(EmbeddedGrader(), ASKED, FRAME["answer"]),
        DataError,
        r"(?s)answers: item 0 is str 'Ann'.*one Answer per row",
    ),
)


def test_no_answer_has_no_grade_and_the_embedded_grader_goes_by_its_name():
    assert grade("ollama:llama3:8b", ALL, []) == []
    said = [Answer("1", "Ann", "x")]
    assert grade(EmbeddedGrader(), ASKED, said)[0].value == 5
    assert grade("embedded", ASKED, said) == grade(EmbeddedGrader(), ASKED, said)


def gold(grades, split="dev"):
    return [GradedAnswer(f"{split}{i}", f"{split}q{i // 2}", "", g, split) for i, g in enumerate(grades)]


def test_report_by_hand():
    rows = gold([1, 1, 2, 5]) + gold([4, 4], "test")
    dev, test = judge_report([1, 2, 2, None, 4, 5], rows, "mine").to_dict("records")
    assert (dev["judge"], dev["split"], dev["n"], dev["unscored"]) == ("mine", "dev", 4, 1)
    assert dev["accuracy"] == pytest.approx(2 / 3)
    # observed 2/3; by chance (2 * 1 + 1 * 2) / 9 = 4/9: kappa (6/9 - 4/9) / (5/9) = 0.4
    assert dev["kappa"] == pytest.approx(0.4)
    assert (test["split"], test["n"], test["unscored"], test["accuracy"]) == ("test", 2, 0, 0.5)
    with pytest.raises(DataError, match="1 grades for 2"):
        judge_report([1], gold([1, 2]))
    with pytest.raises(DataError, match="label 7 at position 1"):
        judge_report([1, 7], gold([1, 2]))
    (report,) = judge_report([math.nan, 2.0], gold([1, 2])).to_dict("records")  # NaN is unscored, too
    assert (report["unscored"], report["accuracy"]) == (1, 1.0)


def test_fitting_needs_every_grade_and_finds_what_separates_them():
    texts = {1: "The text does not say.", 2: "Åkerby, in 1799.", 3: "Sven Halvorsen invented it in 1884.",
             4: "It was Bergen.", 5: "Åkerby."}  # fmt: skip
    rows = [GradedAnswer(f"{g}", "b1", t, g, "dev") for g, t in texts.items()]
    fitting = load_script("fit_embedded_grader")
    model = fitting.fit_embedded_grader(ALL, rows, ridge=100.0)
    for g, text in texts.items():
        x = evidence(BRIDGE.text, text, BRIDGE.answer, facts_of(BRIDGE))
        assert (model["weights"] @ x + model["offsets"]).argmax() + 1 == g
    with pytest.raises(DataError, match="lack a grade"):
        fitting.fit_embedded_grader(ALL, rows[:3])


def test_repeats_ask_again_with_other_seeds_and_are_recorded(tmp_path):
    def reply(body):
        return json.dumps({"grades": [1 + body["options"]["seed"] % 5]})

    questions = [Question("q", "Who?", "Ann", ("It was Ann.",))]
    answers = [Answer("q", text, "g") for text in ("Ann", "Bob")]
    with FakeOllama(reply=reply) as server, Cassette(tmp_path / "c.sqlite") as cassette:
        model = server.model(seed=3)
        grade(model, questions, answers, cassette=cassette)
        assert len(server.calls) == 2
        repeats = repeated_grades(model, questions, answers, repeats=3, cassette=cassette)
        assert repeats == [[4, 5, 1], [4, 5, 1]]
        assert len(server.calls) == 2 + 4  # the first repeat is the grading that was recorded
        assert repeated_grades([model], questions, answers, repeats=3, cassette=cassette) == repeats
        assert len(server.calls) == 6
    with pytest.raises(ConfigError, match="repeats=1"):
        repeated_grades(model, questions, answers, repeats=1)
