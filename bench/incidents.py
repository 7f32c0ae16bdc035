"""``python -m bench.incidents``: how often incidents, verdicts and first suspects are right, on labelled scenarios.

Lands scenarios of ``bench.scenarios`` in a warehouse per seed and shape, late lines in a second batch, runs all feeds
and compares ``gold.dlq_incidents`` with the truth. Prints shares and confusion matrix; ``--write`` puts both into
``docs/incidents.md``. Exit code: 0 all targets are met, 1 one is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import timed_run
from bench.scenarios import scenarios
from bench.scenarios.labels import SHAPES, Scenario, Suspect, TrueIncident
from pipelines.catalog import stages
from pipelines.incidents.verdict import REJECTION, UNDETERMINED, VERDICTS
from pipelines.jvm.session import spark_session
from pipelines.settings import ROOT, load
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGETS = {"incidents": 0.95, "verdicts": 0.95, "suspects": 0.90}
SEED, COUNT = 11, 110  # seeds 1 and 7 were used to tune the verdicts
Drawn = tuple[int, str, int]
"""Scenarios: their seed, shape and number."""
ALL: tuple[Drawn, ...] = (
    (SEED, "usual", COUNT),
    (23, "narrow", 52),
    (42, "wide", 52),
    (97, "crowded", 52),
    (5, "transactions", 52),
    (71, "paces", 52),
)
DOCUMENT = ROOT / "docs" / "incidents.md"
NAMED = ("original_topic", "consumer_group", "first_at", "last_at", "record_count")
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"


@dataclass
class Score:
    """How many of the true incidents were found as such, with which verdicts and suspects."""

    incidents: Counter[bool] = field(default_factory=Counter)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    suspects: Counter[bool] = field(default_factory=Counter)
    misses: list[str] = field(default_factory=list)

    @property
    def shares(self) -> dict[str, float]:
        """The share of right answers by name."""
        right = sum(count for (true, given), count in self.verdicts.items() if true == given)
        return {
            "incidents": self.incidents[True] / max(self.incidents.total(), 1),
            "verdicts": right / max(self.verdicts.total(), 1),
            "suspects": self.suspects[True] / max(self.suspects.total(), 1),
        }

    @property
    def matrix(self) -> str:
        """The confusion matrix as a table of Markdown: a row per true verdict, a column per verdict given."""
        lines = [f"| true | {' | '.join(VERDICTS)} |", f"|---|{'---|' * len(VERDICTS)}"]
        lines += [
            f"| {true} | {' | '.join(str(self.verdicts[true, given] or '') for given in VERDICTS)} |"
            for true in VERDICTS
        ]
        return "\n".join(lines)


def expected(truth: TrueIncident) -> str:
    """Return the verdict that is right: what is undetermined and was refused by the application is a rejection."""
    return REJECTION if truth.verdict == UNDETERMINED and truth.rejection else truth.verdict


def is_suspect(suspect: Mapping[str, Any], truth: Suspect) -> bool:
    """Tell whether a suspect is the true one; the table names headers, and never values."""
    if truth.kind != suspect["kind"]:
        return False
    return truth.kind in ("schema_id", "key_prefix") or bool(suspect["name"] == truth.name.partition("=")[0])


def score(tables: Warehouse, all_scenarios: Sequence[Scenario]) -> Score:
    """Compare the incidents of a warehouse with the truth."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for incident in jvmless.rows(tables, "gold.dlq_incidents", {"cluster": tables.cluster}):
        if incident["record_count"]:
            known[tuple(incident[name] for name in NAMED)] = incident
    first = {
        suspect["incident_id"]: suspect
        for suspect in jvmless.rows(tables, "gold.incident_suspects", {"cluster": tables.cluster})
        if suspect["rank"] == 1
    }
    result = Score()
    for scenario in all_scenarios:
        for truth in scenario.truth:
            times = (truth.first_at, truth.last_at)
            row = known.get((truth.original_topic, truth.consumer_group, *times, truth.records))
            result.incidents[row is not None] += 1
            label = f"{scenario.name} {truth.consumer_group} {truth.profile} {truth.error[:50]!r}"
            if row is None:
                result.misses.append(f"not found: {label} {truth.verdict} noise={truth.noise} {times} {truth.records}")
                continue
            result.verdicts[expected(truth), row["verdict"]] += 1
            if expected(truth) != row["verdict"]:
                shares = {name: row[name] for name in row if name.endswith("_share") or name.startswith("attribute_")}
                counts = f"{row['record_count']} of {row['source_record_count']}, {row['key_count']} keys"
                result.misses.append(
                    f"{expected(truth)} is {row['verdict']}: {label} noise={truth.noise} {counts} {shares}"
                )
            if truth.first_suspect is not None and not truth.noise:
                blamed = first.get(row["incident_id"])
                is_right = blamed is not None and is_suspect(blamed, truth.first_suspect)
                result.suspects[is_right] += 1
                if not is_right:
                    given = blamed and (blamed["kind"], blamed["name"], blamed["score"])
                    result.misses.append(f"suspect {truth.first_suspect} is {given}: {label} {truth.verdict}")
    return result


def measured(spark: SparkSession, directory: Path, seed: int, count: int, shape: str = "usual") -> Score:
    """Land scenarios below a directory, run all feeds after each batch, and return the score."""
    made = list(scenarios(seed, count, SHAPES[shape]))
    settings = load(landing=str(directory / "landing"), warehouse=str(directory / "warehouse"))
    tables = Warehouse(settings, spark)
    for batch in range(max(scenario.batches for scenario in made)):
        for scenario in made:
            if batch < scenario.batches:
                scenario.land(directory / "landing", batch)
        _, done = timed_run(tables, stages())
        bad = {stage_run.table: stage_run.message for stage_run in done if stage_run.status not in ("passed", "idle")}
        if bad:
            raise RuntimeError(f"stages did not pass: {bad}")
    return score(Warehouse(settings), made)


def markdown(scores: Mapping[Drawn, Score], commit: str) -> str:
    """Return the shares of each draw and the confusion matrix of all in Markdown."""
    lines = [f"Measured at {commit}:", ""]
    lines += ["| scenarios | seed | shape | incidents with noise | " + " | ".join(f"{name} right" for name in TARGETS)]
    lines[-1] += " |"
    lines.append(f"|{'---|' * (4 + len(TARGETS))}")
    for (seed, shape, count), of_draw in scores.items():
        shares = " | ".join(f"{of_draw.shares[name]:.1%}" for name in TARGETS)
        lines.append(f"| {count} | {seed} | {shape} | {of_draw.incidents.total():,} | {shares} |")
    targets = " | ".join(f"{target:.0%}" for target in TARGETS.values())
    lines.append(f"| target | | | | {targets} |")
    verdicts = sum((of_draw.verdicts for of_draw in scores.values()), Counter[tuple[str, str]]())
    return "\n".join([*lines, "", Score(verdicts=verdicts).matrix, ""])


def commit() -> str:
    """Return the commit of this checkout, or words that say that there is none."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "an unknown commit"


def write(text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put figures into docs/incidents.md, between two lines."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(begin)
    DOCUMENT.write_text(f"{before}{begin}{text}{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    """Measure, print and, if asked, write the document."""
    parser = argparse.ArgumentParser(prog="incidents", description=__doc__)
    parser.add_argument("--seed", type=int, help="default: all seeds and shapes that the document shows")
    parser.add_argument("--shape", choices=SHAPES, default="usual", help="of the scenarios, if a seed is given")
    parser.add_argument("--count", type=int, default=COUNT, help="how many scenarios, if a seed is given")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/incidents.md")
    given = parser.parse_args()
    draws = ALL if given.seed is None else ((given.seed, given.shape, given.count),)
    scores: dict[Drawn, Score] = {}
    with (
        tempfile.TemporaryDirectory(prefix="afterlog-incidents-", ignore_cleanup_errors=True) as directory,
        spark_session(load(spark={"spark.driver.memory": "3g"})) as spark,
    ):
        for seed, shape, count in draws:
            of_draw = measured(spark, Path(directory) / f"{shape}-{seed}", seed, count, shape)
            scores[seed, shape, count] = of_draw
            print(f"{shape} {seed}:", *of_draw.misses, sep="\n", file=sys.stderr, flush=True)
    text = markdown(scores, commit())
    print(text)
    if given.write:
        write(text)
    is_met = all(of_draw.shares[name] >= target for of_draw in scores.values() for name, target in TARGETS.items())
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
