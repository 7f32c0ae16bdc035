"""Topics of a Kafka cluster -> what they hold now, and the records of exactly planned offsets.

Kafka's own Java clients ask and read: those that Spark's connector brings, in the session's JVM, or, where only a
question has to be answered, in a small JVM that starts in a second.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines import jars, java, session
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.settings import Kafka, Settings, Topics, located
from pipelines.sources import listeners
from pipelines.sources.offsets import Log, Reach, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP_PREFIX = "afterlog"
SPLIT_FROM = 20_000  # offsets of a batch from which several tasks read one partition
MOST_NAMES = 5

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers before 2.8 give, who have no topic ids
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # what can be a topic's name, as a landed file's directory need not
_NOT_TOLD = {
    *("TopicAuthorizationException", "ClusterAuthorizationException"),
    *("UnknownTopicOrPartitionException", "InvalidTopicException"),
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SMALL_JAVA = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]

log = logging.getLogger("afterlog")


@dataclass(frozen=True)
class Survey:
    """What a cluster holds of the topics that are wanted, and the ids of those, and of pending ones, by name."""

    logs: tuple[Log, ...]
    present: Mapping[str, str]
    complaint: AfterlogError | None = None
    cluster_id: str = ""


class NoTopics(UsageError):
    """No topic that is wanted is there, or shown to us: one may come yet."""


class Refused(UsageError):
    """Some of the topics that are wanted may not be read; the others are."""


class Changed(Exception):
    """What was read is not the topics that were planned: one was created again meanwhile."""


def properties(kafka: Kafka) -> dict[str, str]:
    """Return the properties of Kafka's clients, secrets and all: they must not be printed.

    Raises UsageError: a file that cannot be read, or a secret that is missing.
    """
    millis = str(round(kafka.timeout_seconds * 1000))
    found = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "default.api.timeout.ms": millis,
        "request.timeout.ms": millis,
    }
    options = {name: value.get_secret_value() for name, value in kafka.options.items()}
    if kafka.security_protocol.startswith("SASL_"):
        if kafka.sasl_mechanism is not None:
            found["sasl.mechanism"] = kafka.sasl_mechanism
        if "sasl.jaas.config" not in options:
            found |= _sasl(kafka, options)
    if kafka.security_protocol.endswith("SSL"):
        found |= _tls(kafka)
    return found | options


def _sasl(kafka: Kafka, options: Mapping[str, str]) -> dict[str, str]:
    if kafka.sasl_mechanism is None:
        if "sasl.mechanism" in options:
            return {}
        raise UsageError(f"security_protocol is {kafka.security_protocol}: set sasl_mechanism under [kafka].")
    password = _password(kafka)
    if kafka.username is None or password is None:
        raise UsageError(
            f"sasl_mechanism {kafka.sasl_mechanism} needs username and password: set them under [kafka], the password "
            "in AFTERLOG_KAFKA__PASSWORD or in a file that password_file names."
        )
    return {"sasl.jaas.config": login(kafka.sasl_mechanism, kafka.username, password)}


def login(mechanism: str, username: str, password: str) -> str:
    """Return the entry of a login configuration (JAAS) that names a user; the password is in it."""
    return f"{_LOGIN_MODULES[mechanism]} required username={_quoted(username)} password={_quoted(password)};"


def _password(kafka: Kafka) -> str | None:
    if kafka.password_file is not None:
        return _text_of(kafka.password_file, "password_file").rstrip("\r\n")
    return kafka.password.get_secret_value() if kafka.password is not None else None


def _quoted(text: str) -> str:
    """Return a value as Java's tokenizer of login configurations reads it, which knows the escapes of C."""
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return f'"{text}"'


def _tls(kafka: Kafka) -> dict[str, str]:
    found: dict[str, str] = {}
    if kafka.ca_file is not None:
        authorities = _text_of(kafka.ca_file, "ca_file")
        if "-----BEGIN CERTIFICATE-----" not in authorities:
            raise UsageError(f"ca_file of [kafka] cannot be used: there is no PEM certificate in {kafka.ca_file}.")
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if kafka.certificate_file is not None and kafka.key_file is not None:
        chain = _text_of(kafka.certificate_file, "certificate_file")
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": _key(kafka)}
    return found


def _key(kafka: Kafka) -> str:
    """Return the private key in PKCS #8, the only form that Kafka reads, without a password."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    password = kafka.key_password.get_secret_value().encode() if kafka.key_password is not None else None
    try:
        key = load_pem_private_key(_text_of(kafka.key_file or "", "key_file").encode(), password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UsageError(
            f"key_file of [kafka] cannot be used: {kafka.key_file} is no private key in PEM, or key_password is wrong."
        ) from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _text_of(path: str, setting: str) -> str:
    try:
        return located(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{setting} of [kafka] cannot be read: {path}: {reason}.") from None


@contextlib.contextmanager
def connected(settings: Settings) -> Iterator[Cluster]:
    """Yield the cluster that the settings name.

    Raises AfterlogError, here or on the first question: what is wrong with the settings or the cluster, in a sentence.
    """
    given = properties(settings.kafka)
    jvm = _jvm()
    java_properties = jvm.java.util.Properties()
    for name, value in given.items():
        java_properties.setProperty(name, value)
    with _told(settings.kafka):
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(java_properties)
    try:
        yield Cluster(jvm, admin, settings.kafka)
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(2))


class Cluster:
    """What a Kafka cluster says of its topics, asked through an admin client."""

    def __init__(self, jvm: Any, admin: Any, kafka: Kafka) -> None:
        """Take an admin client and the JVM that it runs in."""
        self.jvm = jvm
        self.admin = admin
        self.kafka = kafka

    def survey(self, topics: Topics, reach: Reach) -> Survey:
        """Return the logs of the topics that are wanted and may be read.

        Raises AfterlogError: the cluster does not answer, shows no such topic, or is another one than was read before.
        """
        cluster_id = self._id()
        if reach.cluster_id and cluster_id not in ("", reach.cluster_id):
            raise UsageError(
                f"The cluster at {self.kafka.bootstrap_servers} is {cluster_id}, another one than {reach.cluster_id}, "
                "whose topics were read so far: mend bootstrap_servers, or name it by a `cluster` of its own."
            )
        names = self._names()
        matching = {name for name in names if re.fullmatch(topics.pattern, name)}
        pending = {span.topic for span in reach.pending}
        everything = self._described(sorted(matching | (pending & names)))
        described = {name: topic for name, topic in everything.items() if name in matching}
        if not described:
            raise self._nothing_matches(topics)
        refused = sorted(name for name, topic in described.items() if not topic.readable)
        wanted: dict[tuple[str, int], str] = {}
        for name, topic in described.items():
            if topic.topic_id == _NO_ID:
                raise UsageError(f"The brokers give topic {name} no id: topics are read from Kafka 2.8 on.")
            if topic.leaderless:
                log.warning("%s of topic %s has no leader: it waits.", _partitions(topic.leaderless), name)
            if topic.readable and (not topic.leaderless or topic.topic_id in reach.followed):
                wanted |= {(name, at): topic.topic_id for at in topic.partitions if at not in topic.leaderless}
        reached = {(id_, at): topic.reached(at) for id_, topic in reach.followed.items() for at in topic.next}
        starts = self._offsets(wanted, "earliest", "read_committed")
        ends = self._offsets(wanted, "latest", topics.isolation_level)
        ahead = [place for place in wanted if ends[place] < reached.get((wanted[place], place[1]), 0)]
        last = ends
        if ahead and topics.isolation_level == "read_committed":  # what a transaction holds open is there all the same
            last = ends | self._offsets(ahead, "latest", "read_uncommitted")
        logs = (
            Log(
                topic=place[0],
                topic_id=topic_id,
                partition=place[1],
                start=starts[place],
                end=max(starts[place], ends[place]),
                truncated=last[place] < reached.get((topic_id, place[1]), 0),
            )
            for place, topic_id in wanted.items()
        )
        complaint = None
        if refused:
            complaint = Refused(
                f"Afterlog may not read {_named(refused)}: grant it the operation Read on "
                f"{'that topic' if len(refused) == 1 else 'those topics'}, or narrow what is wanted in the settings."
            )
        present = {name: topic.topic_id for name, topic in everything.items()}
        return Survey(tuple(logs), present, complaint, cluster_id or reach.cluster_id)

    def check(self, spans: Iterable[Span]) -> None:
        """Make sure that the topics still are those of the spans; raises Changed."""
        ids = {span.topic: span.topic_id for span in spans}
        described = self._described(ids)
        if any(name not in described or described[name].topic_id != topic_id for name, topic_id in ids.items()):
            raise Changed

    def cleanup_policies(self, topics: Iterable[str], ids: Collection[str] = ()) -> dict[str, str]:
        """Return the cleanup.policy of topics, words in order; without those that are gone, or that it may not tell.

        Raises AfterlogError: the cluster does not answer, or is none of those with the given ids.
        """
        if ids and self._id() not in ids:
            raise UsageError(f"The cluster at {self.kafka.bootstrap_servers} is another one than was read before.")
        resource = self.jvm.org.apache.kafka.common.config.ConfigResource
        of_topics = resource.Type.valueOf("TOPIC")
        asked = self.jvm.java.util.ArrayList()
        for topic in topics:
            if _TOPIC.fullmatch(topic):
                asked.add(resource(of_topics, topic))
        found: dict[str, str] = {}
        if asked.isEmpty():
            return found
        with _told(self.kafka):
            for entry in self.admin.describeConfigs(asked).values().entrySet():
                try:
                    policy = entry.getValue().get().get("cleanup.policy")
                except Exception as error:
                    if _kinds(error) & _NOT_TOLD:
                        continue
                    raise
                if policy is not None and policy.value() is not None:
                    parts = {part.strip() for part in str(policy.value()).split(",")} - {""}
                    found[str(entry.getKey().name())] = ",".join(sorted(parts))
        return found

    def _id(self) -> str:
        """Return what Kafka calls the cluster; empty where its brokers do not say."""
        with _told(self.kafka):
            return str(self.admin.describeCluster().clusterId().get() or "")

    def _names(self) -> set[str]:
        """Return the names of all topics but Kafka's own; the cluster leaves out what we may not see."""
        with _told(self.kafka):
            names = self.admin.listTopics().names().get()
            return set(filter(None, str(self.jvm.java.lang.String.join("\n", names)).split("\n")))

    def _described(self, names: Iterable[str]) -> dict[str, _Topic]:
        """Return what the cluster knows of topics; those that are gone meanwhile are left out."""
        asked = self.jvm.java.util.ArrayList()
        for name in names:
            asked.add(name)
        if asked.isEmpty():
            return {}
        options = self.jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
        read = self.jvm.org.apache.kafka.common.acl.AclOperation.valueOf("READ")
        described = {}
        with _told(self.kafka):
            futures = self.admin.describeTopics(asked, options).topicNameValues()
            for name in futures:
                try:
                    topic = futures[name].get()
                except Exception as error:
                    if _kinds(error) & {"UnknownTopicOrPartitionException", "UnknownTopicIdException"}:
                        continue
                    raise
                infos = list(topic.partitions())
                leaders = {int(info.partition()): info.leader() for info in infos}
                operations = topic.authorizedOperations()
                described[str(name)] = _Topic(
                    topic_id=str(topic.topicId().toString()),
                    partitions=tuple(sorted(leaders)),
                    leaderless=frozenset(at for at, node in leaders.items() if node is None or node.isEmpty()),
                    readable=operations is None or operations.isEmpty() or bool(operations.contains(read)),
                )
        return described

    def _offsets(self, places: Iterable[tuple[str, int]], which: str, isolation: str) -> dict[tuple[str, int], int]:
        """Return the ``earliest`` or ``latest`` offsets; with read_committed the last one is that which is decided."""
        admin = self.jvm.org.apache.kafka.clients.admin
        spec = getattr(admin.OffsetSpec, which)()
        level = self.jvm.org.apache.kafka.common.IsolationLevel.valueOf(isolation.upper())
        asked = self.jvm.java.util.HashMap()
        for topic, partition in places:
            asked.put(self.jvm.org.apache.kafka.common.TopicPartition(topic, partition), spec)
        if asked.isEmpty():
            return {}
        with _told(self.kafka):
            found = self.admin.listOffsets(asked, admin.ListOffsetsOptions(level)).all().get()
            pairs = ((entry.getKey(), entry.getValue()) for entry in found.entrySet())
            return {(str(place.topic()), int(place.partition())): int(info.offset()) for place, info in pairs}

    def _nothing_matches(self, topics: Topics) -> NoTopics:
        """Say that no topic is there, or not shown to us."""
        return NoTopics(
            f"The cluster at {self.kafka.bootstrap_servers} shows no {topics.wanted}: mend the settings, create it, or "
            f"grant Afterlog the operations Describe and Read on {'it' if ' that ' not in topics.wanted else 'them'}."
        )


@dataclass(frozen=True)
class _Topic:
    topic_id: str
    partitions: tuple[int, ...]
    leaderless: frozenset[int]
    readable: bool


def records(spark: SparkSession, settings: Settings, topics: Topics, spans: Sequence[Span]) -> DataFrame:
    """Return the records of spans, each partition at most once; a read of offsets that are gone fails.

    The columns are ``_source``, ``_bronze_id`` and those of bronze.dlq_records that hold the record.
    """
    from pyspark.sql import functions as F

    from pipelines.columns import time_of_millis

    ids = {span.topic: span.topic_id for span in spans}
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for span in spans:
        assigned.setdefault(span.topic, []).append(span.partition)
        starts.setdefault(span.topic, {})[str(span.partition)] = span.start
        ends.setdefault(span.topic, {})[str(span.partition)] = span.end
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in properties(settings.kafka).items()})
        .option("kafka.isolation.level", topics.isolation_level)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("kafka.allow.auto.create.topics", "false")
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("groupIdPrefix", GROUP_PREFIX)
        .option("kafkaConsumer.pollTimeoutMs", str(round(4000 * settings.kafka.timeout_seconds)))
    )
    if sum(span.length for span in spans) >= SPLIT_FROM:
        reader = reader.option("minPartitions", str(spark.sparkContext.defaultParallelism))
    topic_id = F.from_json(F.lit(json.dumps(ids)), "map<string, string>")[F.col("topic")]
    millis = F.unix_millis("timestamp")
    place = (F.lit(settings.cluster), topic_id, F.col("partition"), F.col("offset"), millis)
    return reader.load().select(
        F.concat(F.lit("kafka:"), "topic", F.lit("/"), topic_id, F.lit("/"), F.col("partition")).alias("_source"),
        F.sha2(F.concat_ws("\n", *(part.cast("string") for part in place)).cast("binary"), 256).alias("_bronze_id"),
        "topic",
        topic_id.alias("topic_id"),
        "partition",
        "offset",
        time_of_millis(millis).alias("timestamp"),
        F.when(F.col("timestampType") >= 0, F.col("timestampType")).alias("timestamp_type"),
        "key",
        "value",
        F.coalesce("headers", F.array()).alias("headers"),
    )


def lines(records: DataFrame) -> DataFrame:
    """Return records whose values are lines as lines: ``_source``, ``_bronze_id``, ``line``, ``damage``."""
    from pyspark.sql import functions as F

    nothing = F.when(F.col("value").isNull(), "the record has no value")
    return records.select("_source", "_bronze_id", F.col("value").alias("line"), nothing.alias("damage"))


def is_kafkas(error: Exception) -> bool:
    """Tell whether Kafka, or Spark's reading of it, is what failed."""
    text = str(error)
    of_the_machine = "OutOfMemoryError" in text or "No space left on device" in text
    return not of_the_machine and ("org.apache.kafka." in text or "org.apache.spark.sql.kafka010" in text)


def told(error: Exception, kafka: Kafka) -> AfterlogError:
    """Return what went wrong with Kafka as a sentence; nothing of the error's own text is in it but names of topics."""
    kinds, text = _kinds(error), _text(error)
    servers = kafka.bootstrap_servers
    if "TopicAuthorizationException" in kinds:
        names = re.search(r"Not authorized to access topics: \[([\w., -]+)\]", text)
        topics = _named(sorted(names[1].split(", "))) if names else "the topics"
        return UsageError(f"Afterlog may not see {topics}: grant it the operations Describe and Read there.")
    if "GroupAuthorizationException" in kinds:
        return UsageError(
            f"Afterlog may not read as a group: grant it the operation Read on groups that begin with {GROUP_PREFIX}."
        )
    if "ClusterAuthorizationException" in kinds:
        return UsageError(f"Afterlog may not describe the cluster at {servers}: grant it the operation Describe.")
    if kinds & {"UnsupportedSaslMechanismException", "IllegalSaslStateException"}:
        return _probed(kafka) or UsageError(
            f"The brokers at {servers} do not speak {kafka.security_protocol} with {kafka.sasl_mechanism}: mend "
            "security_protocol or sasl_mechanism under [kafka]."
        )
    if "SaslAuthenticationException" in kinds:
        return UsageError(
            f"The brokers at {servers} refuse the user of [kafka] ({kafka.sasl_mechanism or 'SASL'}): "
            "mend username and password."
        )
    if "SslAuthenticationException" in kinds:
        return _probed(kafka) or UsageError(f"TLS with the brokers at {servers} fails: {_tls_reason(text)}.")
    if "UnsupportedVersionException" in kinds:
        return EnvironmentLacking(f"The brokers at {servers} are too old for Afterlog: it reads from Kafka 2.8 on.")
    if "No resolvable bootstrap urls" in text or "Couldn't resolve server" in text:
        return EnvironmentLacking(f"No host of bootstrap_servers is known here ({servers}): mend it under [kafka].")
    if kinds & {"ConfigException", "InvalidConfigurationException"} or "Failed to create new KafkaAdminClient" in text:
        named = re.search(r"for configuration ([a-z.]+)", text)
        which = f" ({named[1]})" if named else ""
        return UsageError(f"Kafka's client cannot use the settings of [kafka]{which}: mend them.")
    return _probed(kafka) or EnvironmentLacking(
        f"The brokers at {servers} answer, but not within {kafka.timeout_seconds:g} s: perhaps the addresses that they "
        "advertise cannot be reached from here, or timeout_seconds of [kafka] is too short."
    )


def _probed(kafka: Kafka) -> AfterlogError | None:
    """Look at what listens at the bootstrap servers; return what is wrong with it, None where nothing is."""
    wait = min(5.0, kafka.timeout_seconds)
    away = []
    for host, port in kafka.addresses:
        address = f"{host}:{port}"
        try:
            found = listeners.listener(host, port, wait)
        except OSError as error:
            away.append(f"{address}: {_reason(error)}")
            continue
        if not found.is_kafka:
            return EnvironmentLacking(f"What listens at {address} is no Kafka broker: mend bootstrap_servers.")
        if found.protocol and found.protocol != kafka.security_protocol:
            return UsageError(
                f"{address} speaks {found.protocol}, but security_protocol of [kafka] is {kafka.security_protocol}: "
                f"set it to {found.protocol}."
            )
        if found.tls != kafka.security_protocol.endswith("SSL"):
            spoken = "speaks TLS" if found.tls else "does not speak TLS"
            return UsageError(f"{address} {spoken}, but security_protocol of [kafka] is {kafka.security_protocol}.")
        if found.mechanisms and kafka.sasl_mechanism and kafka.sasl_mechanism not in found.mechanisms:
            return UsageError(
                f"{address} does not offer {kafka.sasl_mechanism}: set sasl_mechanism of [kafka] to one of "
                f"{', '.join(found.mechanisms)}."
            )
        return None
    return EnvironmentLacking(
        f"No broker can be reached ({'; '.join(away)}): start it, or mend bootstrap_servers of [kafka]."
    )


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or type(error).__name__).lower()


def _tls_reason(text: str) -> str:
    if "PKIX" in text or "unable to find valid certification path" in text:
        return "no authority that is known here signed their certificate; name it in ca_file of [kafka]"
    if re.search(r"No subject alternative|No name matching", text):
        return "their certificate is for another host name; use that one in bootstrap_servers"
    if re.search(r"bad_certificate|certificate_required|certificate_unknown|handshake_failure", text):
        return "they want a certificate that they know; set certificate_file and key_file of [kafka]"
    return "the two sides do not agree; look at the certificates and at security_protocol"


def _kinds(error: BaseException) -> set[str]:
    """Return the names of Kafka's exceptions among an error's causes."""
    return set(re.findall(r"org\.apache\.kafka\.(?:[a-z]+\.)+(\w+Exception)\b", _text(error)))


def _text(error: BaseException) -> str:
    """Return what Java says of an error and its causes; it may quote anything, and is not to be shown."""
    throwable = getattr(error, "java_exception", None)
    if throwable is None:
        return str(error)
    said: list[str] = []
    while throwable is not None and len(said) < 12:
        said.append(str(throwable.toString()))
        throwable = throwable.getCause()
    return "\n".join(said)


@contextlib.contextmanager
def _told(kafka: Kafka) -> Iterator[None]:
    """Raise what Java raises as a sentence."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JError as error:
        raise told(error, kafka) from None


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    shown = ", ".join(names[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
    return f"topic{'' if len(names) == 1 else 's'} {shown}"


def _partitions(numbers: Iterable[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)))
    return f"Partition{'s' if ',' in shown else ''} {shown}"


_small: list[tuple[Any, subprocess.Popen[bytes]]] = []


def _jvm() -> Any:
    """Return a JVM with Kafka's clients: that of this process's sessions, where it runs, else a small one."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    running = getattr(context, "_gateway", None)
    if running is not None:
        return running.jvm
    if _small and _small[0][1].poll() is not None:
        hang_up()
    if not _small:
        _small.append(_started())
        atexit.register(hang_up)
    return _small[0][0].jvm


def hang_up() -> None:
    """End the small JVM, if one runs."""
    while _small:
        gateway, process = _small.pop()
        gateway.shutdown()
        if process.stdin:
            process.stdin.close()  # it lives as long as that is open
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()


def cut_off() -> None:
    """Kill the small JVM, if one runs, whatever it is at: who waits for its answer gets an error."""
    for _, process in list(_small):
        process.kill()


def _started() -> tuple[Any, subprocess.Popen[bytes]]:
    """Start a JVM that ends when this process does."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    directory = Path(jars.class_path("spark")).parent
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    of_spark = Path(spec.submodule_search_locations[0]) / "jars"
    # Jackson reads the tokens of OAuth.
    also = [f"{name}-[0-9]*.jar" for name in ("slf4j-api", "jackson-core", "jackson-databind", "jackson-annotations")]
    needed = [*directory.glob("kafka-clients-*.jar"), *(jar for name in also for jar in of_spark.glob(name))]
    (py4j,) = of_spark.glob("py4j-*.jar")
    session.quieten_py4j()  # in detail it tells all that passes, secrets too
    try:
        port, token, process = launch_gateway(
            jarpath=os.fspath(py4j),
            classpath=os.pathsep.join(map(os.fspath, needed)),
            javaopts=_SMALL_JAVA,
            java_path=os.fspath(java.java_home() / "bin" / "java"),
            die_on_exit=True,
            daemonize_redirect=True,
            enable_auth=True,
            return_proc=True,
        )
    except (OSError, ValueError):
        raise EnvironmentLacking("No JVM can be started to ask Kafka: look for free memory.") from None
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), process
