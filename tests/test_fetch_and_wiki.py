"""The resumable HotpotQA download against a loopback server, and the corpus drawn from a made Wikipedia dump."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ragbench.data import build_wiki_corpus, fetch_hotpotqa, hotpotqa
from ragbench.data.hotpotqa import OFFICIAL_NAME
from ragbench.errors import ConfigError, DataError
from ragbench.records import Document

BODY = json.dumps([{"_id": f"q{i}", "question": "x" * 100} for i in range(2000)]).encode()


class Server(BaseHTTPRequestHandler):
    body, requests, status = BODY, [], 200

    def do_GET(self):
        type(self).requests.append(self.path)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    cls = type("Fresh", (Server,), {"requests": []})
    http = ThreadingHTTPServer(("127.0.0.1", 0), cls)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    monkeypatch.setattr(hotpotqa, "OFFICIAL_SHA256", hashlib.sha256(BODY).hexdigest())
    cls.url = f"http://127.0.0.1:{http.server_address[1]}/{OFFICIAL_NAME}"
    yield cls
    http.shutdown()


def test_a_download_is_accepted_by_its_hash_and_made_once(server, tmp_path):
    path = fetch_hotpotqa(tmp_path, server.url)
    assert path.read_bytes() == BODY
    assert [file.name for file in tmp_path.iterdir()] == [OFFICIAL_NAME]
    assert fetch_hotpotqa(tmp_path, server.url) == path
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>Please log in</html>"), (200, BODY + b" "), (404, BODY)])
def test_another_file_or_a_refusing_server_is_told_and_nothing_is_kept(server, tmp_path, status, body):
    server.status, server.body = status, body
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:(.|\n)*(SHA256|hash|404)(.|\n)*RAGBENCH_DATA/hotpotqa"):
        fetch_hotpotqa(tmp_path, server.url)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- Wikipedia dump

PAGES = [
    {"id": str(i), "title": f"Page {i}", "text": [[f"Page {i} starts.", f" It has number {i}."]]} for i in range(50)
]
GOLD = (Document("Ann", "Ann", "Ann was born."), Document("Page 7", "Page 7", "Another text on seven."))


def lines(pages) -> bytes:
    return "\n".join(json.dumps(p) for p in pages).encode()


def dump_as(kind: str, tmp_path):
    parts = {f"AA/wiki_0{i}.bz2": bz2.compress(lines(part)) for i, part in enumerate((PAGES[:20], PAGES[20:]))}
    path = tmp_path / {"jsonl": "dump.jsonl", "gz": "dump.jsonl.gz", "folder": "dump", "tar": "dump.tar.bz2"}[kind]
    if kind == "folder":
        (path / "AA").mkdir(parents=True)
        for name, part in parts.items():
            (path / name).write_bytes(part)
    elif kind == "tar":
        with tarfile.open(path, "w:bz2") as archive:
            for name, part in parts.items():
                member = tarfile.TarInfo(name)
                member.size = len(part)
                archive.addfile(member, io.BytesIO(part))
    else:
        path.write_bytes(gzip.compress(lines(PAGES)) if kind == "gz" else lines(PAGES))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "gz", "folder", "tar"])
def test_corpus_is_gold_plus_drawn_pages_and_the_same_for_every_form(tmp_path, kind):
    corpus = build_wiki_corpus(dump_as(kind, tmp_path), n=12, seed=3, gold=GOLD)
    assert corpus[:2] == GOLD
    titles = [d.title for d in corpus]
    assert len(titles) == len(set(titles)) == 12
    assert corpus[2].text == f"{corpus[2].title} starts. It has number {corpus[2].title.split()[1]}."
    (tmp_path / "again").mkdir()
    assert corpus == build_wiki_corpus(dump_as("jsonl", tmp_path / "again"), n=12, seed=3, gold=GOLD)


def test_draw_is_uniform_over_the_dump(tmp_path):
    path = dump_as("jsonl", tmp_path)
    counts = dict.fromkeys(range(50), 0)
    for seed in range(400):
        for document in build_wiki_corpus(path, n=10, seed=seed):
            counts[int(document.title.split()[1])] += 1
    # expected 80 each, standard deviation 8
    assert min(counts.values()) > 50
    assert max(counts.values()) < 110


def test_too_small_a_dump_and_too_small_an_n_are_named(tmp_path):
    path = dump_as("jsonl", tmp_path)
    with pytest.raises(DataError, match=r"49 usable pages.*\n.*at least 98"):
        build_wiki_corpus(path, n=100, gold=GOLD)
    with pytest.raises(ConfigError, match="n=1"):
        build_wiki_corpus(path, n=1, gold=GOLD)
    assert build_wiki_corpus(path, n=2, gold=GOLD) == GOLD


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b'{"id": 1, "title": "A", "text": "x"}\n{"id": 2}', r"d\.jsonl, line 2: no page"),
        ("d.jsonl", b"[1]", "line 1: no page"),
        ("d.bz2", b"not compressed", "damaged"),
        ("d.gz", gzip.compress(lines(PAGES))[:-9], "damaged"),
    ],
)
def test_damaged_dumps_name_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        build_wiki_corpus(tmp_path / name, n=1)


def test_a_missing_dump_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no dump"):
        build_wiki_corpus(tmp_path / "none", n=1)
    with pytest.raises(DataError, match=r"holds no \.bz2"):
        build_wiki_corpus(tmp_path, n=1)
