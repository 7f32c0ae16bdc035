"""Types of contracts as Delta has them, for all contracts, against Spark's own parser."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from expectations import quality
from expectations.contract import Column, Contract, contract_of
from pipelines.settings import ROOT
from pipelines.warehouse.schemas import delta_type, schema_of

CONTRACTS = [
    *(contract_of(f"{path.parent.name}.{path.stem}") for path in sorted((ROOT / "expectations").glob("*/[a-z]*.py"))),
    *(contract for contract in vars(quality).values() if isinstance(contract, Contract)),
]


def test_a_schema_is_the_one_that_spark_makes_of_a_contract(spark: SparkSession) -> None:
    assert {contract.table.partition(".")[0] for contract in CONTRACTS} == {"bronze", "silver", "gold", "quality"}
    for contract in CONTRACTS:
        wanted = StructType()
        for column in contract.stored:
            wanted.add(column.name, DataType.fromDDL(column.type), metadata={"comment": column.comment})
        assert json.loads(schema_of(contract).to_json()) == json.loads(wanted.json()), contract.table


@pytest.mark.parametrize(
    "kind",
    [
        *sorted({column.type for contract in CONTRACTS for column in contract.columns}),
        "date",
        "ARRAY<Array<INT>>",
        "struct<`a, <b`: string,c:array<struct<`d``e`: timestamp>>>",
    ],
)
def test_a_type_is_the_one_that_spark_reads(spark: SparkSession, kind: str) -> None:
    assert delta_type(kind) == DataType.fromDDL(kind).jsonValue()


@pytest.mark.parametrize(
    "kind", ["map<string, int>", "array<", "array<int, int>", "struct<a>", "array", "", "string(5)"]
)
def test_a_type_that_no_contract_has_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="no type that contracts have"):
        delta_type(kind)
    with pytest.raises(ValueError, match="no type that contracts have"):
        schema_of(Contract("gold.one", "One.", (Column("one", kind, "One."),), ("one",)))
