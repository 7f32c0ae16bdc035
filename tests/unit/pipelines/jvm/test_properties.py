"""What a session is told about its master, and about the store of a warehouse."""

from __future__ import annotations

import pytest

from pipelines.errors import UsageError
from pipelines.jvm import jars
from pipelines.jvm.properties import check_reachable, defaults, for_store, is_cluster
from pipelines.settings import load

AZURE = "abfss://c@a.dfs.core.windows.net/w"


@pytest.mark.parametrize(
    ("warehouse", "conf"),
    [("w", None), ("hdfs://n/w", None), ("s3a://b/w", "s3"), ("GS://b/w", "gs"), (AZURE, "abfs")],
)
def test_a_warehouse_names_the_jars_that_it_needs(warehouse: str, conf: str | None) -> None:
    assert jars.of(warehouse) == conf


def test_only_the_variable_of_a_key_is_among_the_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY", raising=False)
    assert (for_store("w"), for_store(AZURE)) == ({}, {})
    assert for_store("gs://b/w")["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "s3cret")
    told = for_store(AZURE)
    assert told["spark.hadoop.fs.azure.shellkeyprovider.script"].endswith("AZURE_STORAGE_ACCOUNT_KEY")
    assert "s3cret" not in str(told)


MASTERS = {
    **dict.fromkeys(("local", "local[*]", "local[2,3]"), False),
    **dict.fromkeys(("local-cluster[2,1,1024]", "spark://a:7077,b:7077", "k8s://https://h:443", "yarn"), True),
}


@pytest.mark.parametrize("master", MASTERS)
def test_a_master_of_a_cluster_is_told_from_this_machine(master: str) -> None:
    assert is_cluster({"spark.master": master}) is MASTERS[master]


@pytest.mark.parametrize("master", ["", "spark", "mesos://h:1", "Local[2]", "yarn-client", "sc://h:1"])
def test_a_master_that_spark_does_not_know_is_refused(master: str) -> None:
    with pytest.raises(UsageError, match="Spark knows no master"):
        is_cluster({"spark.master": master})


def test_no_property_of_this_machine_reaches_a_cluster() -> None:
    here, there = defaults({}), defaults({"spark.master": "spark://h:7077"})
    alike = here.items() & there.items()
    assert (here["spark.sql.shuffle.partitions"], here["spark.driver.host"]) == ("2", "127.0.0.1")
    assert here.keys() & there.keys() == {name for name, _ in alike}
    of_this_machine = here.keys() - there.keys()
    assert {"spark.sql.shuffle.partitions", "spark.driver.memory", "spark.driver.host"} <= of_this_machine
    assert ("spark.sql.session.timeZone", "UTC") in alike
    assert there.keys() - here.keys() == {"spark.executor.extraJavaOptions"}


@pytest.mark.parametrize(
    ("master", "warehouse", "is_shared", "refused"),
    [
        pytest.param("local[2]", "w", False, None, id="this machine"),
        pytest.param("local-cluster[2,1,1024]", "w", False, None, id="processes of this machine"),
        pytest.param("spark://h:1", "w", False, "warehouse", id="a directory"),
        pytest.param("spark://h:1", "file:///w", False, "warehouse", id="a directory as a URI"),
        pytest.param("yarn", "s3://b/w", False, "landing", id="landed files"),
        pytest.param("yarn", "hdfs://n/w", True, None, id="shared"),
    ],
)
def test_a_cluster_needs_places_that_it_can_reach(
    master: str, warehouse: str, is_shared: bool, refused: str | None
) -> None:
    settings = load(warehouse=warehouse, spark={"spark.master": master}, shared_directories=is_shared)
    if refused is None:
        check_reachable(settings, "warehouse", "landing")
        return
    with pytest.raises(UsageError, match=f"^The {refused} .*set shared_directories = true") as told:
        check_reachable(settings, "warehouse", "landing")
    assert ("object store" in str(told.value)) is (refused == "warehouse")
