"""``python -m bench.warm WHAT LANDING OUT``: do one thing in a warm session and print its seconds as JSON.

``afterlog`` runs the feed ``dlq`` into the warehouse OUT. ``by-hand`` does the same jobs without contracts. ``decode``
writes the decoded rows of all lines as Parquet, for peers that only judge rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from bench import peers
from bench.harness import Bench
from pipelines.jvm.session import spark_session
from pipelines.settings import load

WARM_UP_RECORDS = 20_000


def main() -> None:
    """Warm the session up, do what the arguments say, print the seconds."""
    parser = argparse.ArgumentParser(prog="warm", description=__doc__)
    parser.add_argument("what", choices=("afterlog", "by-hand", "decode"))
    parser.add_argument("landing", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=int, default=WARM_UP_RECORDS, help="of the warm-up, at most 20000")
    parser.add_argument("--master", default="local[2]", help="default: local[2]")
    parser.add_argument("--memory", default="2g", help="of the driver; default: 2g")
    parser.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", help="of Spark, over these two"
    )
    given = parser.parse_args()
    spark_properties = {"spark.master": given.master, "spark.driver.memory": given.memory}
    spark_properties |= dict(word.split("=", 1) for word in given.property)
    landing, warehouse = str(given.landing), str(given.out)
    settings = load(landing=landing, warehouse=warehouse, shared_directories=True, spark=spark_properties)
    with tempfile.TemporaryDirectory(prefix="afterlog-bench-") as scratch, spark_session(settings) as spark:
        bench = Bench(spark, Path(scratch), min(1.0, given.records / WARM_UP_RECORDS))
        if given.what == "decode":
            peers.decode(spark, settings, given.out)
            seconds = 0.0
        else:
            bench.warm_up()
            began = time.perf_counter()
            if given.what == "afterlog":
                bench.run(settings)
            else:
                peers.landing_to_gold(spark, settings, given.out)
            seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
