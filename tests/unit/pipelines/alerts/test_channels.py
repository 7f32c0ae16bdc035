"""Channels: what each sends to a real server of its kind, when, and that no secret is in what is written or said."""

from __future__ import annotations

import json
import logging
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.message import EmailMessage
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.alerts import gone_routes, listing, sender
from pipelines.alerts.channels import CHANNELS, Frame, channel_of, keeper, mail
from pipelines.alerts.delivery import Outcome
from pipelines.alerts.news import News, Seen, Snapshot
from pipelines.alerts.outbox import Outbox
from pipelines.settings import Settings, load
from pipelines.settings import alerts as settings_of_alerts
from pipelines.settings.alerts import Route
from pipelines.warehouse.alert_log import outbox_store
from pipelines.warehouse.tables import Warehouse
from tests.testing.examples import at_most
from tests.testing.mail_server import MailServer, mail_server
from tests.testing.receiver import Receiver, receiving

NOW = datetime.fromisoformat("2026-11-24T12:00:00+00:00")
MINUTE = timedelta(minutes=1)
SECRET = "canary-of-a-key"
HOSTILE = "a\r\nBcc: evil@example.com\r\n\r\n<b>[x](http://evil.example)</b> @here \u202e <!channel> & ' \x00 \ud800 😀"
HTTP = tuple(kind for kind in CHANNELS if kind != "email")
HOSTILE_HERE = tuple(kind for kind in CHANNELS if kind not in ("json", "slack", "pagerduty"))  # test_alerts has those
KEEPERS = tuple(kind for kind, channel in CHANNELS.items() if channel.keeps_open)
TOLD = re.compile(r"\[\w+\] (?:got worse: |came back: )?title of (\w)( is resolved)?")


def news(key: str = "A", severity: str = "high", **more: Any) -> News:
    told = {"kind": "opened", "title": f"title of {key}", "text": "text.", "dedup_key": f"f-{key}", "at": "2026-11-24"}
    return News(**{**told, "key": key, "severity": severity, "group": "g", "topic": "t", "verdict": "SYSTEMIC", **more})


def seen(key: str = "A", severity: str = "high", is_open: bool = True, magnitude: int = 2, **more: Any) -> Seen:
    return Seen(news(key, severity, **more), is_open, magnitude=magnitude)


@dataclass
class Live:
    """A warehouse whose incidents and time the test decides, and a real server of a channel."""

    kind: str
    directory: Path
    http: Receiver | None = None
    smtp: MailServer | None = None
    more: dict[str, Any] = field(default_factory=dict)
    now: datetime = NOW
    dies_in: int = 0

    def route(self, **more: Any) -> dict[str, Any]:
        its: dict[str, Any] = {"name": "r", "kind": self.kind, "suppress_minutes": 0}
        if self.smtp is not None:
            its |= {"host": self.smtp.host, "encryption": self.smtp.encryption, "from": "afterlog@example.com"}
            its |= {"to": ["a@example.com", "b@example.com"], "user": "us", "password_env": "OUR_KEY"}
        else:
            its |= {"url_env": "OUR_URL"}
            its |= {CHANNELS[self.kind].key_setting: "OUR_KEY"} if self.kind in KEEPERS else {}
        return {**its, **self.more, **more}

    def settings(self, *routes: dict[str, Any]) -> Settings:
        (self.directory / "warehouse").mkdir(exist_ok=True)
        places = {"warehouse": str(self.directory / "warehouse"), "landing": str(self.directory / "landing")}
        return load(**places, alerts={"route": list(routes) if routes else [self.route()], "timeout_seconds": 5})

    def _clock(self) -> datetime:
        """The time; a process may die whenever it asks for it, as before and after each note."""
        self.dies_in -= 1
        if self.dies_in == 0:
            raise KeyboardInterrupt
        return self.now

    def send(self, *incidents: Seen, after: timedelta = MINUTE, routes: list[dict[str, Any]] | None = None) -> Any:
        self.now += after
        settings = self.settings(*(routes or ()))
        return sender.send(settings, self._clock, look=lambda *_: Snapshot(incidents, []))

    def answer(self, *answers: str) -> None:
        """Tell the server what to do: to take what comes, to be away for now, or to refuse it."""
        as_http = {"taken": "202", "away": "503", "refused": "400"}
        as_smtp = {"taken": "250", "away": "451", "refused": "550"}
        if self.http is not None:
            self.http.behaviours = [as_http[answer] for answer in answers]
        elif self.smtp is not None:
            self.smtp.answers["MAIL"] = [as_smtp[answer] for answer in answers]

    @property
    def got(self) -> list[Any]:
        """What the server got: path, headers and body by HTTP, or mailboxes and mail."""
        return self.smtp.got if self.smtp is not None else self.http.got if self.http is not None else []

    @property
    def box(self) -> Outbox:
        return Outbox.read(outbox_store(Warehouse(self.settings())))

    @property
    def told(self) -> list[tuple[str, set[tuple[str, bool]]]]:
        """The id of each message, and what it tells: keys, and whether it tells their end."""
        rows = []
        for first, second in self.got:
            text = text_of(second)
            its_id = second["Message-ID"] if isinstance(second, EmailMessage) else first["Idempotency-Key"]
            if self.kind == "json":
                text = "\n".join(f"[x] {each['title']}" for each in second["body"]["alerts"])
            rows.append((its_id, {(key, bool(end)) for key, end in TOLD.findall(text)}))
        return rows

    @property
    def events(self) -> list[tuple[str, str]]:
        """What a receiver that keeps alerts open was asked, and for which key."""
        if self.kind == "pagerduty":
            return [(each["body"]["event_action"], each["body"]["dedup_key"]) for _, each in self.got]
        rows = []
        for _, each in self.got:
            path = each["path"].removeprefix("/hook/secret-path").partition("?")[0].split("/")
            rows.append((path[2], unquote(path[1])) if path[1:] else ("trigger", each["body"]["alias"]))
        return [("resolve" if what == "close" else what, key) for what, key in rows]

    @property
    def open_there(self) -> set[str]:
        keys: set[str] = set()
        for action, key in self.events:
            if action != "priority":
                (keys.add if action == "trigger" else keys.discard)(key)
        return keys


@contextmanager
def live(kind: str, directory: Path, **more: Any) -> Iterator[Live]:
    """Yield a world with a server of a channel, and its secrets in the environment."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("OUR_KEY", SECRET)
        world = Live(kind, directory, more=more)
        if kind == "email":
            world.smtp = stack.enter_context(mail_server(directory, more.pop("encryption", "starttls"), ("us", SECRET)))
            patch.setenv("SSL_CERT_FILE", str(world.smtp.authority))
        else:
            world.http = stack.enter_context(receiving(lambda path, body: {"path": path, "body": json.loads(body)}))
            patch.setenv("OUR_URL", world.http.address)
            world.answer("taken")
        yield world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    with ExitStack() as stack:
        yield lambda kind, **more: stack.enter_context(live(kind, tmp_path, **more))


def texts(world: Live) -> str:
    """All that the server got about alerts, as one text."""
    return "\n".join(text_of(second) for _, second in world.got)


def text_of(got: Any) -> str:
    """A mail, or the body of a request, as one text."""
    return f"{got['Subject']}\n{got.get_content()}" if isinstance(got, EmailMessage) else json.dumps(got["body"])


def test_each_channel_has_settings_and_one_name(tmp_path: Path) -> None:
    kinds = get_args(Route.model_fields["kind"].annotation)
    assert set(CHANNELS) == set(settings_of_alerts.CHANNELS) == set(kinds)
    keepers = [channel for channel in CHANNELS.values() if channel.keeps_open]
    assert [keeper(channel.noted_as) for channel in keepers] == keepers


# ----------------------------------------------------------------------------------------------------------- the bodies


def test_teams_gets_an_adaptive_card(world: Callable[..., Live]) -> None:
    its = world("teams", owner="payments team")
    its.send(seen(page="https://a.example/A.html"))
    ((headers, got),) = its.got
    (attachment,) = got["body"]["attachments"]
    assert (got["body"]["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.2")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    title, text, context = [[run["text"] for run in block["inlines"]] for block in card["body"]]
    assert (title, text) == (["[high] title of A"], ["text.", " ", "Open it"])
    assert card["body"][1]["inlines"][2]["selectAction"]["url"] == "https://a.example/A.html"
    assert context == [f"cluster default · payments team · {headers['Idempotency-Key']}"]


def test_opsgenie_opens_raises_and_closes_by_alias(world: Callable[..., Live]) -> None:
    its = world("opsgenie", owner="payments team")
    its.send(seen("A", "low", page="https://a.example/A.html"))
    its.send(seen("A", "critical"))
    its.send(seen("A", "critical", is_open=False))
    assert its.events == [("trigger", "f-A"), ("priority", "f-A"), ("trigger", "f-A"), ("resolve", "f-A")]
    assert {headers["Authorization"] for headers, _ in its.got} == {f"GenieKey {SECRET}"}
    opened, raised, again, closed = (each for _, each in its.got)
    details = {"topic": "t", "group": "g", "verdict": "SYSTEMIC", "owner": "payments team"}
    details |= {"page": "https://a.example/A.html", "alert_id": its.got[0][0]["Idempotency-Key"]}
    assert opened["body"] == {
        "message": "[low] title of A",
        "alias": "f-A",
        "description": "text.",
        "priority": "P5",
        "source": "default",
        "details": details,
    }
    assert (raised["body"], again["body"]["priority"]) == ({"priority": "P1"}, "P1")
    assert closed["path"].endswith("/f-A/close?identifierType=alias")
    assert "priority" not in closed["body"]


def test_opsgenie_tells_nevertheless_if_it_refuses_a_priority_and_nothing_while_it_is_away(
    world: Callable[..., Live],
) -> None:
    its = world("opsgenie")
    its.send(seen("A", "low"))
    its.answer("away")
    its.send(seen("A", "critical"))
    assert [what for what, _ in its.events] == ["trigger", "priority"]
    its.answer("refused", "taken")
    assert its.send(seen("A", "critical"), after=60 * MINUTE).problems == ()
    assert [what for what, _ in its.events][2:] == ["priority", "trigger"]


@pytest.mark.parametrize("encryption", ["starttls", "tls"])
def test_a_mail_is_plain_text_over_an_encrypted_connection(world: Callable[..., Live], encryption: str) -> None:
    its = world("email", owner="payments team", encryption=encryption)
    its.send(seen(page="https://a.example/A.html"))
    ((mailboxes, mail),) = its.got
    assert mailboxes == ["a@example.com", "b@example.com"]
    assert (mail["From"], mail["To"]) == ("afterlog@example.com", "a@example.com, b@example.com")
    assert (mail["Subject"], mail.get_content_type()) == ("[high] title of A", "text/plain")
    its_id = its.box.log[0]["id"]
    assert mail["Message-ID"] == f"<{its_id}@example.com>"
    text = "[high] title of A\ntext.\nhttps://a.example/A.html\n\ncluster default\npayments team\n" + its_id
    assert mail.get_content().replace("\r\n", "\n").strip() == text
    assert its.smtp is not None
    assert its.smtp.in_the_clear == (["EHLO", "STARTTLS"] if encryption == "starttls" else [])


# ------------------------------------------------------------------------------------------ storms, ends, quiet hours


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_storm_is_one_message_that_fits(world: Callable[..., Live], kind: str) -> None:
    its = world(kind)
    its.send(*(seen(f"{number} {'😀' * 200}", text="\x01😀" * 500, page="https://a.example") for number in range(300)))
    assert len(its.got) == 1
    assert "300 alerts at once" in texts(its)
    if kind == "teams":
        assert len(json.dumps(its.got[0][1]["body"])) < 28_000
        (more,) = re.findall(r"and (\d+) more", texts(its))
        assert int(more) == 300 - texts(its).count("title of")
    if kind == "opsgenie":
        fields = its.got[0][1]["body"]
        assert (len(fields["message"]) <= 130, len(fields["description"]) <= 15_000) == (True, True)
    if kind in KEEPERS:
        ((_, key),) = its.events
        its.send()
        assert its.events == [("trigger", key), ("resolve", key)]


@pytest.mark.parametrize("kind", CHANNELS)
def test_an_end_closes_what_is_open_or_is_a_message_that_waits_for_quiet_hours(
    world: Callable[..., Live], kind: str
) -> None:
    its = world(kind, quiet_hours={"begin": "12:05", "end": "18:00"})
    its.send(seen())
    its.send(after=10 * MINUTE)
    assert len(its.got) == (2 if kind in KEEPERS else 1)
    its.send(after=timedelta(hours=7))
    assert len(its.got) == 2
    if kind in KEEPERS:
        assert its.events == [("trigger", "f-A"), ("resolve", "f-A")]
    else:
        assert [told for _, told in its.told] == [{("A", False)}, {("A", True)}]


@pytest.mark.parametrize("kind", CHANNELS)
def test_what_began_and_ended_between_two_looks_calls_nobody(world: Callable[..., Live], kind: str) -> None:
    its = world(kind)
    its.send()
    passed = Seen(news(), is_open=False, last_at=NOW)
    its.send(passed)
    assert len(its.got) == (0 if kind in KEEPERS else 1)


@pytest.mark.parametrize("kind", KEEPERS)
def test_what_a_gone_route_has_open_ends_or_is_named(
    world: Callable[..., Live], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = world(kind)
    its.send(seen())
    other = [{"name": "other", "url": "http://127.0.0.1:9/"}]
    label = CHANNELS[kind].label
    (left,) = its.send(seen(), routes=other).left_open
    assert f"1 alert of it is open at {label}: title of A." in left
    assert f"{label} gets their end" in left
    monkeypatch.delenv("OUR_KEY")
    (left,) = its.send(seen(), routes=other, after=timedelta(hours=30)).left_open
    assert "Resolve them there" in left
    (check,) = listing.checks(its.settings(*other))
    assert label in check.finding
    monkeypatch.setenv("OUR_KEY", SECRET)
    its.send(seen(), routes=other)
    assert its.open_there == set()


def test_a_gone_route_to_a_public_address_of_opsgenie_is_known_again(
    world: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", SECRET)
    for address in (None, *CHANNELS["opsgenie"].addresses):
        its = Route.model_validate({"name": "o", "kind": "opsgenie", "api_key_env": "OUR_KEY", "url": address})
        receiver = gone_routes.receiver(its)
        assert receiver is not None
        again = gone_routes._replacement_of("o", receiver)
        assert again is not None
        where, _ = channel_of(again).address(again)
        assert where == (address or CHANNELS["opsgenie"].addresses[0])


# ------------------------------------------------------------------------------------------- hostile names, and secrets


@pytest.mark.parametrize("kind", HOSTILE_HERE)
def test_hostile_names_are_only_names(world: Callable[..., Live], kind: str) -> None:
    its = world(kind, owner=HOSTILE.encode(errors="ignore").decode())
    for severity in ("low", "high"):  # text of an incident is visible before it comes here; these names are not
        its.send(seen("A", severity, title=f"title of A {HOSTILE}", text=HOSTILE, topic=HOSTILE, group=HOSTILE))
    assert its.got
    for _, got in its.got:
        if kind == "email":
            assert got["Bcc"] is None
            assert (len(got.get_all("Subject")), len(got["Subject"].splitlines())) == (1, 1)
            assert not [line for line in got.get_content().splitlines() if line.startswith("Bcc")]
            assert not any(line != line.strip("\r") or "\u202e" in line for line in got.get_content().splitlines())
        elif kind == "opsgenie":
            assert not [text for text in strings(got["body"]) if "<" in text or ">" in text]
        else:
            assert kind == "teams", "say here how it is seen that the receiver finds no markup"
            blocks = got["body"]["attachments"][0]["content"]["body"]
            assert {run["type"] for block in blocks for run in block["inlines"]} == {"TextRun"}
            assert {block["type"] for block in blocks} == {"RichTextBlock"}  # a TextBlock would read Markdown
    if kind == "email":
        assert {box for boxes, _ in its.got for box in boxes} == {"a@example.com", "b@example.com"}


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("answer", ["taken", "away", "refused"])
def test_secrets_are_nowhere(
    world: Callable[..., Live],
    kind: str,
    answer: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3").setLevel(logging.INFO)  # its DEBUG names paths, and nobody turns that on
    its = world(kind)
    its.answer(answer)
    done = its.send(seen())
    tried = sender.try_out(its.settings(), its.settings().alerts.route[0])
    assert tried.is_taken == (answer == "taken")
    kept = (Path(outbox_store(Warehouse(its.settings())).root) / "outbox.json").read_text()
    shown = [repr(its.settings()), repr(done), repr(tried), kept, listing.listed(its.settings(), "json"), caplog.text]
    shown += [*capfd.readouterr(), repr(Frame(its.settings().alerts.route[0], "c", None, NOW, SECRET))]
    assert not [text for text in shown if SECRET in text or "secret-path" in text or "secret words" in text]
    sent = [json.dumps(got["body"]) for _, got in its.got] if its.http else [texts(its)]
    assert all((SECRET in body) == (kind == "pagerduty") for body in sent if body)


# ---------------------------------------------------------------------------------------------- refusals and failures


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_refusal_is_given_up_after_five_and_an_absence_is_not(world: Callable[..., Live], kind: str) -> None:
    its = world(kind)
    its.answer("away")
    for _ in range(7):
        its.send(seen(), after=60 * MINUTE)
    assert [alert.attempts for alert in its.box.pending] == [7]
    its.answer("refused")
    its.send(seen(), after=60 * MINUTE)
    assert its.box.pending == []
    assert its.box.log[-1]["status"] == "failed"


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({}, Outcome(True, "SMTP 250")),
        ({"RCPT": ["250", "550"]}, Outcome(True, "SMTP 250, 1 of 2 mailboxes refused")),
        ({"RCPT": ["550", "450"]}, Outcome(False, "SMTP 450")),
        ({"RCPT": ["550"]}, Outcome(False, "SMTP 550", is_refused=True)),
        ({"MAIL": ["421"]}, Outcome(False, "SMTP 421")),
        ({"DATA": ["554"]}, Outcome(False, "SMTP 554", is_refused=True)),
        ({"AUTH": ["454"]}, Outcome(False, "SMTP 454")),
        ({"AUTH": ["535"]}, Outcome(False, "SMTP 535", is_refused=True)),
        ({"STARTTLS": ["454"]}, Outcome(False, "SMTP 454")),
        ({"DATA": ["close"]}, Outcome(False, "no connection")),
        ({"QUIT": ["421"]}, Outcome(True, "SMTP 250")),
    ],
)
def test_what_mail_servers_do(world: Callable[..., Live], answers: dict[str, list[str]], outcome: Outcome) -> None:
    its = world("email")
    assert its.smtp is not None
    its.smtp.answers = answers
    assert sender.try_out(its.settings(), its.settings().alerts.route[0]) == outcome


def test_nothing_is_sent_in_the_clear_or_to_who_has_no_certificate(
    world: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = world("email")
    assert its.smtp is not None
    its.smtp.offers_starttls = False  # somebody between took the offer of STARTTLS away
    words = "it offers no STARTTLS, or no way to log in"
    assert its.send(seen()).problems == (f"Route r did not take an alert: {words}.",)
    its.smtp.offers_starttls = True
    monkeypatch.delenv("SSL_CERT_FILE")
    route = its.settings().alerts.route[0]
    assert sender.try_out(its.settings(), route) == Outcome(False, "its certificate is not trusted")
    assert its.got == []
    assert set(its.smtp.in_the_clear) <= {"EHLO", "STARTTLS", "QUIT"}
    with receiving() as server:
        server.shutdown()
        server.server_close()
    gone = route.model_copy(update={"host": f"localhost:{server.server_address[1]}"})
    assert sender.try_out(its.settings(), gone) == Outcome(False, "no connection")


@pytest.mark.filterwarnings(
    "error::pytest.PytestUnhandledThreadExceptionWarning"
)  # a thread that fails would print its traceback
def test_a_mail_server_that_is_silent_or_cannot_be_used_keeps_nobody(
    world: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = world("email")
    settings, route = its.settings(), its.settings().alerts.route[0]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = route.model_copy(update={"host": f"127.0.0.1:{silent.getsockname()[1]}"})
        soon = settings.model_copy(update={"alerts": settings.alerts.model_copy(update={"timeout_seconds": 0.3})})
        late = Outcome(False, "no answer within 0.3 s")
        assert sender.try_out(soon, hanging) == late
        with monkeypatch.context() as patched:  # whether the connection or the clock notices first
            patched.setattr(mail, "within", lambda seconds, send: send())
            assert sender.try_out(soon, hanging) == late
    useless = Outcome(False, "its host, user or password cannot be used", is_refused=True)
    assert sender.try_out(settings, route.model_copy(update={"host": "mail..example.com"})) == useless
    monkeypatch.setenv("OUR_KEY", "canary-é")
    assert sender.try_out(settings, route) == useless


@pytest.mark.parametrize("kind", HTTP)
def test_redirects_are_not_followed(world: Callable[..., Live], kind: str) -> None:
    its = world(kind)
    assert its.http is not None
    its.http.behaviours = [f"307 Location: {its.http.address}"]
    outcome = sender.try_out(its.settings(), its.settings().alerts.route[0])
    assert (outcome, len(its.got)) == (Outcome(False, "HTTP 307", is_refused=True), 1)


def test_a_key_that_is_no_header_is_refused_without_a_request(
    world: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    its = world("opsgenie")
    for key in ("a\r\nb", "é"):
        monkeypatch.setenv("OUR_KEY", key)
        outcome = sender.try_out(its.settings(), its.settings().alerts.route[0])
        assert (outcome, its.got) == (Outcome(False, "its key cannot be used", is_refused=True), [])


MAIL = {"name": "a", "kind": "email", "host": "mail.example.com", "from": "a@example.com", "to": ["b@example.com"]}


@pytest.mark.parametrize(
    ("route", "sentence"),
    [
        ({"name": "a", "kind": "teams"}, "give url or url_env."),
        ({"name": "a", "kind": "opsgenie"}, "a route to Opsgenie needs api_key_env."),
        ({"name": "a", "kind": "email"}, "a route by e-mail needs host, from and to, and no url."),
        (MAIL | {"url_env": "X"}, "a route by e-mail needs host, from and to, and no url."),
        (MAIL | {"user": "u"}, "user and password_env go together."),
        (MAIL | {"to": ["b@example.com\r\nBcc: c@example.com"]}, "alerts.route.0.to.0 cannot be used"),
        (MAIL | {"from": "a@example.com\n"}, "alerts.route.0.from cannot be used"),
        (MAIL | {"to": ["b@example.com, c@example.com"]}, "alerts.route.0.to.0 cannot be used"),
        (MAIL | {"host": "mail.example.com\r\n"}, "alerts.route.0.host cannot be used"),
        (
            {"name": "a", "url": "https://a.example", "api_key_env": "K"},
            'api_key_env is a setting of kind = "opsgenie".',
        ),
        ({"name": "a", "url": "https://a.example", "from": "a@b.c"}, 'from is a setting of kind = "email".'),
    ],
)
def test_settings_that_cannot_be_used(route: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=r"cannot be used") as caught:
        load(alerts={"route": [route]})
    assert sentence in str(caught.value)


# ---------------------------------------------------------------------------------------------------- over all channels


STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("ABC"), st.sampled_from(["critical", "high", "low"])),
        st.sampled_from(["taken", "taken", "away"]),
        st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        st.sampled_from([1, 30]),
    ),
    max_size=6,
)


@pytest.mark.parametrize("kind", CHANNELS)
@given(STEPS, st.sampled_from([2, 100]))
@at_most(25)
def test_each_alert_is_told_once_and_nothing_stays_open(kind: str, steps: Any, storm_from: int) -> None:
    """Incidents open, get worse and end, the server is away, the process dies: in the end all is told and closed."""
    with tempfile.TemporaryDirectory() as directory, live(kind, Path(directory), storm_from=storm_from) as its:
        deaths = 0
        states: dict[str, str] = {}
        for states, answer, dies_in, minutes in steps:
            its.answer(answer)
            its.dies_in = dies_in
            try:
                its.send(*(seen(key, severity) for key, severity in states.items()), after=minutes * MINUTE)
            except KeyboardInterrupt:
                deaths += 1
        its.answer("taken")
        its.dies_in = 0
        for _ in range(6):
            its.send(*(seen(key, severity) for key, severity in states.items()), after=61 * MINUTE)
        assert its.box.pending == []
        if kind in KEEPERS:
            told = {last.dedup_key for last in its.box.sent.get("r", {}).values() if not last.is_over}
            assert its.open_there == told
        assert {key for key, last in its.box.sent.get("r", {}).items() if not last.is_over} == set(states)
        for _ in range(6):
            its.send(after=61 * MINUTE)
        assert its.box.pending == []
        if kind in KEEPERS:
            assert its.open_there == set()
        taken = [line["id"] for line in its.box.log if line["status"] == "sent"]
        assert len(taken) == len(set(taken))
        if not any(answer == "away" for _, answer, _, _ in steps):
            ids = [its_id for its_id, _ in its.told if its_id is not None]
            per_alert = 2 if kind == "opsgenie" else 1  # the priority and the alert
            assert all(ids.count(each) <= per_alert * (1 + deaths) for each in ids)
            assert len(ids) - len(set(ids)) <= (per_alert - 1) * len(ids) + deaths * per_alert
            if kind not in KEEPERS:
                once = dict(its.told).values()
                for key in "ABC":
                    ends = [end for told in once for each, end in sorted(told) if each == key]
                    assert not ends[:1] or not ends[0]
                    assert not any(end and after for end, after in pairwise(ends))
                    assert not ends or ends[-1]
