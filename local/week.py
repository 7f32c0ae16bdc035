"""seed -> a week of a small web shop: dead letters of six services, and what changed before they failed.

The week ends at ``END``; the demo moves it to its own time. All files and their labels come from the scenarios of the
benchmark, so that a test can compare what Afterlog finds with what happened. Only the hours of day and night depend on
where the week is moved to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha1

from bench.scenarios.changes import Changes
from bench.scenarios.deaths import Incident
from bench.scenarios.errors import CONVERTER, Consumer, frame_of
from bench.scenarios.labels import Scenario, Shape, Suspect
from bench.scenarios.plans import Plan
from bench.scenarios.times import DAY, HOUR, LAST_START, MINUTE, times_of
from bench.scenarios.topics import Topic, Trait
from pipelines.commands.generated_letters import CONNECT, EXHAUSTED, SHARE, SPRING, Error, iso

END = datetime.fromtimestamp(LAST_START / 1000, UTC)
"""When the week ends before it is moved."""
SHOP = "shop."
"""How the names of the source topics begin."""

_SEED = 51
_PARTITIONS = 4
_DARK = 0.15  # of a day's traffic that is left in the middle of the night


class Story(Plan):
    """What happens on one topic of the shop."""

    def __init__(self, noun: str, an_hour: float, consumer: Consumer, partitions: int = _PARTITIONS) -> None:
        """Begin a topic with so many messages an hour, and the service that reads it."""
        self.begin(noun, f"{_SEED}/{noun}", Shape(late=0))
        self.package = f"com.webshop.{noun}"
        self.start = LAST_START - 2 * DAY  # pushes of topologies that change nothing are around it
        self.changes = Changes(self.random, self.start)
        self.topic = Topic(f"{SHOP}{noun}", self.random, partitions, "named", has_schemas=False)
        self.topic.rate = an_hour / HOUR
        self.main_consumer = consumer
        self.deployments: list[str] = []

    def deploys(self, application: str, version: str, at: int) -> None:
        """Tell of a deployment, as the last step of a pipeline does."""
        said = {"time": iso(at), "application": application}
        said |= {"what": version, "commit": sha1(version.encode()).hexdigest(), "environment": "production"}
        self.deployments.append(json.dumps(said))

    def landed(self) -> Scenario:
        """Return the story with its files, the deployments among them."""
        scenario = super().landed()
        if not self.deployments:
            return scenario
        first, *later = scenario.files
        changes = {f"changes/{self.name}.jsonl": tuple(self.deployments)}
        return replace(scenario, files=({**first, **changes}, *later))

    def fails(
        self, verdict: str, error: Error, times: Sequence[int], share: float = 1.0, suspect: Suspect | None = None
    ) -> Incident:
        """Let records of the topic die at these times as a verdict says; return the incident."""
        self.main = Incident(self.main_consumer, error, verdict, noise=False, suspect=suspect)
        if verdict == "KEY_LOCAL":
            self.main.keys = self.topic.failing_keys(1, of_tenant=False)
            self.main.trait = Trait(keys=self.main.keys)
        if verdict == "PARTITION_LOCAL":
            self.main.partition = 2
        self.strike(self.main, list(times), share)
        return self.main

    def comes_back(self, before: Incident, times: Sequence[int], share: float) -> None:
        """Let the same error strike again after a pause that ended its incident."""
        self.strike(replace(before, dead=[], predecessor=before), list(times), share)

    def trickle(self, error: Error, an_hour: float, moved: timedelta) -> None:
        """Let a few records die all week, more by day than by night."""
        self.main = Incident(self.main_consumer, error, "UNDETERMINED", noise=True)
        self.strike(self.main, list(_by_day(self, an_hour, moved)))


def week(moved: timedelta = timedelta(0)) -> list[Scenario]:
    """Return what happened, topic by topic; ``moved`` says by how much the files are moved afterwards."""
    return [story.landed() for story in (orders(moved), prices(moved), payments(moved), *_others(moved))]


def orders(moved: timedelta) -> Story:
    """Tell of a deployment last night: since then every order fails, and it goes on."""
    story = Story("orders", 180, Consumer("order-enrichment", SPRING, "orders.enrichment-dlt", 2))
    begin = _before(hours=9.4)
    story.trickle(
        _error("java.net.SocketTimeoutException", "Read timed out after {number} ms", "Stock.ask"), 0.8, moved
    )
    null = _error(
        "java.lang.NullPointerException",
        'Cannot invoke "String.length()" because the return value of "Order.note()" is null',
        "Notes.shorten",
    )
    times = _until(times_of(story.random, begin, 1_700, 20_000), _before(minutes=2))
    story.fails("SYSTEMIC", null, times, 0.96, Suspect("topology", "order-enrichment"))
    story.changes.push("order-enrichment", "shop.orders", "shop.orders-enriched", [begin - 6 * MINUTE])
    story.deploys("order-enrichment", "2.14.0", begin - 7 * MINUTE)
    for reader, written in (
        ("invoicing", "shop.invoices"),
        ("stock-keeper", "shop.stock"),
        ("recommender", "shop.ideas"),
    ):
        story.changes.push(reader, "shop.orders-enriched", written, [])
    return story


def prices(moved: timedelta) -> Story:
    """Tell of a deployment four days ago that was rolled back after an hour."""
    story = Story("prices", 420, Consumer("catalogue", SPRING, "prices.catalogue-dlt", 2))
    begin = _before(hours=90)
    story.trickle(_error("java.lang.IllegalStateException", "Ledger {id} is closed", "Shelf.put"), 1.2, moved)
    amount = _error("java.lang.IllegalArgumentException", "Can't parse amount {quoted}", "Money.parse")
    times = _until(times_of(story.random, begin, 480, 9_000), begin + 70 * MINUTE)
    story.fails("SYSTEMIC", amount, times, 0.96, Suspect("writer_topology", "pricing"))
    story.changes.push("pricing", "shop.costs", "shop.prices", [begin - 4 * MINUTE, begin + 72 * MINUTE])
    story.deploys("pricing", "5.3.0", begin - 5 * MINUTE)
    story.deploys("pricing", "5.2.4", begin + 71 * MINUTE)
    return story


def payments(moved: timedelta) -> Story:
    """Tell of a customer whose payments failed five days ago, and fail again since last night."""
    story = Story("payments", 400, Consumer("payments-ledger", SPRING, "payments.ledger-dlt", 2))
    story.trickle(
        _error("java.util.concurrent.TimeoutException", "Lock {hex} held by {host}", "Books.lock"), 0.9, moved
    )
    shipped = _error("com.webshop.payments.ClosedAccountException", "Account of {email} is closed", "Ledger.book")
    first = story.fails("KEY_LOCAL", shipped, times_of(story.random, _before(hours=122), 60, 7 * MINUTE), 0.1)
    again = times_of(story.random, _before(hours=14), 90, 9 * MINUTE)
    story.comes_back(first, _until(again, _before(minutes=12)), 0.1)
    story.changes.state("payments-api", "shop.payments")
    return story


def _others(moved: timedelta) -> Iterator[Story]:
    """Tell of a bad partition, a poison pill, and what fails all week without being one incident."""
    clicks = Story("clicks", 1_800, Consumer("warehouse-sink", CONNECT, "dlq.warehouse-sink-clicks", 2), 8)
    refused = "org.apache.kafka.connect.errors.DataException"
    clicks.trickle(_error(refused, "Field {quoted} of record {id} has no value"), 1.5, moved)
    begin = _before(hours=51)
    converter = Error("Converting byte[] to Kafka Connect data failed", refused, above=(CONVERTER,))
    clicks.fails("PARTITION_LOCAL", converter, times_of(clicks.random, begin, 520, 16_000), 0.98)
    yield clicks

    invoices = Story("invoices", 90, Consumer("billing", SHARE, "dlq.billing-invoices", 2))
    invoices.fails(
        "POISON_PILL",
        EXHAUSTED,
        _until(times_of(invoices.random, _before(hours=31), 34, 55 * MINUTE), _before(minutes=25)),
    )
    yield invoices

    products = Story("products", 4_000, Consumer("search-indexer", SPRING, "products.search-dlt", 2), 12)
    unknown = _error("com.webshop.products.UnknownCategoryException", "Category {quoted} is not known", "Tree.find")
    products.trickle(unknown, 9, moved)
    yield products


def _error(exception: str, message: str, call: str = "") -> Error:
    """Return an error of a service, thrown by a method of its own."""
    return Error(message, exception, frame=frame_of("com.webshop", call, 20 + len(message)) if call else "")


def _before(**time: float) -> int:
    """Return a time before the end of the week in ms since 1970."""
    return LAST_START - int(timedelta(**time) / timedelta(milliseconds=1))


def _until(times: Sequence[int], last: int) -> list[int]:
    """Return times stretched, or pressed together, so that the last one is ``last``."""
    first = times[0]
    return [first + (at - first) * (last - first) // (times[-1] - first) for at in times]


def _by_day(story: Story, an_hour: float, moved: timedelta) -> Iterator[int]:
    """Yield times of the whole week, ``an_hour`` of them by day and few by night, where the week is moved to."""
    at = LAST_START - 7 * DAY + story.random.randrange(2 * HOUR)
    pause = 5 * MINUTE
    while at < LAST_START - 8 * MINUTE:
        yield at
        hour = (at + moved / timedelta(milliseconds=1)) % DAY / HOUR
        light = max(_DARK, 1 - abs(hour - 14) / 9)
        pause = min(2 * pause, int(HOUR / (an_hour * light)))  # a pause that is much longer than those before ends it
        at += int(pause * story.random.uniform(0.75, 1.25))


def files(scenarios: Sequence[Scenario]) -> Mapping[str, tuple[str, ...]]:
    """Return the lines of all files, by their names below a landing directory."""
    return {name: lines for scenario in scenarios for batch in scenario.files for name, lines in batch.items()}
