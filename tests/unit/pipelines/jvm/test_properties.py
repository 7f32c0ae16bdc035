"""What a session is told about the store of a warehouse."""

from __future__ import annotations

import pytest

from pipelines.jvm import jars
from pipelines.jvm.properties import for_store

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
