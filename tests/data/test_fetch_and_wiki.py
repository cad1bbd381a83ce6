"""The resumable HotpotQA download against a loopback server, and the corpus drawn from a made
Wikipedia dump.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from checks import refused
from notebook_parts import parts

from ragbench.data import fetch, fetch_hotpotqa, hotpotqa
from ragbench.data.hotpotqa import OFFICIAL_NAME
from ragbench.errors import ConfigError, DataError
from ragbench.records import Document

BODY = json.dumps([{"_id": f"q{i}", "question": "x" * 100} for i in range(2000)]).encode()


class Server(BaseHTTPRequestHandler):
    body = BODY
    requests = []  # noqa: RUF012
    status = 200

    def do_GET(self):
        type(self).requests.append(self.path)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    cls = type("Fresh", (Server,), {"requests": []})
    http = ThreadingHTTPServer(("127.0.0.1", 0), cls)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    monkeypatch.setattr(hotpotqa, "OFFICIAL_SHA256", hashlib.sha256(BODY).hexdigest())
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    cls.url = f"http://127.0.0.1:{http.server_address[1]}/{OFFICIAL_NAME}"
    yield cls
    http.shutdown()


def test_published_files_go_where_the_loaders_look_with_their_digests(
    server, monkeypatch, tmp_path
):
    host = server.url.rpartition("/")[0]
    digest = hashlib.sha256(BODY).hexdigest()
    files = {"data/known.jsonl": digest, "data/unknown.json": None}
    made = fetch.SOURCES["clapnq"]._replace(
        repository="me/set", commit="c0ffee", folder="made/x", files=files
    )
    monkeypatch.setitem(fetch.SOURCES, "made", made)
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    with refused(ConfigError, "no RAGBENCH_DATA"):
        fetch.fetch_source("made", host)
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    fetched = fetch.fetch_source("made", host)
    places = [tmp_path / "made" / "x" / name for name in ("known.jsonl", "unknown.json")]
    assert fetched == dict.fromkeys(places, digest)
    assert server.requests == [f"/me/set/c0ffee/{path}" for path in files]
    fetch.fetch_source("made", host)
    assert len(server.requests) == 2  # they are there
    other = made._replace(folder="made/y", files={"known.jsonl": "0" * 64})
    monkeypatch.setitem(fetch.SOURCES, "made", other)
    with refused(DataError, "hash"):
        fetch.fetch_source("made", host)


def test_a_download_is_accepted_by_its_hash_and_made_once(server, tmp_path):
    path = fetch_hotpotqa(server.url)
    assert path.read_bytes() == BODY
    assert [file.name for file in (tmp_path / "hotpotqa").iterdir()] == [OFFICIAL_NAME]
    assert fetch_hotpotqa(server.url) == path
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>Please log in</html>"), (200, BODY + b" "), (404, BODY)]
)
def test_another_file_or_a_refusing_server_is_told_and_nothing_is_kept(
    server, tmp_path, status, body
):
    server.status = status
    server.body = body
    with refused(
        DataError, r"http://127\.0\.0\.1:(.|\n)*(SHA256|hash|404)(.|\n)*RAGBENCH_DATA/hotpotqa"
    ):
        fetch_hotpotqa(server.url)
    assert list((tmp_path / "hotpotqa").iterdir()) == []


GOLD = (
    Document("Ann", "Ann", "Ann was born."),
    Document("Page 7", "Page 7", "Another text on seven."),
)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    (folder / "AA").mkdir()
    pages = [
        {"id": i, "title": f"Page {i}", "text": [[f"Page {i}.", f" Number {i}."]]}
        for i in range(50)
    ]
    pages.append({"id": 50, "title": "Empty", "text": [[]]})
    for name, part in (("wiki_00", pages[:20]), ("wiki_01", pages[20:])):
        (folder / "AA" / f"{name}.bz2").write_bytes(
            bz2.compress("\n".join(map(json.dumps, part)).encode())
        )
    return folder


def test_a_corpus_is_gold_plus_drawn_pages_with_other_titles(dump):
    draw = parts("10").corpus_with_pages
    corpus = draw(GOLD, dump, 12, seed=3)
    assert corpus[:2] == GOLD
    assert len({d.title for d in corpus}) == len(corpus) == 12
    assert corpus[2].text == f"{corpus[2].title}. Number {corpus[2].title.split()[1]}."
    assert draw(GOLD, dump, 51)[-1].title == "Page 49"  # all there are
    with refused(DataError, r"49 usable pages.*\n.*at least 98"):
        draw(GOLD, dump, 100)


def test_draw_is_uniform_over_the_dump(dump):
    draw = parts("10").corpus_with_pages
    counts = Counter(d.title for seed in range(400) for d in draw((), dump, 10, seed))
    # expected 80 each, standard deviation 8
    assert len(counts) == 50
    assert 50 < min(counts.values()) <= max(counts.values()) < 110
