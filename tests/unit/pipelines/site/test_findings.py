"""Findings as sentences: each kind has one, which agrees with its count, and hostile names are text in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from expectations.gold.topology_current import HEALTH
from pipelines.settings import ROOT
from pipelines.site.findings import explained, sentence

KINDS = {
    *re.findall(r"'([A-Z]+(?:_[A-Z]+)+|QUARANTINED)' AS kind", (ROOT / "sql/gold/trust_findings.sql").read_text()),
    *re.findall(r"^  '([A-Z_]+)',$", (ROOT / "sql/gold/trust_findings.sql").read_text(), re.MULTILINE),
    *(f"TOPOLOGY_{health}" for health in HEALTH if health not in ("OK", "DELETED")),
    *("SILENTLY_OFF", "WOULD_FAIL", "DUPLICATES_POSSIBLE", "HELD", "SILENT_FEED"),
}


def finding(kind: str, amount: int = 2, **more: Any) -> dict[str, Any]:
    row = {"kind": kind, "topic": "orders", "name": "legacy-import", "amount": amount, "evidence": "it says why"}
    return row | more


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("amount", [1, 2, 12_345])
def test_each_kind_of_finding_is_a_sentence_of_its_own(kind: str, amount: int) -> None:
    said = sentence(finding(kind, amount))
    assert re.fullmatch(r"[A-Z0-9].*[^.]\.", said)
    assert "it says why" not in said
    assert ("orders" in said) or ("legacy-import" in said)
    assert not re.search(r"\b1 \w+ (are|were|lack)\b|\d\d (is|was)\b", said), said
    assert explained(finding(kind)) in (None, "It says why.")


def test_the_kinds_are_those_of_the_table() -> None:
    assert len(KINDS) >= 20


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (finding("SILENTLY_OFF"), "Producer legacy-import believes that it is idempotent on orders and is not."),
        (finding("LOST_MESSAGES"), "2 messages of orders were acknowledged and are not in its log."),
        (finding("LOST_MESSAGES", 1), "1 message of orders was acknowledged and is not in its log."),
        (finding("REFUSED_PUSHES"), "2 pushes of the topology of legacy-import were refused."),
        (
            finding("FAILED_DLQ_WRITES", 3, topic=None, subject="dlq.a, dlq.b"),
            "3 writes of dead letters to dlq.a, dlq.b failed, and the broker dropped their records.",
        ),
        (
            finding("FAILED_DLQ_WRITES", 3, topic=None),
            "3 writes of dead letters from an unknown topic failed, and the broker dropped their records.",
        ),
        (finding("NEW_KIND"), "New kind of orders legacy-import: it says why."),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_findings_in_words(row: dict[str, Any], said: str) -> None:
    assert sentence(row) == said


@pytest.mark.parametrize("name", ["{name}", "evil\u202etxt", "a\x1b[31m"])
def test_names_in_sentences_are_text(name: str) -> None:
    said = sentence(finding("SILENTLY_OFF", name=name, topic=name))
    assert "\u202e" not in said
    assert "\x1b" not in said
    assert said.startswith("Producer ")
    assert said.count("{name}") == (2 if name == "{name}" else 0)
