"""Lines that are no JSON objects say what they are."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_text_of_kafkas_tools_is_told_what_to_land_instead(spark: SparkSession) -> None:
    dump = "the line is text of kafka-dump-log: land the log segment"
    configs = "the line is text of kafka-configs --describe: `afterlog collect` asks for settings and lands them"
    expected = {
        "Dumping /data/t-0/00000000000000000000.log\r": dump,
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0": dump,
        "| offset: 0 CreateTime: 1795228875344 keySize: 1": dump,
        "Dynamic configs for topic t are:": configs,
        "All configs for broker 1 are:": configs,
        "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}": configs,
        "offset: none": "the line is not a JSON object",
        "[1]": "the line is not a JSON object",
        '{"a": "Dumping /x"': "the line is not valid JSON",
    }
    lines = spark.createDataFrame([(line,) for line in expected], "line string")
    found = lines.select("line", json_lines.error(F.col("line").cast("binary")).alias("error")).collect()
    assert {row["line"]: row["error"] for row in found} == expected


@pytest.mark.parametrize(("type_", "bits"), [("int", 32), ("bigint", 64)])
def test_numbers_as_clients_write_them(spark: SparkSession, type_: str, bits: int) -> None:
    def number(text: str) -> int | None:
        """Return the number of a text of ASCII digits, as the module's rule says it; raise ValueError if it is none."""
        told = text.strip(" ").lower()
        if told in ("", "null"):
            return None
        if not (told.removeprefix("-").isascii() and told.removeprefix("-").isdecimal()):
            raise ValueError(text)
        value = -1 if told == "-1001" else int(told)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    ends = [str(sign * (1 << power) + by) for sign in (1, -1) for power in (31, 63) for by in (-1, 0, 1)]
    digits = ["0", "7", "-1", "-0", "007", "-1001", "+5", "1e3", "1.0", "1.", "0x1", "5L", "1_0", "\u0663", "-", *ends]
    around = [
        f"{before}{text}{after}" for text in digits for before, after in itertools.product(("", " ", "\t"), repeat=2)
    ]
    texts = [*around, "", " ", "null", "NULL", "none", "\u00a07"]
    lines = [json.dumps({"n": text}) for text in texts] + [json.dumps({"n": 12}), json.dumps({"n": None}), "{}"]
    bronze = spark.createDataFrame([(line, None) for line in lines], "line string, error string")
    read = json_lines.objects(
        bronze.withColumn("line", F.col("line").cast("binary")),
        f"struct<n: {type_}>",
        numbers_as_clients_write_them=True,
    )
    found = [
        (bytes(row["line"]).decode(), row["n"], row["line_error"]) for row in read.select("*", "_object.n").collect()
    ]
    misread = "a field of the object is not of its type"
    for (line, value, error), text in zip(found, [*texts, "12", "", ""], strict=True):
        try:
            assert (value, error) == (number(text), None), line
        except ValueError:
            assert (value, error) == (None, misread), line
