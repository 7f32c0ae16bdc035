"""Several clusters in one file: what each takes from the shared sections, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from pipelines.commands import settings_checks
from pipelines.errors import UsageError
from pipelines.settings import Settings, kafka_connections, load
from pipelines.settings.clusters import MOST_CLUSTERS, folded

TWO = """
[kafka]
security_protocol = "SASL_SSL"
username = "shared"
password = "shared-secret"
[kafka.options]
"fetch.max.bytes" = "1000"
"sasl.login.class" = "Shared"

[dlq]
source = "kafka"
max_records_per_batch = 7

[[cluster]]
name = "eu"
[cluster.kafka]
bootstrap_servers = "eu:9092"

[[cluster]]
name = "us-1"
landing = "elsewhere"
kafka_connection = "us_kafka"
[cluster.kafka]
bootstrap_servers = "us:9092"
username = "own"
password_file = "/run/us"
[cluster.dlq]
subscribe_pattern = "dead.*"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file with two clusters."""
    written = tmp_path / "afterlog.toml"
    written.write_text(TWO)
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(written))
    return written


def secrets(found: Settings) -> set[str]:
    """All secrets in the settings of a cluster."""
    kafka = found.kafka
    held = [kafka.password, kafka.key_password, *kafka.options.values()]
    return {item.get_secret_value() for item in held if isinstance(item, SecretStr)}


def test_a_cluster_takes_from_the_shared_sections_what_it_does_not_give(file: Path) -> None:
    eu, us = load(landing="landing").of_clusters()
    assert (eu.cluster, us.cluster) == ("eu", "us-1")
    assert (eu.kafka.username, secrets(eu)) == ("shared", {"shared-secret", "1000", "Shared"})
    assert (us.kafka.username, us.kafka.password_file, secrets(us)) == ("own", "/run/us", {"1000"})
    assert (eu.kafka.security_protocol, us.kafka.security_protocol) == ("SASL_SSL", "SASL_SSL")
    assert [item.dlq.subscribe_pattern for item in (eu, us)] == [r"dlq\..*", "dead.*"]
    assert [item.dlq.max_records_per_batch for item in (eu, us)] == [7, 7]
    assert Path(eu.landing).parts[-2:] == ("landing", "eu")
    assert Path(us.landing).name == "elsewhere"
    assert (eu.reports() / "clusters" / "us-1") == us.reports()


def test_what_works_on_all_rows_has_the_shared_settings(file: Path) -> None:
    found = load(engine="spark")
    assert (found.cluster, found.names, found.sole_cluster) == ("eu", ("eu", "us-1"), None)
    assert found.dlq.subscribe_pattern == r"dlq\..*"
    assert [stage_run.engine for stage_run in found.model_copy(update={"engine": "auto"}).of_clusters()] == ["auto"] * 2
    away = found.without_topics({"us-1"})
    assert [cluster.topics_of("dlq") is None for cluster in away.of_clusters()] == [False, True]
    assert [cluster.topics_of("dlq") is None for cluster in found.of_clusters()] == [False, False]


def test_one_of_them_is_chosen_by_its_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (load("us-1"), _by_variable(monkeypatch)):
        assert (found.cluster, found.names, found.sole_cluster) == ("us-1", ("us-1",), "us-1")
        (us,) = found.of_clusters()
        assert us.kafka.bootstrap_servers == "us:9092"
        assert found.every_name == ("eu", "us-1")
        assert found.widened().names == ("eu", "us-1")
    with pytest.raises(UsageError, match=r"There is no cluster 'us_1'; clusters: eu, us-1\."):
        load("us_1")


def _by_variable(monkeypatch: pytest.MonkeyPatch) -> Settings:
    with monkeypatch.context() as changed:
        changed.setenv("AFTERLOG_CLUSTER", "us-1")
        return load()


def test_without_entries_nothing_is_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "afterlog.toml"
    file.write_text('cluster = "a / b"\n')
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(file))
    found = load()
    assert found.of_clusters() == (found,)
    assert (found.names, found.sole_cluster, found.site) == (("a / b",), "a / b", "")
    assert load("a / b") == found
    with pytest.raises(UsageError, match="There is no cluster 'a'"):
        load("a")


def test_variables_of_one_cluster(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_CLUSTER__EU__KAFKA__PASSWORD", "of-eu")
    monkeypatch.setenv("AFTERLOG_CLUSTER__US_1__KAFKA", json.dumps({"bootstrap_servers": "other:1"}))
    monkeypatch.setenv("AFTERLOG_CLUSTER__US_1__DLQ__SOURCE", "files")
    monkeypatch.setenv("AFTERLOG_CLUSTER__ASIA__KAFKA__PASSWORD", "x")
    eu, us = load().of_clusters()
    assert "of-eu" in secrets(eu)
    assert "of-eu" not in secrets(us)
    assert (us.kafka.bootstrap_servers, us.topics_of("dlq")) == ("other:1", None)
    (sentence,) = (said for _, said in settings_checks.unknown_variables())
    assert sentence == ("AFTERLOG_CLUSTER__ASIA__KAFKA__PASSWORD has no effect: no [[cluster]] has a name like ASIA.")
    monkeypatch.setenv("AFTERLOG_CLUSTER", '[{"name": "only"}]')
    monkeypatch.setenv("AFTERLOG_DLQ__SOURCE", "files")
    assert load().names == ("only",)
    monkeypatch.setenv("AFTERLOG_CLUSTER", '"alone"')
    assert (load().names, load().has_entries) == (("alone",), False)


def test_connections_of_airflow(file: Path) -> None:
    assert kafka_connections() == {"AFTERLOG_CLUSTER__US_1__KAFKA": "us_kafka"}
    assert kafka_connections("eu") == {}
    assert kafka_connections("eu", "given") == {"AFTERLOG_CLUSTER__EU__KAFKA": "given"}
    with pytest.raises(UsageError, match="kafka_connection is that of one cluster"):
        kafka_connections(None, "given")


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        pytest.param([], "it must name a cluster", id="none"),
        pytest.param(["eu"], "cluster.0 cannot be used: write it as a section", id="no section"),
        pytest.param([{}], "cluster.0.name cannot be used: it must be there", id="no name"),
        *(
            pytest.param([{"name": name}], "cluster.0.name cannot be used: a name has at most 64", id=repr(name)[:20])
            for name in ("", "..", "a/b", "a b", "-x", "<b>", "ü", "a" * 65, "a\n")
        ),
        pytest.param([{"name": "eu"}, {"name": "eu"}], "have the same name, eu and eu", id="the same name"),
        pytest.param([{"name": "eu-1"}, {"name": "EU_1"}], "too much the same name, eu-1 and EU_1", id="alike"),
        pytest.param(
            [
                {"name": "a", "kafka": {"bootstrap_servers": "x:1"}},
                {"name": "b", "kafka": {"bootstrap_servers": "y:1,x:1"}},
            ],
            "The clusters a and b are the same one, at x:1",
            id="the same brokers",
        ),
        pytest.param([{"name": "a", "landing": "l"}, {"name": "b", "landing": "l"}], "are one directory", id="landing"),
        pytest.param(
            [{"name": "a", "landing": "l"}, {"name": "b", "landing": "l/dlq"}], "within each other", id="landing within"
        ),
        pytest.param([{"name": "a", "landing": "s3://x"}], "write its path, not a URI", id="landing by URI"),
        pytest.param([{"name": "a", "dlq": {"require": []}}], "set it under [dlq]", id="a setting for all"),
        pytest.param(
            [{"name": "a", "dlq": {"foo": 1}}], "cluster.0.dlq.foo cannot be used: there is no such key", id="foo"
        ),
        pytest.param(
            [{"name": "a", "colour": "red"}], "cluster.0.colour cannot be used: there is no such key", id="key"
        ),
        pytest.param(
            [{"name": "a", "dlq": {"source": "kafka"}}], "set bootstrap_servers of cluster a", id="no brokers"
        ),
        pytest.param(
            [{"name": f"c{number}"} for number in range(MOST_CLUSTERS + 1)], "more than 20 clusters", id="too many"
        ),
    ],
)
def test_mistakes_are_one_sentence(entries: list[Any], sentence: str) -> None:
    with pytest.raises(UsageError) as told:
        load(cluster=entries)
    assert sentence in str(told.value)
    assert str(told.value).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('cluster = "x"\n[[cluster]]\nname = "eu"\n', "has cluster = ... and [[cluster]]: remove the first"),
        ('kafka_connection = "k"\n[[cluster]]\nname = "eu"\n', "kafka_connection cannot be used beside [[cluster]]"),
    ],
)
def test_what_cannot_stand_beside_entries(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "afterlog.toml"
    file.write_text(text)
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(file))
    with pytest.raises(UsageError) as told:
        load()
    assert sentence in str(told.value)


def test_stray_directories_are_told(file: Path, tmp_path: Path) -> None:
    for name in ("dlq", "eu/dlq", "eu/dlg"):
        (tmp_path / "landing" / name).mkdir(parents=True, exist_ok=True)
    found = load(landing=str(tmp_path / "landing"))
    said = [sentence for _, sentence in settings_checks.stray_entries(found)]
    assert said == [
        f"Nothing reads 'dlq' in {tmp_path}/landing. Clusters have their landing directories in eu/.",
        f"Nothing reads 'dlg' in {tmp_path}/landing/eu; did you mean dlq/?",
    ]


names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,8}\Z")
keys = st.fixed_dictionaries(
    {},
    optional={
        "username": st.just("user"),
        "password": st.just("password"),
        "key_password": st.just("key"),
        "options": st.dictionaries(
            st.sampled_from(["sasl.jaas.config", "ssl.keystore.password", "ssl.key.password"]), st.just("option")
        ),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(names, min_size=1, max_size=5, unique_by=folded), st.lists(keys, min_size=6, max_size=6))
def test_no_secret_of_a_cluster_goes_to_another(chosen: list[str], given_: list[dict[str, Any]]) -> None:
    def own(number: int) -> dict[str, Any]:
        marked = {
            key: {option: f"{number}:{value}" for option, value in text.items()}
            if key == "options"
            else f"{number}:{text}"
            for key, text in given_[number].items()
        }
        return {"bootstrap_servers": f"host-{number}:1", **marked}

    entries = [{"name": name, "kafka": own(number)} for number, name in enumerate(chosen)]
    found = load(cluster=entries, kafka=own(5)).of_clusters()
    assert [item.cluster for item in found] == chosen
    for number, item in enumerate(found):
        assert {secret.partition(":")[0] for secret in secrets(item)} <= {str(number), "5"}
        login = {"username", "password", "password_file"}
        gave = given_[number]
        has_login = login & gave.keys() or any(name.startswith("sasl.") for name in gave.get("options", {}))
        told = {text.partition(":")[0] for text in (item.kafka.username,) if text}
        told |= {item.kafka.password.get_secret_value().partition(":")[0]} if item.kafka.password else set()
        assert told <= ({str(number)} if has_login else {"5"})
        assert Path(item.landing).is_relative_to(load().landing)
