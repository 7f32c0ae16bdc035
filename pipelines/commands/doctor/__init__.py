"""What is wrong with this machine, the settings and the warehouse, and how to fix it; starts no session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from expectations.rules import counted
from expectations.text import visible
from pipelines.commands import display
from pipelines.commands.check import Check, environment_error
from pipelines.commands.doctor import headers, kafka, landing, machine, warehouse
from pipelines.commands.doctor import settings as of_settings
from pipelines.errors import AfterlogError
from pipelines.settings import Settings
from pipelines.stores import locations
from pipelines.warehouse.tables import Warehouse

Examine = Callable[[Warehouse], Iterator[Check]]
Examination = tuple[str, Examine, Sequence[Warehouse]]  # the name is for what it raises

_COLOURS = {"ok": "green", "warning": "yellow", "error": "bold red"}
_ORDER = ("ok", "error", "warning")  # as printed for people: what needs work is next to the prompt, errors first


def diagnose(
    settings: Settings, others: Mapping[str, Callable[[Settings], Iterator[Check]]] = MappingProxyType({})
) -> list[Check]:
    """Return every finding, from the machine to the tables, then ``others``; a check that fails becomes a finding.

    Of several clusters, a finding about one of them has its name.
    """
    as_given, on_disk = Warehouse(settings), Warehouse(_on_disk(settings))
    examinations = _without_tables(as_given, on_disk)
    if not warehouse.is_half(on_disk):
        examinations += _of_tables(on_disk)
        examinations += [(name, partial(_other, check), as_given.of_clusters()) for name, check in others.items()]
    checks: list[Check] = []
    for name, examine, warehouses in examinations:
        of_each = [_findings(name, examine(own)) for own in warehouses]
        checks += [check for check in of_each[0] if check.of_pattern and all(_says(found, check) for found in of_each)]
        for own, found in zip(warehouses, of_each, strict=True):
            head = "" if own.settings.sole_cluster == settings.sole_cluster else f"{own.cluster}: "
            checks += [replace(check, name=f"{head}{check.name}") for check in found if not check.of_pattern]
    return _once(checks)


def _once(checks: Sequence[Check]) -> list[Check]:
    """Return findings without the others that only say again why the warehouse cannot be reached."""
    unreached = {check.finding for check in checks if check.name == "warehouse"}
    return [check for check in checks if check.name == "warehouse" or check.finding not in unreached]


def _without_tables(as_given: Warehouse, on_disk: Warehouse) -> list[Examination]:
    """Return what is examined even if the warehouse has no tables."""
    return [
        ("Java", machine.check_java, (on_disk,)),
        ("Python packages", machine.check_packages, (on_disk,)),
        ("JVM jars", machine.check_jars, (on_disk,)),
        ("settings", of_settings.check_settings, (as_given,)),
        ("warehouse", warehouse.check_store, (on_disk,)),
        ("disk", machine.check_disk, (on_disk,)),
        ("landing", landing.check_strays, (on_disk,)),
        ("landing", landing.check_feeds, on_disk.of_clusters()),
        ("Kafka", kafka.check_topics, on_disk.of_clusters()),
        ("writer's lock", warehouse.check_lock, (on_disk,)),
        ("log store", warehouse.check_log_store, (as_given,)),
        ("clock", warehouse.check_clock, (on_disk,)),
        ("backups", warehouse.check_backups, (on_disk,)),
    ]


def _of_tables(on_disk: Warehouse) -> list[Examination]:
    """Return what is examined unless only a part of the warehouse is restored."""
    each = on_disk.of_clusters()
    return [
        ("tables", warehouse.check_tables, (on_disk,)),
        ("header profiles", headers.check_header_profiles, each),
        ("writers", headers.check_writers, each),
        ("settings that match nothing", of_settings.check_patterns, each),
        ("quarantine", warehouse.check_quarantines, each),
        ("damaged files", landing.check_damaged_files, each),
        ("cleanup policies", kafka.check_cleanup_policies, each),
        ("dead-letter settings", kafka.check_dead_letter_settings, each),
        ("quality reports", warehouse.check_quality_reports, (on_disk,)),
        ("gaps", kafka.check_gaps, each),
        ("Airflow", machine.check_airflow, (on_disk,)),
    ]


def _says(checks: Sequence[Check], wanted: Check) -> bool:
    return any(check.finding == wanted.finding for check in checks)


def _other(found: Callable[[Settings], Iterator[Check]], warehouse: Warehouse) -> Iterator[Check]:
    return found(warehouse.settings)


def _findings(name: str, found: Iterator[Check]) -> list[Check]:
    """Return the findings of an examination; one that fails becomes a finding."""
    checks: list[Check] = []
    try:
        checks += found
    except AfterlogError as error:
        checks.append(environment_error(name, str(error)))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:  # a damaged state file
        checks.append(environment_error(name, f"It cannot be examined: {error}", "Fix that and ask again."))
    except Exception as error:  # a reader's error of any kind; its text can quote a record
        kind = type(error).__name__
        checks.append(environment_error(name, f"It cannot be examined ({kind}).", "Fix the tables that are named."))
    return checks


def _on_disk(settings: Settings) -> Settings:
    """Return the settings with the warehouse's directory in place of its URI, if the URI is on this machine."""
    directory = locations.directory_of(settings.warehouse)
    return settings if directory is None else settings.model_copy(update={"warehouse": str(directory)})


def exit_code(checks: Iterable[Check]) -> int:
    """Return 0 without an error, 3 if the environment lacks something, else 1."""
    return max((3 if check.lacks else 1 for check in checks if check.state == "error"), default=0)


def summary(checks: Sequence[Check]) -> str:
    """Return the findings in one sentence: which checks have errors, and the number of warnings."""
    errors = list(dict.fromkeys(check.name for check in checks if check.state == "error"))
    warned = sum(check.state == "warning" for check in checks)
    if not errors and not warned:
        return "All is ok."
    warnings = f"; {counted(warned, 'warning')}" if warned else ""
    return f"Errors in {', '.join(errors)}{warnings}." if errors else f"No errors{warnings}."


def show(checks: Sequence[Check], as_json: bool = False) -> None:
    """Print the findings as a table, what is ok first, and a sentence; or as one JSON object per line."""
    if as_json:
        for check in checks:
            members = {"name": check.name, "state": check.state, "finding": check.finding, "remedy": check.remedy}
            print(json.dumps(members | ({"snippet": check.snippet} if check.snippet else {})))
        return
    rows = []
    for check in sorted(checks, key=lambda check: _ORDER.index(check.state)):
        first, *more = map(visible, check.finding.split("\n"))
        rows += [[visible(check.name), check.state, first], *(["", "", line] for line in more)]
        if check.remedy:
            rows.append(["", "", visible(check.remedy)])
    display.table(["check", "state", "finding"], rows, 3, _COLOURS, coloured=1)
    for snippet in dict.fromkeys(check.snippet for check in checks if check.snippet):
        print(f"\n{snippet.strip()}\n")
    print(visible(summary(checks)))
