"""What each paper's live path sends, held against the paper: prompt, limits and sampling, as a
server sees them.

The functions are those that the notebooks call; the server is a double of Ollama on the loopback.
What the papers say: thesis 2.4 (Figure 2.4: temperature 0); RAGChecker App. D (300 tokens, overlap
0.2, top 20, temperature 0, at most 2,048 new tokens); RAGAS 3 (one model for all steps; no sampling
is named); RAGEval 5.1 (the recorded five passages, at most 256 new tokens).
"""

import gzip
import json
import re
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
from fake_ollama import DIGEST, EMBEDDER, FakeOllama, default_reply
from notebook_parts import parts, run_up_to
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

import ragbench as rb
from ragbench import papers
from ragbench.data import load_dataset
from ragbench.data.dragonball import ANSWERS_FILE
from ragbench.data.hotpotqa import OFFICIAL_NAME
from ragbench.data.wikieval import DIMENSIONS, Pair
from ragbench.errors import ConfigError
from ragbench.llm import CallError, chat_model
from ragbench.papers import ragchecker as rc
from ragbench.papers import thesis
from ragbench.paths import packaged_data
from ragbench.prompts import load_prompt

MODEL = "ollama:llama3:8b"
THESIS = RAGAS = JUDGED = {"temperature": 0}  # RAGEval names no sampling for its judge
RAGCHECKER = {"temperature": 0, "num_predict": 2048}
RAGEVAL = {"num_predict": 256}


@pytest.fixture
def server(monkeypatch, tmp_path):
    with FakeOllama() as fake:
        monkeypatch.setenv("OLLAMA_HOST", fake.url)
        monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
        yield fake


def fields(prompt, name):
    """Return the values that were filled into a prompt, or None where another prompt was sent."""
    seen = set()

    def group(field):
        # A field that comes twice holds the same text.
        again = field[1] in seen
        seen.add(field[1])
        return f"(?P={field[1]})" if again else f"(?P<{field[1]}>.*?)"

    pattern = re.sub(r"\\\{(\w+)\\\}", group, re.escape(load_prompt(name)))
    found = re.fullmatch(pattern, prompt, flags=re.DOTALL)
    return found and found.groupdict()


def held_against(calls, options, *names):
    """Check that every call was made from one of the prompts, with the options; return the filled
    fields by prompt.
    """
    made = {name: [] for name in names}
    for call in calls:
        (message,) = call.body["messages"]
        assert message["role"] == "user"
        filled = {name: fields(message["content"], name) for name in names}
        hits = [name for name in names if filled[name] is not None]
        assert len(hits) == 1, (hits, message["content"][:200])
        made[hits[0]].append(filled[hits[0]])
        assert call.body["options"].items() >= options.items()
    assert all(made.values()), {name: len(found) for name, found in made.items()}
    return made


def values(filled, *names):
    """The different values of a prompt's fields."""
    return {tuple(fields[name] for name in names) for fields in filled}


def minihop(n):
    data = load_dataset("minihop", limit=n)
    return replace(data, documents=data.documents[:20])


# --- thesis, sections 2.4 and 2.5.3
# -----------------------------------------------------------------------------


def test_the_thesis_path_sends_the_prompts_of_figures_2_4_and_2_5_at_temperature_0(server):
    data = minihop(2)
    experiment = thesis.experiment("Table 3.2", data, thesis.Models(MODEL), N=(0, 100))
    assert experiment.run(progress=False)["grade"].notna().all()
    names = ("thesis_with_documents", "thesis_query_only", "thesis_grade")
    documents, alone, grades = held_against(server.calls, THESIS, *names).values()
    questions = {q.text: q for q in data.questions}
    assert {f["query"] for f in alone} == {*questions}
    assert all(f["documents"] for f in documents)
    for f in grades:
        question = questions[f["question"]]
        assert f["reference"] == question.answer
        assert all(text in f["facts"] for text in question.references)


def test_the_thesis_mlq_asks_for_sub_questions_at_temperature_0(server):
    server.reply = lambda body: "Who was born?\nWho died?"
    data = minihop(2)
    build = thesis.retrievers(rb.llm_decomposer(rb.chat_model(MODEL), progress=False))["MLQ"]
    texts = {q.text for q in data.questions}
    build(rb.token_chunks(data.documents)).search([*texts], 5)
    (sent,) = held_against(server.calls, THESIS, "multiquery_decomposition").values()
    assert {f["question"] for f in sent} == texts


# --- RAGChecker, App. D
# -----------------------------------------------------------------------------------------


def test_the_ragchecker_path_follows_appendix_d_and_scores_what_stands_between_the_tags(server):
    answer = "Ann built it with her own hands."
    server.reply = lambda body: (
        default_reply(body) if body.get("format") else f"I think:\n<answer>{answer}</answer>"
    )
    data = parts("23").long_answered(load_dataset("minihop"), 1)
    data = replace(data, documents=data.documents[:40])
    generator = {MODEL: rb.chat_model(MODEL, num_ctx=16384, num_predict=2048)}
    experiment = rc.grid("live", data, rc.PAPER_RETRIEVERS, generator)
    rows = experiment.run(progress=False)
    assert rows[["status", "answer", "tagged"]].eq(["ok", answer, True]).all(axis=None)
    (sent,) = held_against(server.calls, RAGCHECKER, "ragchecker_default").values()
    texts = {c.id: c.text for c in rb.token_chunks(data.documents, 300, 0.2)}
    shown = {f["documents"] for f in sent}
    for hits in rows["hits"]:
        assert len(hits) == 20
        assert " ".join(map(texts.get, hits)) in shown  # all 20, uncut
    assert {f["query"] for f in sent} == {data.questions[0].text}
    server.calls.clear()
    rb.ragchecker_labels(rb.chat_model(MODEL), rc.results(rows))
    held_against(server.calls, {"temperature": 0}, "steps_claims", "steps_check")


def test_the_diagnosis_compares_figures_5_and_9_under_the_same_options(server):
    book = parts("23")
    data = book.answerable(load_dataset("minihop", book.DATA, per_kind=1))
    data = rb.Dataset(data.name, data.questions[:1], data.documents)
    model = chat_model(MODEL, num_ctx=32768, num_predict=2048)
    bm25 = {"BM25": rc.PAPER_RETRIEVERS["BM25"]}
    both = [rc.DEFAULT, rc.Setting(prompt="optimised")]
    rc.grid("x", data, bm25, dict.fromkeys(rc.ANSWER_PROMPTS, model), both).run(progress=False)
    sent = held_against(server.calls, RAGCHECKER, "ragchecker_default", "ragchecker_optimised")
    assert sent["ragchecker_default"] == sent["ragchecker_optimised"]


# --- RAGAS, sections 3 and 5
# ------------------------------------------------------------------------------------

PAIRS = [
    Pair("a", "Who built it?", "Ann built it. It is tall.", "Bob did.", "Ann built it. It is tall.")
]


def test_the_ragas_path_sends_section_3s_four_prompts_with_question_answer_and_context(server):
    server.reply = lambda body: (
        '{"claims": ["Ann built it."]}'
        if "claims" in body["format"]["properties"]
        else default_reply(body)
    )
    pairs = dict.fromkeys(DIMENSIONS, PAIRS)
    options = {"embedder": rb.make_embedder(), "n": 3, "progress": False}
    parts("30").label_texts(rb.chat_model(MODEL), pairs, **options)
    names = ("steps_statements", "steps_verdicts", "steps_questions", "steps_sentences")
    statements, verdicts, questions, sentences = held_against(server.calls, RAGAS, *names).values()
    (pair,) = PAIRS
    both = (pair.better, pair.worse)
    assert values(statements, "question", "answer") == {(pair.question, text) for text in both}
    assert values(verdicts, "context") == {(pair.context,)}
    assert values(questions, "answer", "count") == {(text, "3") for text in both}
    assert values(sentences, "question") == {(pair.question,)}


def ragas_reply(body):
    """Take two statements and one question, and say Yes, No, Yes ... of the statements."""
    form = body["format"]["properties"]
    if "claims" in form:
        return '{"claims": ["Ann built it.", "It is tall."]}'
    if "verdicts" in form:
        count = form["verdicts"]["maxItems"]
        verdicts = (["Yes", "No"] * count)[:count]
        return json.dumps({"explanations": ["So it says."] * count, "verdicts": verdicts})
    if "questions" in form:
        return json.dumps({"questions": [f"Who built it, {body['options']['seed']}?"]})
    return default_reply(body)


def test_ragas_as_run_asks_by_the_method_of_the_release(server, three, monkeypatch, capsys):
    server.reply = ragas_reply
    given = {"MODEL": MODEL, "LIMIT": 2, "AS_RUN": True, "QUESTIONS": 3}
    names = run_up_to("30", '"calls")', **given)
    assert "about 48 calls" in capsys.readouterr().out
    texts = names["texts"].groupby("dimension")
    assert [*texts.get_group("faithfulness")["verdicts"]] == [["Yes", "No"]] * 4
    assert all(len(cosines) == 3 for cosines in texts.get_group("answer_relevance")["cosines"])
    of_questions = [call for call in server.calls if "Merrin" in call.prompt]
    held_against(of_questions, {"temperature": 0.2}, "ragas_question_as_run")
    by_answer = {}
    for call in of_questions:
        answer = fields(call.prompt, "ragas_question_as_run")["answer"]
        by_answer.setdefault(answer, []).append(call.body["options"]["seed"])
    # the double's three evasive answers are equal, and asked once
    assert {tuple(seeds) for seeds in by_answer.values()} == {(0, 1, 2)}
    rest = [call for call in server.calls if call not in of_questions]
    baselines = [f"steps_gpt_{kind}_{d}" for kind in ("score", "ranking") for d in DIMENSIONS]
    steps = ("ragas_statements_as_run", "ragas_verdicts_as_run", "steps_sentences")
    sent = held_against(rest, RAGAS, *steps, *baselines)
    assert all(f["statements"] == "1. Ann built it.\n2. It is tall." for f in sent[steps[1]])
    assert all(f["count"] == "2" for f in sent[steps[1]])
    assert len(server.calls) <= 48


def test_the_ragas_baselines_send_a_definition_and_the_texts_of_section_5(server):
    book = parts("30")
    for dimension in DIMENSIONS:
        server.calls.clear()
        book.baseline_scores(rb.chat_model(MODEL), PAIRS, dimension, progress=False)
        names = (f"steps_gpt_score_{dimension}", f"steps_gpt_ranking_{dimension}")
        scores, rankings = held_against(server.calls, RAGAS, *names).values()
        shown = "context" if dimension == "faithfulness" else "question"
        assert all({*f} == {shown, "candidate"} for f in scores)
        assert all({*f} == {shown, "first", "second"} for f in rankings)


# --- RAGEval, sections 3.3, 3.5.2 and 5.1
# -----------------------------------------------------------------------


def test_the_rageval_path_answers_under_section_5_1_and_judges_every_keypoint(server):
    about = {"language": "en", "keypoints": ("1. It rose.", "2. It fell.")}
    question = rb.Question("q", "What happened?", "It rose and fell.", ("It rose.",), meta=about)
    passages = ("(Marn) It rose.", "(Voss) It fell.")
    recorded = rb.Answer("q", "It rose.", "gpt-4o", meta={"passages": passages})
    book = parts("41")
    model = rb.chat_model(MODEL)
    (answer,) = book.answer_recorded(model, [question], [recorded], progress=False)
    ((sent,),) = held_against(server.calls, RAGEVAL, "rageval_answer_en").values()
    assert sent == {"query": question.text, "documents": "\n\n".join(passages)}
    server.calls.clear()
    book.point_verdicts(model, [question], [answer.text], progress=False)
    (sent,) = held_against(server.calls, JUDGED, "steps_keypoints").values()
    assert {f["keypoints"] for f in sent} == {"1. It rose.", "1. It fell."}
    # The judge needs no passages: Eq 3-5 hold an answer against the keypoints.
    assert all(set(f) == {"question", "response", "count", "keypoints"} for f in sent)


# --- LIMIT bounds what a live model is asked, and the calls are printed before the first

ABOUT = {"domain": "Finance", "language": "en"}
ASKED = ABOUT | {
    "ground_truth": {
        "doc_ids": [4],
        "content": "Yes.",
        "references": ["Tarn grew."],
        "keypoints": ["Tarn grew.", "It hired."],
    },
    "prediction": {"content": "Tarn shrank.", "references": ["(Company: Tarn)Tarn grew."]},
}
QUERY = {"query_type": "Factual Question", "content": "Did Tarn grow?"}


def write_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def three(monkeypatch, tmp_path):
    """RAGBENCH_DATA with three questions of WikiEval, and three recorded ones of DRAGONBall."""
    wiki = []
    asked = []
    for number in range(3):
        texts = {"answer": f"Ann {number} did.", "ungrounded_answer": "Bob did."}
        contexts = {"context_v1": ["Ann built it."], "context_v2": ["Ann built it.", "It is tall."]}
        about = {"question": f"Who built {number}?", "source": "Tower", "poor_answer": "It is."}
        wiki.append(about | texts | contexts)
        asked.append(ASKED | {"query": QUERY | {"query_id": number}})
    document = ABOUT | {"doc_id": 4, "company_name": "Tarn", "content": "Tarn grew. It hired."}
    write_lines(tmp_path / "wikieval" / "wikieval.jsonl", wiki)
    write_lines(tmp_path / "rageval" / "dragonball_docs.jsonl", [document])
    write_lines(tmp_path / "rageval" / "dragonball_queries.jsonl", asked)
    write_lines(tmp_path / "rageval" / ANSWERS_FILE, asked)
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))


@pytest.mark.parametrize(("number", "calls"), [("30", 28), ("41", 14)])
def test_limit_bounds_the_calls_of_a_live_notebook_which_says_them_first(
    number, calls, server, three, monkeypatch
):
    def two_claims(body):
        if "claims" in body.get("format", {}).get("properties", {}):
            return '{"claims": ["Ann built it.", "It is tall."]}'
        return default_reply(body)

    said = []
    monkeypatch.setattr(
        "builtins.print", lambda *words, **_: said.append((words, len(server.calls)))
    )
    server.reply = two_claims
    asked = []
    for limit in (1, 2):
        server.calls.clear()
        run_up_to(number, '"calls")', MODEL=MODEL, LIMIT=limit)
        asked.append(len(server.calls))
        assert (("about", calls * limit, "calls"), 0) in said
    one, two = asked
    assert 0 < one <= calls
    assert one < two <= 2 * calls


def write_questions_of_clapnq(folder, answer="In 1841.", count=1):
    asked = []
    for number in range(1, count + 1):
        passages = [
            {"title": f"Tarn {number}", "text": f"Tarn {number} grew in 1841. It hired in May."}
        ]
        output = [{"answer": answer, "selected_sentences": [f"Tarn {number} grew in 1841."]}]
        texts = {"id": str(number), "input": f"When did Tarn {number} grow?"}
        asked.append(texts | {"passages": passages, "output": output})
    write_lines(folder / "clapnq" / "clapnq_dev_answerable.jsonl", asked)


# --- a small model says the same of everything, or nothing that can be read: no cell ends by that

FEW_PAGES = {"SOURCE": "minihop", "ALL_DOCUMENTS": False, "PER_KIND": 1, "CLAIMS_EACH": 2}
FEW_PAGES |= {"RESAMPLES": 20}


@pytest.mark.parametrize(
    ("number", "given", "made"),
    [
        *[("13", {"DATA": "minihop", "LIMIT": n, "RESAMPLES": 20}, "family") for n in (1, 2, 3)],
        ("14", {"DATA": "minihop", "LIMIT": 4, "RESAMPLES": 20}, "fitted_cuts"),
        *(("22", {"LIMIT": limit, "RESAMPLES": 20}, "tests") for limit in (1, 2, 3)),
        *(("23", FEW_PAGES | {"LIMIT": limit}, "found") for limit in (1, 2, 3)),
        *(("30", {"LIMIT": limit}, "won") for limit in (1, 2, 3)),
        *(("41", {"LIMIT": limit, "RESAMPLES": 20}, "exam") for limit in (1, 2, 3)),
        *(("42", {"LIMIT": limit, "RESAMPLES": 20}, "by_setting") for limit in (1, 2, 3)),
        *(
            ("44", {"LIMIT": limit, "QUESTIONS": limit, "RESAMPLES": 20}, "by")
            for limit in (1, 2, 3)
        ),
    ],
)
def test_a_live_notebook_runs_to_its_end_with_a_model_of_one_reply_and_no_cassette(
    number, given, made, server, three, monkeypatch, tmp_path
):
    write_questions_of_clapnq(tmp_path, count=3)
    if number in ("42", "44"):
        write_dragonball(tmp_path)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    names = run_up_to(number, None, MODEL=MODEL, **given)
    assert server.calls
    assert len(names[made])
    assert not any("nan" in line for line in names.get("lines", []))  # the sentences of *Found*


@pytest.fixture
def corpus(tmp_path):
    """The author's files in small: three pages, each one chunk; and a tokenizer of letters."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    texts = {
        f"Page {number}": f" Passage {number}: an officer, an opponent. {'x' * 500}"
        for number in range(3)
    }
    pages = [{"title": title, "text": text} for title, text in texts.items()]
    (folder / "corpus_100k.json").write_text(json.dumps(pages))
    (folder / "corpus_chunks.json").write_text(json.dumps(list(texts.items())))
    letters = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    letters.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("number", ["12", "13", "14"])
def test_a_live_run_takes_the_corpus_the_tokenizer_and_the_prompt_that_are_named(
    number, limit, corpus, server, monkeypatch, tmp_path
):
    mine = tmp_path / "mine.txt"
    mine.write_text("Mine: {query}\n---\n{documents}")
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    given = {"DATA": "minihop", "LIMIT": limit, "RESAMPLES": 20, "MODEL": MODEL}
    given |= {"PROMPT": str(mine)}
    files = {"CORPUS": str(corpus), "TOKENIZER": str(corpus / "tokenizer.json")}
    names = run_up_to(number, None, **given, **files)
    asked = [call.prompt for call in server.calls if call.prompt.startswith("Mine:")]
    contexts = [*filter(None, (prompt.partition("---\n")[2] for prompt in asked))]
    assert contexts
    assert all(text.startswith(" Passage ") for text in contexts)  # nothing but those pages
    assert max(map(len, contexts)) == 1000  # N in letters
    (data,) = {names["rows" if number != "14" else "answers"].attrs["data"]}
    assert data == f"minihop (3 pages, {limit} questions, tokens of tokenizer.json)"
    live = papers.ledger("thesis")
    live = live[live["ours_by"].str.startswith("minihop (", na=False)]
    assert len(live) or number == "12"  # which records a hundred questions and more
    assert not live["compares"].any()  # other questions than the thesis's


AS_RUN = {"GRADING": "thesis_grade_as_run", "ORDER": None}
OF_ONE = {"thesis_with_documents": 10, "thesis_query_only": 1, "thesis_grade_as_run": 2}  # at N = 0
OF_SIX = {"thesis_with_documents": 5, "thesis_query_only": 1, "multiquery_released": 1}
OF_SIX |= {"thesis_grade_as_run": 1}
OF_SIX_SYSTEMS = {"PER_PROMPT": "systems", "DECOMPOSITION": "multiquery_released"}


@pytest.mark.parametrize(
    ("number", "given", "calls"),
    [
        ("12", {"PER_PROMPT": "ten"}, OF_ONE),
        ("13", OF_SIX_SYSTEMS, OF_SIX),
        ("14", OF_SIX_SYSTEMS, OF_SIX),
    ],
)
def test_a_live_run_of_the_thesis_asks_as_the_thesis_did(
    number, given, calls, server, monkeypatch, tmp_path, capsys
):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    given = {"DATA": "minihop", "LIMIT": 2, "RESAMPLES": 20, "MODEL": MODEL} | AS_RUN | given
    names = run_up_to(number, "= recorded.thesis_rows(", **given)
    rows = names["rows" if number != "14" else "answers"]
    sent = held_against(server.calls, THESIS, *calls)
    at_most = {name: 2 * count for name, count in calls.items()}
    made = {name: len(filled) for name, filled in sent.items()}
    asked_once = made.pop("thesis_with_documents")  # where a larger N adds no text it is not asked
    assert made.items() <= at_most.items()
    assert 2 < asked_once <= at_most["thesis_with_documents"]
    shown = [re.findall(r"(?m)^\d+\. (.*)", f["answers"]) for f in sent["thesis_grade_as_run"]]
    for _, own in rows[rows["N"] > 0].groupby("question_id"):
        own = own.sort_values("judge_position")
        assert number == "12" or [*own["retriever"]] == ["BM25", "SIM", "MMR", "REO", "MLQ"]
        in_order = [*own["answer"]]
        assert in_order in [listed[-len(in_order) :] for listed in shown]
    assert rows.attrs["graded"] == f"judge {MODEL} (thesis_grade_as_run)"
    assert "in a fixed order a place is a system" in capsys.readouterr().out


@pytest.mark.parametrize(("profile", "first"), [("merged", {"P"}), ("as_run", {" "})])
@pytest.mark.parametrize("number", ["11", "12", "13", "14"])
def test_a_live_run_cuts_the_corpus_by_the_profile_that_is_named(
    number, profile, first, corpus, server, monkeypatch, tmp_path
):
    (corpus / "corpus_chunks.json").unlink()
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    given = {"DATA": "minihop", "LIMIT": 1, "MODEL": MODEL, "PROFILE": profile}
    given |= {"CORPUS": str(corpus), "TOKENIZER": str(corpus / "tokenizer.json")}
    names = run_up_to(number, {"11": "cut(", "14": "cut ="}.get(number, "thesis_rows("), **given)
    if number in ("11", "14"):  # Table 3.1 and Figure 3.2
        chunks = names["cut"](names["dataset"].documents)
        assert {chunk.text[0] for chunk in chunks if "Passage" in chunk.text} == first
    if number != "11":
        prompts = [call.prompt for call in server.calls if "Documents:" in call.prompt]
        contexts = [fields(prompt, "thesis_with_documents")["documents"] for prompt in prompts]
        assert {text[0] for text in contexts if text.lstrip().startswith("Passage")} == first


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_notebook_11_searches_the_corpus_and_asks_for_sub_questions_with_the_prompt_that_are_named(
    limit, corpus, server, monkeypatch, tmp_path
):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    files = {"CORPUS": str(corpus), "TOKENIZER": str(corpus / "tokenizer.json")}
    given = {"DATA": "minihop", "LIMIT": limit, "MODEL": MODEL, "PROMPT": "multiquery_released"}
    names = run_up_to("11", None, **given, **files)
    sent = held_against(server.calls, THESIS, "multiquery_released")
    assert len(values(sent["multiquery_released"], "question")) == limit
    assert [chunk.title for chunk in names["chunks"]] == ["Page 0", "Page 1", "Page 2"]
    assert names["all_rows"]["context_tokens"].max() > 1500  # three pages in letters
    live = papers.ledger("thesis", "Table 3.1")
    assert not live.loc[live["ours"].notna(), "compares"].any()


def test_notebook_10_writes_the_corpus_that_the_others_search(monkeypatch, tmp_path):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    given = {"DATA": "minihop", "LIMIT": 2, "SAMPLE": 4, "WRITE": str(tmp_path / "pages")}
    names = run_up_to("10", "len(corpus)", **given)
    data, cut = thesis.searched("minihop", 2, tmp_path / "pages")
    assert [d.text for d in data.documents] == [d.text for d in names["corpus"]]
    # there are no chunks in that folder
    assert (cut.func, cut.keywords) == (rb.semantic_chunks, {"profile": "merged"})


def test_notebook_22_answers_over_ragcheckers_own_passages(server, monkeypatch, tmp_path):
    asked = [{"query_id": "q1", "query": "When did Tarn grow?", "gt_answer": SEVERAL}]
    (tmp_path / "clapnq_queries.json").write_text(json.dumps({"input_data": asked}))
    passages = [{"doc_id": f"d{n}", "text": f"Tarn grew, passage {n}."} for n in range(3)]
    write_lines(tmp_path / "corpus.jsonl", passages)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    given = {"MODEL": MODEL, "LIMIT": 1, "K": 2, "BENCHMARK": str(tmp_path)}
    run_up_to("22", "def live_results", **given)
    (answered, *_) = [call for call in server.calls if "passage 0" in call.prompt]
    assert "passage 1" in answered.prompt


def write_benchmark(folder, domain, count=3):
    asked = [
        {"query_id": f"q{n}", "query": f"When did Tarn {n} grow?", "gt_answer": SEVERAL}
        for n in range(count)
    ]
    (folder / f"{domain}_queries.json").write_text(json.dumps({"input_data": asked}))
    passages = [{"doc_id": f"d{n}", "text": f"Tarn {n} grew, passage {n}."} for n in range(count)]
    write_lines(folder / "corpus.jsonl", passages)


NOVELS = {"MODEL": MODEL, "DOMAIN": "novelqa", "LIMIT": None, "K": 2, "RESAMPLES": 20}
NOVELS |= {"EMBEDDER": "ollama:all-minilm"}
THEIRS = {"BM25": "BM25_Llama3-8b", "ollama:all-minilm": "E5-Mistral_Llama3-8b"}


def test_notebook_22_fills_the_named_rows_of_the_table_of_a_set(server, monkeypatch, tmp_path):
    write_benchmark(tmp_path, "novelqa")
    server.models[EMBEDDER] = DIGEST
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    names = run_up_to("22", None, BENCHMARK=str(tmp_path), ROWS=THEIRS, **NOVELS)
    answered = [call for call in server.calls if fields(call.prompt, "ragchecker_default")]
    assert 3 <= len(answered) <= 2 * 3  # questions, retrievers
    assert len(names["results"]["NovelQA"]) == 2 * 3
    live = papers.ledger("ragchecker").dropna(subset="ours")
    live = live[live["ours_by"].str.startswith("novelqa")]
    assert set(live["item"]) == {"Table 7"}
    assert set(live["row"]) == {*THEIRS.values()}
    assert live["published"].notna().all()
    assert live["compares"].all()
    (by,) = set(live["ours_by"])
    assert by.startswith("novelqa (all questions, benchmark), k = 2, dense ollama:all-minilm, ")


def test_the_embedder_that_is_named_searches(server, tmp_path):
    write_benchmark(tmp_path, "novelqa")
    with pytest.raises(CallError, match=r"all-minilm at .* not among llama3:8b"):
        run_up_to("22", "SET: live_results()", BENCHMARK=str(tmp_path), **NOVELS)


def test_a_set_without_a_row_of_the_paper_does_not_compare(server, monkeypatch, tmp_path):
    write_benchmark(tmp_path, "novelqa", count=1)
    server.models[EMBEDDER] = DIGEST
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    run_up_to("22", "papers.record(", BENCHMARK=str(tmp_path), **NOVELS)
    live = papers.ledger("ragchecker").dropna(subset="ours")
    live = live[live["ours_by"].str.startswith("novelqa")]
    assert set(live["item"]) == {"Table 7", "Table 3"}
    assert not live["compares"].any()
    assert live["published"].isna().all()


@pytest.mark.parametrize(
    "rows", [{"MiniLM": "E5-Mistral_Llama3-8b"}, {"BM25": "BM25_Llama3"}, {"BM25": "GPT-4"}]
)
def test_a_row_that_the_paper_lacks_is_refused_before_the_first_call(rows, server, tmp_path):
    write_benchmark(tmp_path, "novelqa")
    with pytest.raises(ConfigError, match="in ROWS"):
        run_up_to("22", "SET: live_results()", BENCHMARK=str(tmp_path), ROWS=rows, **NOVELS)
    assert not server.calls


SEVERAL = "Tarn grew in 1841, when the mill was built. It hired in May, and bought a ferry later."


@pytest.mark.costly
def test_where_true_answers_got_no_claim_the_live_notebook_has_no_difference_to_say(
    server, three, monkeypatch, tmp_path
):
    def no_claims(body):
        fields = body.get("format", {}).get("properties", {})
        return '{"claims": []}' if "claims" in fields else default_reply(body)

    write_questions_of_clapnq(tmp_path, SEVERAL)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    server.reply = no_claims
    names = run_up_to("22", None, MODEL=MODEL, LIMIT=1)
    found = " ".join(names["lines"])
    assert "covers unknown percent" in found
    assert "MiniLM minus BM25: no question has both, or too few for a test." in found
    assert "nan" not in found


# --- generator and judge on different servers, to the notebook's end

GROWTH = {
    "en": ("Factual Question", "When did Tarn grow?", "Tarn grew in 1841."),
    "zh": ("事实性问题", "塔恩哪一年成立?", "塔恩成立于1841年。"),
}


NAMED = {
    "Finance": "company_name",
    "Law": "court_name",
    "Medical": "hospital_patient_name",
}  # the field of a document's title


def write_dragonball(folder, domains=("Finance",)):
    """Write two questions on each domain in each language, with one key point or none."""
    documents = []
    asked = []
    for number, (domain, language) in enumerate(product(domains, GROWTH)):
        kind, question, sentence = GROWTH[language]
        place = {"domain": domain, "language": language}
        documents.append(place | {"doc_id": number, NAMED[domain]: "Tarn", "content": sentence})
        truth = {"doc_ids": [number], "content": "1841", "references": [sentence]}
        for points in ([sentence], None):
            query = {"query_type": kind, "content": question, "query_id": len(asked)}
            truth = truth | {"keypoints": points}
            asked.append(place | {"query": query, "ground_truth": truth})
    write_lines(folder / "rageval" / "dragonball_docs.jsonl", documents)
    write_lines(folder / "rageval" / "dragonball_queries.jsonl", asked)


def three_points(body):
    """Take three key points out of a true answer, and say of each that it is covered."""
    fields = body.get("format", {}).get("properties", {})
    if "keypoints" in fields:
        return '{"keypoints": ["It grew.", "In 1841.", "It was Tarn."]}'
    return default_reply(body)


BOTH_LANGUAGES = {"PARTS": ["finance en", "finance zh"], "LIMIT": 2, "RESAMPLES": 20}


@pytest.mark.parametrize(
    ("number", "given", "item", "columns"),
    [
        ("41", BOTH_LANGUAGES, "Table 3", {"Completeness EN", "Completeness CN", "Rouge-L EN"}),
        ("42", {"LIMIT": 2, "RESAMPLES": 20}, "Table 5", {"Completeness EN", "Irrelevance CN"}),
    ],
)
def test_the_generation_half_runs_with_a_judge_on_another_server(
    number, given, item, columns, server, three, monkeypatch, tmp_path
):
    write_dragonball(tmp_path)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    with FakeOllama(reply=three_points) as judge:
        there = {"use": MODEL, "host": judge.url}
        tape = str(tmp_path / "tape.sqlite")
        run_up_to(number, None, MODEL=MODEL, JUDGE=there, CASSETTE=tape, **given)
        asked = [call for call in server.calls if "messages" in call.body]
        prompts = {call.body["messages"][0]["content"] for call in asked}
        assert any("请只根据这些段落回答" in prompt for prompt in prompts)
        assert all("Passages:" in prompt or "段落" in prompt for prompt in prompts)
        assert judge.calls
        assert not any("Passages:" in call.prompt for call in judge.calls)
    live = papers.ledger("rageval", item)
    live = live[live["ours_by"].str.contains(MODEL, na=False) & live["ours"].notna()]
    assert columns <= set(live["column"])


@pytest.mark.costly
def test_claims_are_labelled_by_a_judge_on_another_server(server, three, monkeypatch, tmp_path):
    write_questions_of_clapnq(tmp_path, count=2)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    with FakeOllama() as judge:
        there = {"use": MODEL, "host": judge.url}
        names = run_up_to("22", None, MODEL=MODEL, JUDGE=there, LIMIT=2, K=2, RESAMPLES=20)
        held_against(server.calls, RAGCHECKER, "ragchecker_default")
        held_against(judge.calls, {"temperature": 0}, "steps_check")  # answers of one claim
    assert len(names["results"]["ClapNQ"]) == 2 * 2  # questions, retrievers


@pytest.mark.parametrize(("number", "at_most"), [("12", 11), ("13", 6), ("14", 6)])
def test_grades_come_from_a_judge_on_another_server_as_many_as_the_plan_says(
    number, at_most, server, monkeypatch
):
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    with FakeOllama() as judge:
        there = {"use": MODEL, "host": judge.url}
        given = {"DATA": "minihop", "LIMIT": 2, "RESAMPLES": 20, "MODEL": MODEL, "JUDGE": there}
        run_up_to(number, "= recorded.thesis_rows(", **given)
        held_against(judge.calls, THESIS, "thesis_grade")
        assert 2 * 4 < len(judge.calls) <= 2 * at_most  # one answer a prompt
    assert not any("candidate answers" in call.prompt for call in server.calls)
    calls = pd.read_csv(packaged_data("papers", "live_calls.csv"))
    planned = calls[calls["notebook"].str.startswith(number) & calls["step"].eq("grading")]
    assert number == "14" or planned["calls"].tolist() == [at_most]


def test_the_embedder_of_answer_relevance_is_the_one_that_is_named(server, three):
    server.reply = ragas_reply
    given = {"MODEL": MODEL, "LIMIT": 1, "QUESTIONS": 1, "EMBEDDER": "ollama:all-minilm"}
    with pytest.raises(CallError, match=r"all-minilm at .* not among llama3:8b"):
        run_up_to("30", '"calls")', **given)
    server.models[EMBEDDER] = DIGEST
    names = run_up_to("30", '"calls")', **given)
    relevance = names["texts"].groupby("dimension").get_group("answer_relevance")
    assert relevance["cosines"].notna().all()


# --- the papers' way, several items a prompt: the test of places stands where a notebook grades


def labels_by_number(body):
    """Label items by their place, as small models do; take two claims, or three key points."""
    schema = body.get("format")
    if not schema:
        return SEVERAL
    if "Numbered" in schema.get("$defs", {}):
        label = schema["$defs"]["Numbered"]["properties"]["label"]
        labels = label.get("enum", [True, False])
        by_place = [{"number": n + 1, "label": labels[n % 2]} for n in range(3)]
        return json.dumps({"labels": by_place})
    if "claims" in schema.get("properties", {}):
        return '{"claims": ["Ann built it.", "It is tall."]}'
    return three_points(body)


@pytest.mark.parametrize(
    ("number", "cell", "given", "start"),
    [
        ("22", "SET: live_results()", {"K": 2, "LIMIT": 3}, ""),
        ("30", '"calls")', {}, "verdicts: "),
        ("41", '"calls")', {}, "true: "),
        ("41", "rb.score(rows", {"PARTS": ["finance zh"], "LIMIT": 2}, "finance zh "),
        ("42", "rb.score(answers", {"LIMIT": 2}, "zh: "),
        ("44", "rb.score(answers", {}, ""),
    ],
)
def test_a_judge_that_labels_by_place_is_told_before_the_table(
    number, cell, given, start, server, three, monkeypatch, tmp_path, capsys
):
    if number == "22":
        write_questions_of_clapnq(tmp_path, SEVERAL, count=3)
    if number in ("42", "44") or "PARTS" in given:
        write_dragonball(tmp_path)
    server.reply = labels_by_number
    run_up_to(number, cell, MODEL=MODEL, JOINT=True, RESAMPLES=20, **given)
    said = [line for line in capsys.readouterr().out.splitlines() if " 100%" in line]
    assert any(re.match(rf"{start}p = \S+ \(chi-squared\); place 1: ", line) for line in said)


# --- what a paper's own run sets apart from our default, each changed once, to the notebook's end


def write_hotpotqa(folder, count=3):
    """Write questions of two hops in the shape of the official file."""
    asked = []
    for number in range(count):
        context = [
            [f"Tarn {number}", [f"Tarn {number} was built by Ann {number}.", " It is tall."]],
            [f"Ann {number}", [f"Ann {number} was born in Ely.", " She was an engineer."]],
        ]
        row = {"_id": f"h{number}", "question": f"Where was the builder of Tarn {number} born?"}
        row |= {"answer": "Ely", "type": "bridge", "level": "hard", "context": context}
        asked.append(row | {"supporting_facts": [[title, 0] for title, _ in context]})
    (folder / "hotpotqa").mkdir()
    (folder / "hotpotqa" / OFFICIAL_NAME).write_text(json.dumps(asked))


WHOLE = {"DATA": "hotpotqa_all"}
OF_TWO = "hotpotqa (hotpot_dev_distractor_v1.json, 2 questions), "
BY_JUDGE = f"generator {MODEL}, judge ollama:judge"
OF_BM25 = f"generator {MODEL}, BM25, N = 1000, judge ollama:judge"
SIX = [f"{domain} {language}" for domain in ("finance", "law", "medicine") for language in GROWTH]
VECTORS = "ollama:all-minilm"
PROMPTS = {"PROMPT": "mlq.txt", "DATA": "hotpotqa"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "given", "cell", "words"),
    [
        ("11", WHOLE, ("Table 3.1", "100", "BM25"), OF_TWO),
        ("11", PROMPTS, ("Table 3.1", "100", "MLQ"), f"decomposer {MODEL}"),
        ("12", WHOLE | {"LIMIT": None}, ("Table 3.2", "1000", "grade 1"), OF_TWO.replace("2", "3")),
        ("13", WHOLE, ("Table 3.3", "BM25", "grade 1"), BY_JUDGE),
        ("14", WHOLE, ("Figure 3.1", "grade 1", "share"), OF_BM25),
        ("41", {"PARTS": SIX}, ("Table 3", MODEL, "Completeness CN"), ", ".join(SIX)),
        ("42", {"EMBEDDER": VECTORS}, ("Table 4", VECTORS, "Completeness CN"), "by ollama:judge"),
        ("44", {"QUESTIONS": 2}, ("Table 4", "BM25", "Completeness CN"), "first 2 CN questions"),
        ("44", {"EMBEDDER": VECTORS}, ("Table 4", VECTORS, "Completeness CN"), "by ollama:judge"),
    ],
)
def test_what_a_paper_set_otherwise_is_set_and_fills_its_cell(
    number, given, cell, words, server, three, monkeypatch, tmp_path
):
    write_hotpotqa(tmp_path)
    write_dragonball(tmp_path, NAMED)
    (tmp_path / "mlq.txt").write_text("Mine: {question}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    server.models[EMBEDDER] = DIGEST
    given = {"LIMIT": 2, "RESAMPLES": 20, "MODEL": MODEL} | given
    with FakeOllama({"judge": DIGEST}, reply=three_points) as judge:
        given |= {"JUDGE": {"use": "ollama:judge", "host": judge.url}}
        run_up_to(number, None, **given)
        prompts = {call.prompt for call in server.calls if "messages" in call.body}
        assert bool(judge.calls) == (number != "11")  # it retrieves alone
        assert not prompts & {call.prompt for call in judge.calls}
    assert "PROMPT" not in given or all(prompt.startswith("Mine: ") for prompt in prompts)
    filled = papers.ledger().dropna(subset="ours").set_index(["item", "row", "column"])
    filled = filled.loc[[cell]]
    filled = filled[filled["ours_by"].str.contains(words, regex=False)]
    assert len(filled)
    assert filled["ours"].between(0, 100).all()
    assert filled["compares"].all()
