"""The site over HTTP: what is answered, to whom, and how it is built again."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import EnvironmentLacking
from pipelines.site import serve

Ask = Callable[..., http.client.HTTPResponse]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reports")
    for path in ("index.html", "incidents/7KQ2-MD4X.html", "assets/site.css", ".made.json", "gx/run.json", "a/.b/c"):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(path)
    (directory.parent / "secret.html").write_text("secret")
    return directory


@pytest.fixture(scope="module")
def ask(site: Path) -> Iterator[Ask]:
    with serve.served(site, port=0) as front:
        place = urlsplit(front)

        def answer(path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10)
            connection.request(method, path, headers=headers)
            return connection.getresponse()

        yield answer


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("/", "text/html; charset=utf-8", "index.html"),
        ("/index.html", "text/html; charset=utf-8", "index.html"),
        ("/incidents/7KQ2-MD4X.html", "text/html; charset=utf-8", "incidents/7KQ2-MD4X.html"),
        ("/assets/site.css?1", "text/css; charset=utf-8", "assets/site.css"),
    ],
)
def test_pages_are_shown(ask: Ask, path: str, kind: str, text: str) -> None:
    answer = ask(path)
    assert (answer.status, answer.getheader("Content-Type"), answer.read().decode()) == (200, kind, text)
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Content-Security-Policy") == "frame-ancestors 'none'"
    assert (ask(path, "HEAD").status, ask(path, **{"If-None-Match": answer.getheader("ETag") or ""}).status) == (
        200,
        304,
    )


@pytest.mark.parametrize(
    "path",
    [
        *("/.made.json", "/%2emade.json", "/gx/run.json", "/gx", "/a/.b/c", "/nothing", "/../secret.html"),
        *("/%2e%2e/secret.html", "/..%2fsecret.html", "/assets/..%5c..%5csecret.html", "//etc/passwd"),
    ],
)
def test_hidden_and_outside_files_are_not_shown(ask: Ask, path: str) -> None:
    answer = ask(path)
    assert (answer.status, b"secret" in answer.read()) == (404, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_reading_is_answered(ask: Ask, method: str) -> None:
    assert ask("/index.html", method).status == 405


def test_a_name_from_elsewhere_is_not_answered(ask: Ask) -> None:
    assert ask("/", Host="rebound.example:8765").status == 400
    assert [ask("/", Host=name).status for name in ("localhost:1", "127.0.0.1")] == [200, 200]


def test_a_taken_port_is_said_in_a_sentence(site: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(EnvironmentLacking, match=rf"cannot be shown at 127\.0\.0\.1:{port} \(.*\): name another"),
            serve.served(site, port=port),
        ):
            pass
    with pytest.raises(EnvironmentLacking, match="name another"), serve.served(site, host="192.0.2.1", port=0):
        pass


def test_the_port_is_free_again(site: Path) -> None:
    with serve.served(site, port=0) as front:
        port = urlsplit(front).port or 0
    with serve.served(site, port=port):
        pass


class Clock:
    """Asks to stop after some waits."""

    def __init__(self, waits: int) -> None:
        self.waits = waits
        self.now = 0.0

    def asked(self) -> bool:
        return self.waits < 0

    def wait(self, seconds: float) -> None:
        self.waits -= 1
        self.now += seconds

    def is_why(self) -> bool:
        return self.asked()


def test_a_failure_is_said_once_and_its_end_too() -> None:
    said: list[str] = []
    outcomes = iter([None, "no space", "no space", None, None])

    def build(is_due: bool) -> None:
        assert not is_due
        if (problem := next(outcomes)) is not None:
            raise EnvironmentLacking(f"There is {problem}.")

    serve.refresh(build, 1, Clock(5), said.append)  # type: ignore[arg-type]
    assert list(outcomes) == []
    assert said == [
        "There is no space. The pages stay as they are; it is tried again.",
        "The pages are built again.",
    ]


def test_pages_are_built_without_news_as_they_tell_ages_but_not_all_the_time() -> None:
    clock = Clock(30)
    due: list[float] = []

    def build(is_due: bool) -> None:
        if is_due:
            due.append(clock.now)
            clock.now += 6

    serve.refresh(build, 10, clock, print, clock=lambda: clock.now)  # type: ignore[arg-type]
    assert due == [60, 186, 312]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "1"], "--host, --port and --every need --serve."),
        (["--host", "::1"], "--host, --port and --every need --serve."),
        (["--serve", "--format", "json"], "--serve shows pages; --format json is for one report."),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: list[str], sentence: str) -> None:
    assert str(CliRunner().invoke(app, ["report", *arguments]).exception) == sentence
