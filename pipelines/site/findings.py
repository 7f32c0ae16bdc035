"""A finding -> a sentence about what is wrong, and what explains it."""

from __future__ import annotations

from collections.abc import Mapping

from expectations.rules import counted
from expectations.text import visible
from pipelines.commands.findings import HELD, NAMELESS, NOT_READ_ON, SILENT, UNKNOWN
from pipelines.site.content import Row

# What is counted, and the sentence. ``{n}`` is the count with its noun, verbs agree with it.
_COUNTED: Mapping[str, tuple[str, str]] = {
    "LOST_MESSAGES": ("message", "{n} of {topic} {was} acknowledged and {is} not in its log."),
    "ABSENT_MESSAGES": ("acknowledged message", "{n} of {topic} {is} not in its log, which may be compacted."),
    "FAILED_DLQ_WRITES": ("write", "{n} of dead letters {of} failed, and the broker dropped their records."),
    "MISSING_DLQ_OFFSETS": ("offset", "{n} of {topic} never landed, and nothing explains it."),
    "ABORTED_DLQ_WRITES": ("dead letter", "{n} from {topic} {is} of aborted transactions, yet readers saw them."),
    "MISSING_HEADERS": ("committed dead letter", "{n} from {topic} {lack} headers that KIP-1317 makes mandatory."),
    HELD: ("row", "{n} of {topic} {is} held: the topic breaks the contract of {name}."),
}
# The sentence; the finding's evidence explains it.
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "SILENTLY_OFF": ("statement", "Producer {name} believes that it is idempotent on {topic} and is not."),
    "WOULD_FAIL": ("statement", "Producer {name} cannot write to {topic}."),
    "DUPLICATES_POSSIBLE": ("statement", "Retries of producer {name} can write messages of {topic} twice."),
    "TOPOLOGY_LOST": ("topology", "The topology of {name} was stored, and the broker's plugin forgot it."),
    "TOPOLOGY_PLUGIN_ERROR": ("topology", "The broker cannot read the topology of {name} from its plugin."),
    "TOPOLOGY_REJECTED": ("topology", "The broker refused a topology of {name}."),
    "TOPOLOGY_CONFLICT": ("topology", "Members of {name} push topologies that differ."),
    "TOPOLOGY_STALE": ("topology", "The stored topology of {name} is of an earlier epoch."),
    "TOPOLOGY_NOT_PUSHED": ("topology", "No topology of {name} can be read."),
    "REFUSED_PUSHES": ("push", "{n} of the topology of {name} {was} refused."),
    "QUARANTINED": ("dead letter", "{n} of {topic} {is} in quarantine."),
    "QUARANTINE_RISING": ("dead letter", "More dead letters of {topic} than before break the rule {name}."),
    "UNKNOWN_WRITER": ("dead letter", "Nobody knows who wrote {n} of {topic}."),
    "INFERRED_DISPOSITIONS": ("dead letter", "Why {n} from {topic} died is inferred from the error's text."),
    NOT_READ_ON: ("quiet incident", "Nobody knows whether {n} {is} over."),
    "LATE_DATA": ("dead letter", "{n} of {topic} landed late."),
    SILENT: ("feed", "Nothing landed in {name} for longer than usual."),
}

_VERBS = {"is": ("is", "are"), "was": ("was", "were"), "lack": ("lacks", "lack")}


def sentence(finding: Row) -> str:
    """Return what is wrong in one sentence; a kind that has no sentence of its own is told by its evidence."""
    noun, text = _COUNTED.get(finding["kind"]) or _EXPLAINED.get(finding["kind"]) or ("", "")
    amount = finding["amount"]
    if not text:
        about = " ".join(visible(finding[name]) for name in ("topic", "name") if finding.get(name))
        what = f"{finding['kind'].replace('_', ' ').capitalize()}{f' of {about}' if about else ''}"
        return f"{what}: {visible(finding['evidence'])}."
    subject = finding.get("subject") or UNKNOWN
    is_told = finding["kind"] in NAMELESS and finding["topic"] is None and subject != UNKNOWN
    return text.format(
        n=counted(amount, noun),
        topic=visible(finding["topic"] or (subject if is_told else "an unknown topic")),
        of=visible(f"to {subject}" if is_told else f"from {finding['topic'] or 'an unknown topic'}"),
        name=visible(finding.get("name") or "an unknown one"),
        **{verb: singular if amount == 1 else plural for verb, (singular, plural) in _VERBS.items()},
    )


def explained(finding: Row) -> str | None:
    """Return what explains a finding beyond its sentence; None if the sentence says all."""
    if finding["kind"] not in _EXPLAINED:
        return None
    evidence = visible(finding["evidence"])
    return f"{evidence[:1].upper()}{evidence[1:]}{'' if evidence.endswith('.') else '.'}"
