"""silver.acknowledgements -> silver.acknowledged_topics: each topic of which an acknowledgement ever landed, once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows, run
from tests.testing.deliveries import store

TABLE, ACKNOWLEDGEMENTS = "silver.acknowledged_topics", "silver.acknowledgements"


def test_only_topics_that_are_new_are_added(spark: SparkSession, settings: Settings) -> None:
    store(settings, TABLE, *({"cluster": "default", "topic": topic} for topic in ("orders", "paid")))
    news = (("default", "orders"), ("south", "orders"), ("default", "shipped"), ("default", "shipped"))
    store(settings, ACKNOWLEDGEMENTS, *({"cluster": cluster, "topic": topic} for cluster, topic in news))
    assert run(spark, settings, TABLE, feed="delivery")[TABLE].accepted == 2
    assert sorted((row["cluster"], row["topic"]) for row in rows(spark, settings, TABLE)) == [
        *(("default", topic) for topic in ("orders", "paid", "shipped")),
        ("south", "orders"),
    ]
