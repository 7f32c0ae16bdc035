"""Publishing the site to a directory and to an object store, which is a real HTTP server here."""

from __future__ import annotations

import functools
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.settings import Settings
from pipelines.settings.runs import Report
from pipelines.site.publish import CLUSTER, MANIFEST, publish

SITE = {
    "index.html": "front",
    "incidents/7KQ2-MD4X.html": "an incident",
    "assets/site.css": "css",
    "data_docs/index.html": "docs",
    "data_docs/validations/a b/20261124T000000Z.html": "a gate",
}


def write(directory: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write(tmp_path / "reports", SITE | {".made.json": "{}", "gx/silver.dlq_records/run.json": "{}"})
    return tmp_path / "reports"


def publishing(settings: Settings, site: Path, place: object) -> Settings:
    return settings.model_copy(update={"report": Report(directory=str(site), publish=str(place))})


def held(directory: Path) -> dict[str, str]:
    files = [named for named in directory.rglob("*") if named.is_file() and named.name not in (MANIFEST, CLUSTER)]
    return {file.relative_to(directory).as_posix(): file.read_text() for file in files}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_directory_gets_what_changed(settings: Settings, site: Path, tmp_path: Path, scheme: str) -> None:
    there = tmp_path / "shown to all"
    asked = publishing(settings, site, f"{scheme}{there}")
    assert publish(asked) == len(SITE)
    assert held(there) == SITE
    assert publish(asked) == 0
    write(site, {"index.html": "another front", "incidents/0000-0000.html": "new"})
    (site / "incidents/7KQ2-MD4X.html").unlink()
    (site / "data_docs/validations/a b/20261124T000000Z.html").unlink()
    assert publish(asked) == 2
    old = SITE.keys() - {"data_docs/validations/a b/20261124T000000Z.html"}
    assert held(there) == {path: SITE[path] for path in old} | {
        "index.html": "another front",
        "incidents/0000-0000.html": "new",
    }
    assert publish(asked) == 0


def test_a_directory_is_not_made_where_nothing_is(settings: Settings, site: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be created: .*nowhere does not exist"):
        publish(publishing(settings, site, tmp_path / "nowhere" / "x"))
    assert not (tmp_path / "nowhere").exists()


def test_nothing_is_published_unless_asked(settings: Settings, site: Path) -> None:
    assert publish(settings.model_copy(update={"report": Report(directory=str(site))})) == 0


@pytest.mark.parametrize("inner", [".", "public", ".."])
def test_the_place_is_apart_from_the_reports(settings: Settings, site: Path, inner: str) -> None:
    with pytest.raises(UsageError, match="name another place"):
        publish(publishing(settings, site, site / inner))


def test_a_place_that_cannot_be_written_is_said_in_a_sentence(settings: Settings, site: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentLacking, match=r"cannot be published to .*/file/x \(.*\): check"):
        publish(publishing(settings, site, tmp_path / "file" / "x"))


def test_a_manifest_that_cannot_be_read_copies_all(settings: Settings, site: Path, tmp_path: Path) -> None:
    asked = publishing(settings, site, tmp_path / "there")
    publish(asked)
    for damaged in ("[1]", "{", "\x00"):
        (tmp_path / "there" / MANIFEST).write_text(damaged)
        assert publish(asked) == len(SITE)


def test_a_place_has_the_pages_of_one_cluster(settings: Settings, site: Path, tmp_path: Path) -> None:
    """Also if its first copy was cut short, and the next one has nothing to send."""
    place = tmp_path / "there"
    (place / "places.html").mkdir(parents=True)  # in the way
    write(site, {"places.html": "all groups"})
    asked = publishing(settings, site, place)
    with pytest.raises(EnvironmentLacking):
        publish(asked)
    other = asked.model_copy(update={"cluster": "second"})
    for _ in range(2):
        before = held(place)
        with pytest.raises(UsageError, match=r"there has the pages of cluster 'default', .* cluster 'second'"):
            publish(other)
        assert held(place) == before
        if (place / "places.html").is_dir():
            (place / "places.html").rmdir()
            publish(asked)
    assert publish(asked) == 0
    (place / CLUSTER).unlink()  # as earlier reports published it
    assert publish(asked) == 0
    assert json.loads((place / CLUSTER).read_text()) == "default"


def test_an_object_store_has_the_pages_of_one_cluster(settings: Settings, site: Path, bucket: Bucket) -> None:
    asked = publishing(settings, site, "s3://reports/afterlog")
    assert publish(asked) == len(SITE)
    bucket.order.clear()
    with pytest.raises(UsageError, match=r"^s3://reports/afterlog has the pages of cluster 'default'"):
        publish(asked.model_copy(update={"cluster": "second"}))
    assert (bucket.order, publish(asked)) == ([], 0)


PAGES = [f"incidents/{number:04d}-0000.html" for number in range(40)]


def version(site: Path, number: int) -> None:
    """Write a version of a site: a front that leads to pages, each large enough to be read in several steps."""
    pages = {path: f"<p>{number}</p>" + "x" * 300_000 + f"<p>{number}</p></html>" for path in PAGES}
    new = {f"incidents/{number:04d}-1111.html": f"<p>{number}</p><p>{number}</p></html>"}
    links = "".join(f'<a href="{path}">' for path in (*PAGES, *new))
    write(site, pages | new | {"index.html": f"<p>{number}</p>{links}<p>{number}</p></html>"})


def test_a_reader_meets_no_missing_or_half_page_while_pages_are_published(
    settings: Settings, site: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    asked = publishing(settings, site, there)
    version(site, 0)
    publish(asked)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    ended = threading.Event()
    read: list[int] = []
    wrong: list[object] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(there)))

    def load(path: str) -> tuple[int, str]:
        """Load a page; return the version that it is of, and its text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/{path}", timeout=30) as answer:
            text = answer.read().decode()
        first, last = re.findall(r"<p>(\d+)</p>", text)
        if first != last or not text.endswith("</html>"):
            wrong.append((path, first, last, len(text)))
        return int(first), text

    def reader() -> None:
        try:
            while not ended.is_set():
                number, front = load("index.html")
                read.append(number)
                wrong.extend((item, number) for item in re.findall('href="([^"]+)"', front) if load(item)[0] < number)
        except (OSError, ValueError) as error:
            wrong.append(error)

    threads = [threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)]
    threads += [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 13):
            version(site, number)
            assert publish(asked) == len(PAGES) + 2
    finally:
        ended.set()
        for thread in threads[1:]:
            thread.join(60)
        server.shutdown()
        server.server_close()
    assert wrong == []
    assert len(set(read)) > 2  # the readers met several versions


class Bucket(ThreadingHTTPServer):
    """What speaks enough of S3's protocol: objects with their types, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, tuple[str | None, bytes]] = {}
        self.order: list[str] = []
        self.refused: set[str] = set()
        self.writing = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        path = unquote(self.path.partition("?")[0])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.writing:
            if path in self.server.refused:
                self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
                return
            self.server.objects[path] = (self.headers.get("Content-Type"), body)
            self.server.order.append(path)
        self.answer(200)

    def do_GET(self) -> None:
        found = self.server.objects.get(unquote(self.path))
        self.answer(*(200, found[1]) if found else (404, b"<Error><Code>NoSuchKey</Code></Error>"))

    def do_POST(self) -> None:
        """Remove several objects."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>([^<]*)</Key>", body)
        for key in keys:
            self.server.objects.pop(f"{self.path.partition('?')[0]}/{key}", None)
        removed = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer(200, f"<DeleteResult>{removed}</DeleteResult>".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    server = Bucket()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "canary-id",
        "AWS_SECRET_ACCESS_KEY": "canary-secret",
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_an_object_store_gets_types_and_the_front_last(
    settings: Settings, site: Path, bucket: Bucket, scheme: str
) -> None:
    asked = publishing(settings, site, f"{scheme}://reports/afterlog")
    assert publish(asked) == len(SITE)
    root = "/reports/afterlog/"
    assert {path.removeprefix(root): body.decode() for path, (_, body) in bucket.objects.items()} == SITE | {
        MANIFEST: bucket.objects[root + MANIFEST][1].decode(),
        CLUSTER: '"default"',
    }
    assert bucket.order[0] == root + CLUSTER
    assert bucket.order[-2:] == [f"{root}index.html", root + MANIFEST]
    assert bucket.objects[f"{root}incidents/7KQ2-MD4X.html"][0] == "text/html; charset=utf-8"
    assert bucket.objects[f"{root}assets/site.css"][0] == "text/css; charset=utf-8"
    bucket.order.clear()
    assert (publish(asked), bucket.order) == (0, [])
    gone = "data_docs/validations/a b/20261124T000000Z.html"
    (site / gone).unlink()
    publish(asked)
    assert root + gone not in bucket.objects
    assert gone not in json.loads(bucket.objects[root + MANIFEST][1])


def test_a_copy_that_was_cut_short_goes_on(settings: Settings, site: Path, bucket: Bucket) -> None:
    asked = publishing(settings, site, "s3://reports/afterlog")
    refused = "/reports/afterlog/incidents/7KQ2-MD4X.html"
    bucket.refused = {refused}
    with pytest.raises(EnvironmentLacking, match=r"cannot be published to s3://reports/afterlog \(") as caught:
        publish(asked)
    assert "canary" not in str(caught.value)
    assert "/reports/afterlog/index.html" not in bucket.objects  # the old front, if there is one, still stands
    bucket.refused = set()
    assert publish(asked) == len(SITE)
    assert refused in bucket.objects


@pytest.mark.parametrize(
    "place", ["ftp://a/b", "s3://key:secret@bucket/x", "s3://bucket/x?versionId=1", "az://box/x#y", "://x"]
)
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=r"write a directory|must not have credentials"):
        Report(publish=place)
