"""One attempt at a scenario: what happens on a topic, drawn so that its labels are honest."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence

from bench.scenarios.captured import acknowledgements, line_of
from bench.scenarios.changes import Changes
from bench.scenarios.deaths import DeadLetter, Incident, dying
from bench.scenarios.errors import FLOODS, READ_BY_TOPOLOGY, WITHOUT_GROUP, Consumer, errors_of
from bench.scenarios.labels import HEADLESS, Scenario, Shape, Suspect, TrueIncident, Undecidable
from bench.scenarios.rivals import noise, overlap, regress
from bench.scenarios.times import FIRST_START, HOUR, LAST_START, MINUTE, SECOND, is_one_episode, moment, paced, times_of
from bench.scenarios.topics import KEY_STYLES, Source, Topic, Trait
from pipelines.commands.generated_letters import CONNECT, DRAFT, PROFILES, SHARE, SPRING, STREAMS, WITH_HEADERS, Error


class Plan:
    """One attempt at a scenario: its topic, consumers, incidents, changes and files."""

    def __init__(self, name: str, seed: str, verdict: str, suspect: str | None, shape: Shape) -> None:
        """Draw the topic and its first consumer."""
        self.begin(name, seed, shape, suspect)
        r, self.verdict = self.random, verdict
        self.node = r.randrange(1, 30)
        noun = r.choice(("orders", "payments", "shipments", "invoices", "clicks", "stock", "prices", "claims"))
        profile = self._profile()
        self.package = r.choice(("com.acme", "io.payflow", "de.waren", "nl.kern")) + f".{noun}"
        with_traits = suspect in ("header", "schema_id", "key_prefix")
        needs_keys = verdict in ("KEY_LOCAL", "PRODUCER_LOCAL") or with_traits
        self.copied = profile in WITH_HEADERS or needs_keys or r.random() < 0.6
        self.start = r.randrange(FIRST_START, LAST_START)
        self.changes = Changes(r, self.start)
        partitions = r.choice(shape.partitions)
        if suspect == "key_prefix":
            key_style: str | None = "tenant"
        elif verdict == "KEY_LOCAL":
            key_style = r.choice(("number", "uuid", "named", "binary"))
        else:
            key_style = r.choice(KEY_STYLES)
            if verdict in ("SYSTEMIC", "FLOOD", "POISON_PILL") and not with_traits and r.random() < 0.15:
                key_style = None
        has_schemas = suspect == "schema_id" or r.random() < 0.3
        self.topic = Topic(f"{noun}.{name}", r, partitions, key_style, has_schemas)
        if r.random() < shape.in_transactions:
            self.topic.step = r.choice((1, 2, 5, 20))
        self.main_consumer = self._consumer(profile, self.copied, "a")
        self.other_consumer: Consumer | None = None

    def begin(self, name: str, seed: str, shape: Shape, suspect: str | None = None) -> None:
        """Begin with nothing that happened."""
        self.name, self.suspect_kind, self.shape = name, suspect, shape
        self.tells_all = random.Random(f"{seed}/tells").random() < shape.tells_all
        self.random = random.Random(seed)
        self.incidents: list[Incident] = []
        self.headless: list[str] = []

    def _profile(self) -> str:
        r = self.random
        if self.verdict == "FLOOD":
            return DRAFT
        if self.suspect_kind == "header":
            return r.choice(WITH_HEADERS)
        if self.suspect_kind == "topology":
            return r.choice(READ_BY_TOPOLOGY)
        if self.suspect_kind == "new_group":
            return r.choice((SHARE, DRAFT, SPRING))
        return r.choices(PROFILES, (4, 2, 2, 2, 3))[0]

    def _consumer(self, profile: str, copied: bool, letter: str) -> Consumer:
        r, noun = self.random, self.topic.name.partition(".")[0]
        role = {SHARE: "workers", DRAFT: "payers", STREAMS: "enrichment", CONNECT: "sink", SPRING: "service"}[profile]
        errors = errors_of(profile, f"{self.package}.{role}", r)
        if profile == DRAFT:
            errors += FLOODS  # taken only by name
        return Consumer(
            name=f"{noun}-{role}-{letter}.{self.name}",
            profile=profile,
            dlq_topic=f"dlq.{noun}-{letter}.{self.name}",
            dlq_partitions=r.choice((1, 2, 3, self.topic.partitions)),
            copied=copied or profile in WITH_HEADERS,
            timestamp_type=int(r.random() < 0.2),
            limit=r.randrange(2, 10),
            errors=errors,
            has_header_of_cause=r.random() < 0.3,
        )

    def other(self) -> Consumer:
        """Return the second consumer; at most one of the two leaves out its group.

        A consumer without a group would be taken for the application whose topology changed.
        """
        if self.other_consumer is None:
            alone = self.main_consumer.profile in WITHOUT_GROUP or self.suspect_kind == "topology"
            profiles = (SHARE, DRAFT, SPRING) if alone else PROFILES
            copied = self.random.random() < 0.7
            if self.suspect_kind == "new_group":  # what is usual on the topic shows in the other group alone
                profiles = WITH_HEADERS if self.main_consumer.profile in WITH_HEADERS else profiles
                copied = copied or self.main_consumer.copied
            self.other_consumer = self._consumer(self.random.choice(profiles), copied, "b")
        return self.other_consumer

    def error(self, consumer: Consumer) -> Error | None:
        """Take an unused error of a consumer, None if it has none left; a flood's are taken for floods only."""
        for error in consumer.errors:
            if error not in FLOODS:
                consumer.errors.remove(error)
                return error
        return None

    def scenario(self) -> Scenario:
        """Return the scenario, or raise Undecidable."""
        r = self.random
        count, gap, share = self._size()
        main_error = r.choice(FLOODS) if self.verdict == "FLOOD" else self.error(self.main_consumer)
        assert main_error
        self.main = main = Incident(self.main_consumer, main_error, self.verdict, noise=False)
        main.suspect = self._suspect(main)
        times = times_of(r, self.start, count, gap)
        if self.shape.paces and self.verdict == "POISON_PILL" and r.random() < self.shape.paces:
            times = paced(r, self.start)
        has_regression = r.random() < self.shape.regression
        noise(self, times[-1])
        if r.random() < self.shape.overlap:
            overlap(self, main, times)
        self.strike(main, times, share)
        if has_regression:
            regress(self, main, count, gap, share)
        self._applications(main)
        if self.suspect_kind == "new_group":  # the first dead letter of a group is no suspect of itself
            of_group = [incident for incident in self.incidents if incident.consumer is main.consumer]
            min(of_group, key=lambda incident: incident.times[0]).suspect = None
        return self.landed()

    def _size(self) -> tuple[int, float, float]:
        """Draw how many records die, the mean gap in ms and the share of the log that dies; set the log's rate."""
        r, verdict, partitions = self.random, self.verdict, self.topic.partitions

        def log_uniform(least: float, most: float) -> float:
            return math.exp(r.uniform(math.log(least), math.log(max(least, most))))

        if verdict == "POISON_PILL":
            count = round(log_uniform(20, 200))
        elif verdict == "UNDETERMINED":
            count = r.randrange(max(36, 3 * partitions), max(37, 3 * partitions) + 40)
        else:
            count = round(log_uniform(max(50, 10 * partitions), self.shape.most_records))
        fastest, slowest = self.shape.gap
        slowest = max(fastest, min(slowest, 30 * HOUR / count))
        if self.suspect_kind in ("header", "schema_id", "key_prefix"):
            slowest = min(slowest, 10 * SECOND)  # leaves room for other dead letters that lack the value
        gap = log_uniform(min(fastest, slowest), slowest)
        of_log = {
            "POISON_PILL": 1.0,
            "KEY_LOCAL": log_uniform(0.005, 0.4),
            "PARTITION_LOCAL": r.choice((1.0, r.uniform(0.95, 1), r.uniform(0.25, 1) if self.copied else 0.97)),
            "PRODUCER_LOCAL": log_uniform(0.03, 0.35),
            "SYSTEMIC": r.choice((1.0, r.uniform(0.92, 1), r.uniform(0.65, 1))),
            "FLOOD": r.uniform(0.4, 1),
            "UNDETERMINED": log_uniform(0.0005, 0.012),
        }
        share = of_log[verdict]
        has_markers = self.topic.step in (1, 2) and not self.tells_all  # a third or half of the offsets
        if verdict == "SYSTEMIC" and (has_markers or self.suspect_kind in ("header", "schema_id")):
            share = max(share, 0.95)
        self.topic.rate = 1 / (gap * share)
        if verdict == "POISON_PILL":
            self.topic.rate = log_uniform(0.1, 200) / 1000
        elif verdict == "KEY_LOCAL":
            self.topic.rate *= partitions / 2
        elif verdict == "PARTITION_LOCAL":
            self.topic.rate *= partitions
        return count, gap, share

    def strike(self, incident: Incident, times: list[int], share: float = 0.0) -> None:
        """Let records die at these times as the verdict says, and keep the incident."""
        if not is_one_episode(times):
            raise Undecidable
        sources = dying(self.topic, incident, times, share)
        incident.dead = list(zip(times, sources, strict=True))
        self.incidents.append(incident)

    def _suspect(self, main: Incident) -> Suspect | None:
        """Return the first suspect of the main incident, and set what its records share."""
        r, topic, kind = self.random, self.topic, self.suspect_kind
        main.partition = 0 if r.random() < 0.3 else r.randrange(topic.partitions)
        if main.verdict == "KEY_LOCAL":
            main.keys = topic.failing_keys(
                r.randrange(2, 5) if kind == "key_prefix" else r.choice((1, 1, 2, 3)), kind == "key_prefix"
            )
            main.trait = Trait(keys=main.keys)
        if kind == "key_prefix":
            return Suspect(kind, f"{topic.failing_tenant}:")
        if kind == "client":
            topic.client_header = False  # only acknowledgements tell the client
            main.trait = Trait(client=topic.clients[1])
            return Suspect(kind, main.trait.client)
        if kind == "header":
            main.trait = Trait(header=self.shared_header())
            assert main.trait.header
            return Suspect(kind, "=".join(main.trait.header))
        if kind == "schema_id":
            main.trait = Trait(schema_id=max(topic.schemas) + r.randrange(1, 30))
            return Suspect(kind, str(main.trait.schema_id))
        if kind in ("topology", "new_group"):
            return Suspect(kind, main.consumer.name)
        if kind == "writer_topology":
            return Suspect(kind, self._application("writer"))
        if kind == "broker_restart":
            return Suspect(kind, str(self.node))
        if kind == "missing_headers":
            return Suspect(kind, main.consumer.dlq_topic)
        if kind == "new_client":
            return Suspect(kind, f"{topic.name}-writer-5")
        return Suspect(kind, topic.clients[0]) if kind else None

    def shared_header(self) -> tuple[str, str]:
        """Return a header with a value that no other record has; each call returns another header."""
        dimension = self.random.choice([*self.topic.unused])
        return dimension, self.topic.unused.pop(dimension)

    def _application(self, role: str) -> str:
        return f"{self.topic.name.partition('.')[0]}-{role}.{self.name}"

    def _applications(self, main: Incident) -> None:
        """Push topologies, state producers, start brokers: the suspect's change, and others that explain nothing.

        What explains nothing: a first push days before, the same description again, a push that the broker refuses, a
        change of an application that does not touch the topic, a change of a producer of another topic, a broker that
        started days before, headers that are missing again and again.
        """
        r, topic, kind = self.random, self.topic, self.suspect_kind
        starts = [
            incident.times[0] for incident in self.incidents if incident.suspect and incident.suspect == main.suspect
        ]
        changes = [self.start - r.randrange(2 * MINUTE, 40 * MINUTE)]
        regressions = [
            incident for incident in self.incidents if incident.predecessor and incident.suspect and not incident.noise
        ]
        changes += [incident.times[0] - r.randrange(2 * MINUTE, 40 * MINUTE) for incident in regressions]
        assert all(changes[0] < start for start in starts)
        landed = r.random() < 0.6
        reader = main.consumer.name
        if kind == "topology" or (landed and main.consumer.profile in READ_BY_TOPOLOGY and kind != "new_group"):
            own = changes if kind == "topology" else []
            self.changes.push(reader, topic.name, f"out.{self.name}", own)
        if kind == "writer_topology" or landed:
            own = changes if kind == "writer_topology" else []
            self.changes.push(self._application("writer"), f"raw.{self.name}", topic.name, own)
        if landed:
            elsewhere = self.start - r.randrange(MINUTE, 30 * MINUTE)
            self.changes.push(
                self._application("unrelated"), f"other-in.{self.name}", f"other-out.{self.name}", [elsewhere]
            )
        if kind == "broker_restart":
            rolling = ((3, self.node + 2), (1, self.node + 1)) if r.random() < 0.5 else ()
            for before, node in rolling:
                self.changes.start_broker(changes[0] - before * r.randrange(MINUTE, 4 * MINUTE), node)
            self.changes.start_broker(changes[0], self.node)
        elif r.random() < 0.2:
            self.changes.start_broker(self.start - r.randrange(30 * HOUR, 90 * HOUR), self.node)
        if kind == "missing_headers":
            for _ in range(r.randrange(1, 6)):
                self._lose_headers(main.consumer, r.randrange(changes[0], self.start))
            self._lose_headers(main.consumer, changes[0])
        elif r.random() < 0.15:
            for number in range(6):
                self._lose_headers(main.consumer, self.start - number * 11 * HOUR - r.randrange(HOUR))
        if kind == "new_client":
            self.changes.state(f"{topic.name}-writer-5", topic.name, first=changes[0])
        if kind in ("new_client", "producer") or r.random() < 0.4:
            for number, client in enumerate(topic.clients):
                changed = changes[0] if kind == "producer" and number == 0 else None
                self.changes.state(client, topic.name, changed)
            self.changes.state(f"other-client.{self.name}", f"other-in.{self.name}", changes[0])

    def _lose_headers(self, consumer: Consumer, at: int) -> None:
        """Write a dead letter without the header of its offset, to a partition of its own."""
        error = Error("", disposition="CLIENT_REJECTED", exception="java.lang.IllegalStateException")
        source = Source(0, self.random.randrange(10**6), None, b"", (), self.topic.clients[0], at)
        letter = DeadLetter(Incident(consumer, error, "POISON_PILL", noise=True), at, source)
        record = json.loads(line_of(letter, self.topic, self.package))
        record |= {"partition": consumer.dlq_partitions, "offset": len(self.headless)}
        record["headers"] = [header for header in record["headers"] if not header["key"].endswith("offset")]
        self.headless.append(json.dumps(record, separators=(",", ":")))

    def landed(self) -> Scenario:
        """Return the scenario: offsets in the DLQ given in order of time, lines in files, some late or twice."""
        r = self.random
        dead = [DeadLetter(incident, at, source) for incident in self.incidents for at, source in incident.dead]
        dead.sort(key=lambda letter: letter.at)
        ends: dict[tuple[str, int], int] = {}
        for letter in dead:
            consumer = letter.incident.consumer
            letter.partition = letter.source.partition % consumer.dlq_partitions
            dlq_partition = (consumer.dlq_topic, letter.partition)
            letter.offset = ends.get(dlq_partition, r.choice((0, 0, r.randrange(10**5))))
            ends[dlq_partition] = letter.offset + 1
            letter.line = line_of(letter, self.topic, self.package)
        late = self._late(dead)
        on_time = [letter.line for letter in dead if letter not in late]
        copies = r.sample(on_time, min(len(on_time), r.randrange(1, 12))) if r.random() < 0.5 else []
        first: dict[str, tuple[str, ...]] = {}
        second: dict[str, tuple[str, ...]] = {}
        pieces = r.randrange(2, 6)
        size = -(-len(on_time) // pieces)
        for piece in range(pieces):
            if lines := on_time[piece * size : (piece + 1) * size]:
                first[f"dlq/{self.name}-{piece}.jsonl"] = tuple(lines)
        if copies:
            (second if late and r.random() < 0.5 else first)[f"dlq/{self.name}-again.jsonl"] = tuple(copies)
        if late:
            second[f"dlq/{self.name}-late.jsonl"] = tuple(letter.line for letter in dead if letter in late)
        logs_late = bool(late) and r.random() < 0.3
        if self.changes.requests:
            name = f"streams-requests/{self.name}-kafka-request.log"
            (second if logs_late else first)[name] = tuple(line for _, line in sorted(self.changes.requests))
        if self.changes.producers:
            first[f"producers/{self.name}.jsonl"] = tuple(line for _, line in sorted(self.changes.producers))
        if self.changes.starts:
            first[f"broker-logs/{self.name}-server.log"] = tuple(line for _, line in sorted(self.changes.starts))
        if self.headless:
            first[f"dlq/{self.name}{HEADLESS}"] = tuple(self.headless)
        if self.tells_all or self.suspect_kind == "client" or (len(dead) < 400 and r.random() < 0.3):
            (second if logs_late else first)[f"acknowledgements/{self.name}.jsonl"] = tuple(
                acknowledgements(self.topic, self.main, self.tells_all)
            )
        files = (first, second) if second else (first,)
        return Scenario(self.name, self._truth(dead), len(copies), files)

    def _late(self, dead: Sequence[DeadLetter]) -> set[DeadLetter]:
        """Choose lines of the main incident that land in a second batch: its begin, middle or end, or some of all."""
        r = self.random
        main = [letter for letter in dead if letter.incident is self.main]
        if r.random() > self.shape.late or len(main) < 10:
            return set()
        share = max(2, len(main) // r.randrange(5, 12))
        middle = r.randrange(1, len(main) - share)
        chosen = (main[:share], main[-share:], main[middle : middle + share], r.sample(main, share))
        return set(r.choice(chosen))

    def _truth(self, dead: Sequence[DeadLetter]) -> tuple[TrueIncident, ...]:
        places: dict[Incident, list[DeadLetter]] = {incident: [] for incident in self.incidents}
        for letter in dead:
            places[letter.incident].append(letter)
        truth = []
        for incident, letters in places.items():
            consumer = incident.consumer
            truth.append(
                TrueIncident(
                    consumer_group=consumer.group,
                    original_topic=self.topic.name,
                    verdict=incident.verdict,
                    rejection=incident.error.is_rejection,
                    first_at=moment(letters[0].at),
                    last_at=moment(letters[-1].at),
                    records=len(letters),
                    source_records=len({(letter.source.partition, letter.source.offset) for letter in letters}),
                    first_suspect=incident.suspect,
                    predecessor=self.incidents.index(incident.predecessor) if incident.predecessor else None,
                    noise=incident.noise,
                    profile=consumer.profile,
                    error=str(incident.error),
                    places=frozenset((consumer.dlq_topic, letter.partition, letter.offset) for letter in letters),
                )
            )
        return tuple(truth)
