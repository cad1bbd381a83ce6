"""JupyterLab in headless Chromium: one server for a test run, a fresh kernel and page for every
notebook a test opens.

A test takes ``open_notebook`` and gets a `Book` back:

    def test_something(open_notebook):
        book = open_notebook(["from ragbench.widgets import X", "X(...)"], theme="dark")
        book.output(1).get_by_role("button", name="Next").click()
        assert not book.errors
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ragbench.paths import cache_dir

HERE = Path(__file__).parent
TOKEN = "browser-test"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
# What stops Chromium from looking for its maker's servers, and lets it run as root.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items):
    """Mark everything here: needs Chromium, slow, and best on one worker so that one JupyterLab
    starts.
    """
    for item in items:
        if HERE in item.path.parents:
            for mark in (pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")):
                item.add_marker(mark)


@dataclass
class Lab:
    """A running JupyterLab: its address, its folder of notebooks and its folder of settings."""

    url: str
    folder: Path
    settings: Path

    def set_theme(self, theme):
        """Choose the theme of the next page that is loaded."""
        (self.settings / "themes.jupyterlab-settings").write_text(
            json.dumps({"theme": THEMES[theme]})
        )

    def request(self, path, method="GET"):
        """Ask the server's own API."""
        request = urllib.request.Request(
            f"{self.url}{path}", method=method, headers={"Authorization": f"token {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.read()


@dataclass
class Book:
    """An open notebook: Playwright's page, and what the browser's console complained about."""

    page: object
    errors: list[str] = field(default_factory=list)

    def output(self, cell):
        """The output area of a code cell, counted from 0."""
        return self.page.locator(".jp-CodeCell").nth(cell).locator(".jp-Cell-outputArea").first

    def run(self, source):
        """Run Python in the notebook's kernel beside the cells, and return what it printed."""
        return self.page.evaluate(
            """async (code) => {
                const panel = window.jupyterapp.shell.currentWidget;
                const future = panel.sessionContext.session.kernel.requestExecute({code, store_history: false});
                let text = "";
                future.onIOPub = (message) => {
                    if (message.header.msg_type === "stream") text += message.content.text;
                    if (message.header.msg_type === "error") text += message.content.traceback.join("\\n");
                };
                await future.done;
                return text;
            }""",
            source,
        )

    def screenshot(self, cell, path):
        """Write the picture of one cell's output."""
        path.parent.mkdir(parents=True, exist_ok=True)
        size = self.page.viewport_size
        self.page.set_viewport_size({**size, "height": 1600})  # or a long one has the toolbar on it
        self.output(cell).screenshot(path=path)
        self.page.set_viewport_size(size)


@pytest.fixture(scope="session")
def chromium():
    """Path of the system's Chromium; the tests are skipped where it or Playwright is missing."""
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (make setup)")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    return path


@pytest.fixture(scope="session")
def lab(chromium, tmp_path_factory):
    """JupyterLab on an empty folder, a free port and settings of its own, with this run's Python as
    its kernel.
    """
    base = tmp_path_factory.mktemp("lab")
    folder = base / "notebooks"
    user = base / "settings"
    settings = user / "@jupyterlab" / "apputils-extension"
    for path in (folder, settings):
        path.mkdir(parents=True)
    # The question whether to fetch news would cover the page.
    news = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(news))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(user),
        "JUPYTERLAB_WORKSPACES_DIR": str(base / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(base / "config"),
        "JUPYTER_RUNTIME_DIR": str(base / "runtime"),
        "IPYTHONDIR": str(base / "ipython"),
        "RAGBENCH_CACHE": str(cache_dir()),
        "RAGBENCH_RESULTS": str(base / "results"),
        "RAGBENCH_FIGURES": str(base / "figures"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        f"--ServerApp.root_dir={folder}",
        "--ContentsManager.pre_save_hook=ragbench.notebooks.before_saving",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.expose_app_in_browser=True",
        # as `ragbench lab` has it
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    log = base / "lab.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, env=environment, stdout=out, stderr=subprocess.STDOUT, cwd=folder
        )
    running = Lab(f"http://127.0.0.1:{port}", folder, settings)
    try:
        _wait_until_ready(running, server, log)
        yield running
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(lab, server, log, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            lab.request("/api/status")
            return
        except OSError:
            time.sleep(0.25)
    pytest.fail(
        f"JupyterLab did not start within {seconds:.0f} "
        f"s:\n{log.read_text(errors='replace')[-3000:]}"
    )


# Of module scope: while Playwright's synchronous API is open, an event loop runs in this thread,
# and a test that calls asyncio.run() on the same worker would fail.
@pytest.fixture(scope="module")
def browser(chromium):
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_notebook(lab, browser):
    """Function ``open_notebook(cells, theme="light", width=1400, height=1000) -> Book``.

    It writes a notebook, opens it, runs all cells and waits until they have run; a cell that raises
    fails the test.
    """
    import nbformat

    contexts = []

    def open_(cells, theme="light", width=1400, height=1000):
        name = f"{time.monotonic_ns()}.ipynb"
        book = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells]
        )
        book.metadata["kernelspec"] = {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        }
        nbformat.write(book, lab.folder / name)
        lab.set_theme(theme)
        context = browser.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        opened = Book(page)
        page.on("console", lambda m: opened.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: opened.errors.append(str(error)))
        page.goto(f"{lab.url}/doc/tree/{name}?token={TOKEN}&reset")
        page.locator(".jp-NotebookPanel .jp-CodeCell").nth(len(cells) - 1).wait_for()
        page.evaluate(
            """async () => {
                const panel = window.jupyterapp.shell.currentWidget;
                await panel.sessionContext.ready;
                await panel.sessionContext.session.kernel.info;
                await window.jupyterapp.commands.execute("notebook:run-all-cells");
            }"""
        )
        raised = page.locator(
            '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"] pre',
            has_text="Traceback",
        )
        if raised.count():
            pytest.fail("a cell raised:\n" + "\n".join(raised.all_inner_texts()))
        return opened

    yield open_
    for context in contexts:
        context.close()
    for session in json.loads(lab.request("/api/sessions")):
        lab.request(f"/api/sessions/{session['id']}", "DELETE")


@pytest.fixture
def shots(tmp_path):
    """Folder for screenshots: RAGBENCH_SCREENSHOTS where it is set (``figures``, to make the
    committed ones anew).
    """
    return Path(os.environ.get("RAGBENCH_SCREENSHOTS") or tmp_path).resolve()
