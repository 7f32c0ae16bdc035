"""Checks of headers: records that no profile reads, profiles that would read them, writers that nothing names."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator

from expectations import owners
from expectations.rules import counted
from expectations.silver.dlq_records import PROFILES
from expectations.text import visible
from pipelines.columns import unknown_headers
from pipelines.columns.profiles import profiles_of
from pipelines.columns.proposals import Proposal, proposals, read_by
from pipelines.columns.writers import Letter
from pipelines.commands.check import Check
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

MOST_LOOKED_AT = 1_000  # records of a DLQ topic whose headers tell of a writer
MOST_LETTERS = 5_000  # of all DLQ topics
MOST_TOPICS = 10_000  # whose names are known

# Some rows of each DLQ topic and, in each, how many there are; {headers} and {where} are columns and a condition.
_LETTERS = """
, unread AS (
  SELECT dlq_topic, arrow_cast(dlq_timestamp, 'Int64') AS time, {headers} AS headers, count(*) OVER () AS total,
    row_number() OVER (PARTITION BY dlq_topic ORDER BY "_bronze_id") AS number
  FROM rows WHERE {where}
)
SELECT dlq_topic, time, headers, total FROM unread WHERE number <= {most} ORDER BY number, dlq_topic LIMIT {most_of_all}
"""
_TOPICS = """
SELECT DISTINCT topic FROM (
  SELECT dlq_topic AS topic FROM rows UNION ALL SELECT original_topic AS topic FROM rows
) WHERE topic IS NOT NULL LIMIT {most}
"""


def check_header_profiles(warehouse: Warehouse) -> Iterator[Check]:
    """Say what the headers of records are that no profile reads, and propose a profile for each of their writers.

    These are rows in quarantine or held, and accepted rows of an unknown writer.
    """
    if not warehouse.opens_tables:
        return
    letters, total = _letters(warehouse)
    if not letters:
        return
    dlq = warehouse.settings.dlq
    profiles = profiles_of(dlq)
    readings = [read_by(letter, profiles) for letter in letters]
    unread = [letter for letter, reading in zip(letters, readings, strict=True) if not reading.comes_in]
    waiting = [(letter, reading) for letter, reading in zip(letters, readings, strict=True) if not letter.is_accepted]
    proposed = proposals(unread, dlq, _topics(warehouse))
    sampled = len(letters) < total
    for proposal in proposed:
        yield _proposed(proposal, f" Of {counted(total, 'such record')} {len(letters):,} were looked at." * sampled)
    if readable := sum(reading.comes_in for _, reading in waiting):
        finding = f"{counted(readable, 'record')} in quarantine or held can be read by the profiles as they are now."
        remedy = "`afterlog run` judges what is held again, `afterlog readmit silver.dlq_records` the others."
        yield Check("header profiles", "warning", finding, remedy)
    lacking = ((reading.profile, reading.lacking) for _, reading in waiting if reading.profile and reading.lacking)
    if nearest := Counter(lacking):
        remedy = "If the writer leaves them out by right, replace the profile by a [[dlq.profile]] of the same name."
        yield Check("header profiles", "warning", unknown_headers.nearest(nearest), remedy)
    in_proposals = {id(letter) for proposal in proposed for letter in proposal.letters}
    if others := [letter for letter, reading in waiting if not reading.profile and id(letter) not in in_proposals]:
        finding = f"{unknown_headers.sentence(_names(others), len(others))} They are in quarantine or held."
        remedy = "Map them in a [[dlq.profile]] of the settings; names and values do not tell to which fields."
        yield Check("header profiles", "warning", finding, remedy)


def _proposed(proposal: Proposal, sampled: str) -> Check:
    """Say which records a proposed profile is for, what it would do, and what it would not."""
    letters = proposal.letters
    accepted = sum(letter.is_accepted for letter in letters)
    waiting = len(letters) - accepted
    where = []
    remedy = "Look at the guess below before you put it into the settings."
    if waiting:
        where.append(f"{waiting:,} {'is' if waiting == 1 else 'are'} in quarantine or held")
        remedy += " Then `afterlog run` judges what is held again, `afterlog readmit silver.dlq_records` the others."
    if accepted:
        where.append(f"{accepted:,} {'is' if accepted == 1 else 'are'} accepted with profile {owners.UNKNOWN}")
        remedy += " Accepted rows stay as they are, also in `afterlog readmit`: the profile reads new records."
        remedy += " Only a run into a new warehouse reads the old ones by it, if they are still landed."
    lead = "" if proposal.has_origin else "No header shows where the records come from. "
    sentence = unknown_headers.sentence(_names(letters), len(letters), "of a writer that no profile reads")
    finding = f"{lead}{sentence} {' and '.join(where) or 'None is the newest'}.{sampled} {proposal.tried}"
    return Check("header profiles", "warning", finding, remedy, proposal.toml)


def _names(letters: Iterable[Letter]) -> Counter[str]:
    """Count the records that have a header of each name."""
    return Counter(name for letter in letters for name in letter.all_names)


def _letters(warehouse: Warehouse) -> tuple[list[Letter], int]:
    """Return records that no profile reads, a part of each DLQ topic's, and their number."""
    letters: list[Letter] = []
    total = 0
    mapped = f"header_profile NOT IN ({', '.join(map(repr, PROFILES))})"
    lacks = f"header_profile IS NULL OR cardinality(missing_headers) > 0 AND {mapped}"
    for table in ("quarantine.dlq_records", "held.dlq_records", "silver.dlq_records"):
        if not warehouse.last_version(table):  # it does not exist, or was never written
            continue
        is_accepted = table == "silver.dlq_records"
        equal = {"cluster": warehouse.cluster} | ({"header_profile": owners.UNKNOWN} if is_accepted else {})
        try:
            columns = {column.name for column in warehouse.opened_table(table).schema().fields}
            unread = f"error IS NULL AND ({lacks if 'missing_headers' in columns else 'header_profile IS NULL'})"
            text = _LETTERS.format(
                headers="user_headers" if is_accepted else "headers",
                where="cardinality(user_headers) > 0" if is_accepted else unread,
                most=MOST_LOOKED_AT,
                most_of_all=MOST_LETTERS,
            )
            rows = jvmless.query(warehouse, table, text, equal)
        except Exception:  # the table cannot be read, which ``check_tables`` reports
            continue
        total += rows[0]["total"] if rows else 0
        for row in rows:
            time = None if row["time"] is None else row["time"] // 1000
            letters.append(Letter.of(row["dlq_topic"], row["headers"], time, is_accepted))
    return letters, total


def _topics(warehouse: Warehouse) -> set[str]:
    """Return names of topics that accepted records are in or come from."""
    with contextlib.suppress(Exception):  # the table cannot be read, which ``check_tables`` reports
        if warehouse.last_version("silver.dlq_records"):
            text = _TOPICS.format(most=MOST_TOPICS)
            rows = jvmless.query(warehouse, "silver.dlq_records", text, {"cluster": warehouse.cluster})
            return {row["topic"] for row in rows}
    return set()


def check_writers(warehouse: Warehouse) -> Iterator[Check]:
    """Name the DLQ topics whose dead letters name no writer."""
    if not warehouse.last_version("gold.trust_findings"):
        return
    equal = {"cluster": warehouse.cluster, "kind": "UNKNOWN_WRITER"}
    for row in sorted(jvmless.rows(warehouse, "gold.trust_findings", equal), key=lambda row: str(row["topic"])):
        letters = counted(row["amount"], "dead letter")
        verb = "names" if row["amount"] == 1 else "name"
        yield Check("writers", "warning", f"{visible(row['topic'])}: {letters} {verb} no writer.", owners.NAMELESS)
