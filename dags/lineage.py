"""A layer's task -> OpenLineage: what it read and filled, how many rows it wrote, and what the gates decided.

Airflow's provider of OpenLineage asks an operator for this when its task ends, and only if Airflow's settings name a
transport. An event has names, counts and rules, and no value of a record.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pipelines import settings
from pipelines.catalog import CATALOG
from pipelines.settings import Settings
from pipelines.stage import Land, Stage

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

STAGES = {stage.table: stage for stage in CATALOG}


def of_layer(
    tables: Sequence[str],
    locations: Mapping[str, Any],
    servers: Mapping[str, str],
    filled: Mapping[str, Any],
    only: str | None = None,
) -> OperatorLineage[Any, Any]:
    """Return the datasets and results of a task that fills tables.

    ``locations`` are the flags ``landing`` and ``warehouse``, null if they are not given. ``servers`` are the bootstrap
    servers of Airflow connections that name clusters, by the variable that takes them. ``filled`` is what the command
    told: counts and verdict by table; it is empty if the command died. ``only`` is the one of several clusters that the
    run is for. Raises UsageError: the settings cannot be loaded.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import test_run

    sole = servers.get(settings.kafka_variable(None))
    found = settings.load(only, **locations, kafka={"bootstrap_servers": sole} if sole else None)
    own = set(tables)
    stages = [STAGES[table] for table in tables]
    read = dict.fromkeys(table for stage in stages for table in stage.inputs if table not in own)
    inputs = [_table(found, table) for table in read]
    for stage in stages:
        if isinstance(stage, Land):
            for own_settings in found.of_clusters():
                inputs += _landed(own_settings, stage, servers.get(settings.kafka_variable(own_settings.cluster)))
    judged = {table: _judged(table, filled.get(table)) for table in tables}
    tests = [
        test_run.TestExecution(
            name=f"{table}: {result['rule']}" + (f" ({result['scope']})" if result["scope"] else ""),
            status="pass" if result["success"] else "fail",
            severity="error",
            type=result["rule"].rpartition(".")[2],
            actual=result["actual"],
        )
        for table in tables
        for result in judged[table]
    ]
    return OperatorLineage(
        inputs=inputs,
        outputs=[_filled(found, stage, filled.get(stage.table), judged[stage.table]) for stage in stages],
        run_facets={"test": test_run.TestRunFacet(tests=tests)} if tests else {},
    )


def _table(found: Settings, table: str) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*_table_name(found, table), facets=_named(found, table))


def _filled(
    found: Settings, stage: Stage, answer: Mapping[str, Any] | None, judged: Sequence[Mapping[str, Any]]
) -> OutputDataset:
    """Return a table with the rows that were written, and what its gate judged as assertions."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    facets: dict[str, Any] = _named(found, stage.table)
    if judged:
        facets["dataQualityAssertions"] = quality.DataQualityAssertionsDatasetFacet(
            assertions=[
                quality.Assertion(
                    assertion=result["rule"].rpartition(".")[2],
                    success=result["success"],
                    column=result["column"],
                    severity="error",
                    name=result["rule"],
                    actual=result["actual"],
                    params={"scope": result["scope"]} if result["scope"] else {},
                )
                for result in judged
            ]
        )
    namespace, name = _table_name(found, stage.table)
    rows = None if answer is None else statistics.OutputStatisticsOutputDatasetFacet(rowCount=answer["written"])
    return OutputDataset(namespace, name, facets=facets, outputFacets={"outputStatistics": rows} if rows else {})


def _judged(table: str, answer: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the rules of the contract that the gate judged, and facts that failed; none if it judged nothing.

    A verdict lists what failed, up to a most. If it lists as many, or does not pass and lists nothing, other rules may
    have failed, too, and only those that it lists are returned.
    """
    from expectations.contract import contract_of
    from expectations.rules import counted
    from expectations.verdict import MOST_LISTED

    verdict = (answer or {}).get("verdict")
    if not verdict:
        return []
    failed: list[dict[str, Any]] = verdict["failed"]
    is_told_whole = verdict["passed"] or 0 < len(failed) < MOST_LISTED
    contract = contract_of(table)
    known = {failure["rule"] for failure in failed}
    held = [rule.code for rule in contract.rules if is_told_whole and rule.code not in known]
    columns = {column.name for column in contract.columns}

    def result(rule: str, scope: str | None, success: bool, actual: str | None) -> dict[str, Any]:
        column = rule.rpartition(".")[0]
        known_column = column if column in columns else None
        return {"rule": rule, "scope": scope, "success": success, "actual": actual, "column": known_column}

    return [
        *(
            result(
                failure["rule"],
                failure["scope"],
                False,
                # A fact has no candidates: it is a number that must be 0.
                f"{counted(failure['failing'], 'row')} failed"
                if failure["candidates"]
                else f"{failure['failing']}, not 0",
            )
            for failure in failed
        ),
        *(result(code, None, True, None) for code in held),
    ]


def _landed(found: Settings, stage: Land, servers: str | None) -> list[InputDataset]:
    """Return the landing directory of a table, and its topic; a pattern stands for the topics that match it."""
    from openlineage.client.event_v2 import InputDataset

    inputs = [InputDataset(*_dataset_name(os.fspath(found.landing_of(stage.directory))))]
    if topics := found.topics_of(stage.directory):
        server = (servers or found.kafka.bootstrap_servers).partition(",")[0]
        inputs.append(InputDataset(f"kafka://{server}", getattr(topics, "topic", None) or topics.pattern))
    return inputs


def _table_name(found: Settings, table: str) -> tuple[str, str]:
    return _dataset_name(f"{found.warehouse.rstrip('/')}/{table.replace('.', '/')}")


def _dataset_name(location: str) -> tuple[str, str]:
    """Return namespace and name of a directory, as OpenLineage's naming of datasets has them."""
    parts = urlsplit(location)
    if "://" not in location or parts.scheme == "file":
        return "file", parts.path if "://" in location else location
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    # Azure names the container before the @; for other stores, credentials may stand there.
    host = parts.netloc if scheme in ("abfs", "abfss", "wasb", "wasbs") else parts.netloc.rpartition("@")[2]
    return f"{scheme}://{host}", parts.path.strip("/")


def _named(found: Settings, table: str) -> dict[str, Any]:
    """Return the facet with the name that SQL knows a table by."""
    from openlineage.client.facet_v2 import symlinks_dataset

    named = symlinks_dataset.Identifier(namespace=f"afterlog://{found.cluster}", name=table, type="TABLE")
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[named])}
