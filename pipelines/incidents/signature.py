r"""An error's message and stack trace -> the parts of a fingerprint, in Python and as expressions of SQL.

This is the only home of the rule: commands that choose the dead letters of an incident need the parts without a JVM, and
``sql/silver/dlq_errors.sql`` takes the expressions from ``sql``. Tests hold Spark, DuckDB and Python to the same results.
A version that was told stays as it is, because dead letters keep theirs (``episodes.VERSION``).

No pattern has `\b`: up to Java 18 it is the end of a word in any script, later of ASCII alone, as `\w` and Python's
patterns are.
"""

from __future__ import annotations

import re

KEPT = ("Offset rejected by client.", "Offset delivery count exceeded the threshold.")
MOST_OF_MESSAGE = 500
MOST_OF_TRACE = 16_000
MARK = "<*>"

_URL = r"\w+://"
_EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_QUOTES = r"\x22[^\x22]*\x22|(?<!\w)\x27[^\x27]*\x27(?!\w)|`[^`]*`"
_HOST = (
    r"(?:(?<!\w)(?=\w)|(?<=\w)(?=-))(?:[a-z0-9-]+\.)+[a-z0-9-]+:\d+"
    r"|(?:(?<!\w)(?=\w)|(?<=\w)(?=-))(?:[a-z0-9-]+\.)+"
    r"(?:com|net|org|io|dev|cloud|local|internal|svc|lan|corp|eu|de|uk|fr|us|cn|in)(?!\w|\.\w)"
)
_HEX_GROUPS = r"(?<!\w)[0-9a-fA-F]+(?:-[0-9a-fA-F]+)+(?!\w)"
_NO_WORD_ALONE = r"(?![A-Za-z_]++(?![\w.+@:-]))"

# --- version 1 ---------------------------------------------------------------------------------------------------

VARYING_1 = (
    rf"(?=[\w\x22\x27`.+-]){_NO_WORD_ALONE}"
    rf"(?:{_URL}\S+|{_EMAIL}|{_QUOTES}|{_HOST}|{_HEX_GROUPS}|(?<!\w)\w*\d\w*(?:[-.:/+]\w+)*)"
)
JOINED_1 = r"<\*>(?:[^A-Za-z0-9_<]+<\*>)+"

# --- version 2 ---------------------------------------------------------------------------------------------------

_ZEROS = (
    *(0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0, 0xF20),
    *(0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0),
    *(0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10, 0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0),
    *(0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60, 0x16AC0),
    *(0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0),
)
"""Unicode's decimal zeros beyond ASCII; the nine other digits follow each."""
_PAIRS = ("「」", "『』", "｢｣", "《》", "〈〉", "‹›", "›‹", "«»", "»«")

FOREIGN = r"[^\x00-\x7f]"
FOREIGN_QUOTES = (
    "[„“”‟〝][^„“”‟〝〞〟]*[“”〞〟]"
    r"|(?<!\w)[‘‚‛][^‘’‚‛]*[‘’](?!\w)|＂[^＂]*＂|＇[^＇]*＇|"
    + "|".join(f"{begin}(?:[^{begin}{end}]|{begin}[^{begin}{end}]*{end})*{end}" for begin, end in _PAIRS)
)
"""Quotations; those of a pair of marks may hold one more."""
FOREIGN_DIGIT = "[" + "".join(f"{chr(zero)}-{chr(zero + 9)}" for zero in _ZEROS) + "]"

_HEX = "[0-9A-Fa-f]"
_ADDRESS = (
    rf"(?<![\w:])(?={_HEX}{{0,4}}(?::{_HEX}{{1,4}})*::|(?:{_HEX}{{1,4}}:){{7}}|(?:{_HEX}{{2}}:){{5}})"
    rf"(?![A-Fa-f]+::[A-Fa-f]+(?![\w:])){_HEX}{{0,4}}(?::{_HEX}{{0,5}}){{2,}}(?:\.\d+){{0,3}}(?:%[\w.-]+)?(?![\w:(])"
)
"""Addresses of IPv6 and of hardware, but no names of C++ and the like: ``add::bad``."""
_SIGNS = "+\N{MINUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH PLUS SIGN}\N{ARABIC LETTER MARK}\u200e\u200f-"
_NUMBER = (
    rf"(?<!\w)(?:[{_SIGNS}]++\.?(?=\d)|\w*_[+-](?=\d))?\w*\d\w*"
    rf"(?:[-.:+]\w*\d\w*|-(?:[b-df-hj-np-tv-xz]{{5}}|(?:{_HEX}{{4}}){{1,3}})(?!\w))*"
)
"""A word with a digit and its sign, and what is joined to it: parts with a digit, the end of a pod's name, hex."""
VARYING_2 = (
    rf"(?=[\w\x22\x27`.:?&#{_SIGNS}]){_NO_WORD_ALONE}"
    rf"(?:({_URL})[\w.~%:@!$&\x27*+,;=|\[\]À-\u0dff-]*|([?&#][A-Za-z_][\w.\[\]-]*=)[!$%\x27-;=?-\[\\\]^_a-z{{|}}~À-\u0dff]*"
    rf"|{_EMAIL}|{_QUOTES}|{_ADDRESS}|{_HOST}|{_HEX_GROUPS}|{_NUMBER})"
)
"""The groups are kept: a web address's scheme, and the name of a value in its query."""
_DAYS = ("Mon(?:day)?", "Tue(?:sday)?", "Wed(?:nesday)?", "Thu(?:rsday)?", "Fri(?:day)?", "Sat(?:urday)?", "Sun(?:day)?")
_MONTHS = (
    *("Jan(?:uary)?", "Feb(?:ruary)?", "Mar(?:ch)?", "Apr(?:il)?", "May", "June?", "July?", "Aug(?:ust)?"),
    *("Sept?(?:ember)?", "Oct(?:ober)?", "Nov(?:ember)?", "Dec(?:ember)?"),
)
_UPPER = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC|MON|TUE|WED|THU|FRI|SAT|SUN"
_HALVES = "[AaPp][Mm]"
_ZONES = (
    "UTC|GMT|CES?T|EES?T|WES?T|BST|IST|MSK|JST|KST|SGT|HKT|E[SD]T|C[SD]T|M[SD]T|P[SD]T|AK[SD]T|HST|AE[SD]T|AC[SD]T|AWST"
    "|NZ[SD]T"
)
_OF_DATES = rf"(?<!\w)(?=[A-Zap])(?:{'|'.join((*_DAYS, *_MONTHS, _UPPER, _HALVES, _ZONES))})(?!\w)"
_BETWEEN = r"[\x00-.:;=>?@\[\\\]^`{|}~\u00a0·×\u060c\u061b\u066b\u066c\u2000-\u206f\u2212\u3000-\u3007，．：；～－、｡､]++"
JOINED_2 = (
    rf"(?:{_OF_DATES}{_BETWEEN})*+<\*>(?:{_BETWEEN}(?:{_OF_DATES}{_BETWEEN})*+<\*>)*+(?:{_BETWEEN}{_OF_DATES})*+"
)
"""What varies and stands side by side, with the names in dates; but not the parts of a path."""

FRAME = (
    r"\n[^\S\n]*+at (?:[^/\s(]*+/)*+(?!java\.|javax\.|jakarta\.|jdk\.|sun\.|com\.sun\.|kotlin\.|kotlinx\.|scala\."
    r"|groovy\.|akka\.|org\.apache\.|org\.springframework\.|org\.hibernate\.|org\.slf4j\.|io\.confluent\.|io\.netty\."
    r"|io\.micrometer\.|io\.opentelemetry\.|com\.fasterxml\.|com\.google\.|reactor\.)([^\s(/]+)\("
)

_REPLACED = {
    1: ((VARYING_1, MARK), (JOINED_1, MARK)),
    2: ((VARYING_2, f"$1$2{MARK}"), (JOINED_2, MARK)),
}
_OF_FOREIGN = ((FOREIGN_QUOTES, '""'), (FOREIGN_DIGIT, "0"))
"""Quotes and digits beyond ASCII are written in ASCII first; few messages have any."""


def pattern_of(message: str | None, version: int | None) -> str | None:
    """Return the first line of an error message with ``<*>`` for what varies in it; no version is the first one."""
    if message is None or message in KEPT:
        return message
    found = re.match(r"[^\r\n]*", message.lstrip(" ")[:MOST_OF_MESSAGE])
    line = found[0] if found else ""
    is_first = version is None or version < 2
    if not is_first and not line.isascii():
        line = _all_replaced(line, _OF_FOREIGN)
    return _all_replaced(line, _REPLACED[1 if is_first else 2])


def frame_of(stacktrace: str | None) -> str | None:
    """Return the top frame of a stack trace that is not of a framework, without its line and its numbers."""
    found = re.search(FRAME, "\n" + (stacktrace or "")[:MOST_OF_TRACE], re.ASCII)
    return re.sub(r"\d+", "*", found[1], flags=re.ASCII) if found else None


def sql() -> dict[str, str]:
    """Return the expressions for the names in braces that the SELECT of ``silver.dlq_errors`` has.

    ``error_line`` is of a record; ``error_pattern`` and ``error_frame`` also use its column ``error_line``.
    """
    kept = ", ".join(f"'{text}'" for text in KEPT)
    line = f"IF(error_line RLIKE r'{FOREIGN}', {_all_replaced_sql('error_line', _OF_FOREIGN)}, error_line)"
    first, second = (_all_replaced_sql(of, _REPLACED[version]) for version, of in ((1, "error_line"), (2, line)))
    frame = rf"nullif(regexp_extract(concat('\n', left(exception_stacktrace, {MOST_OF_TRACE})), r'{FRAME}', 1), '')"
    return {
        "error_line": rf"regexp_extract(left(ltrim(error_message), {MOST_OF_MESSAGE}), r'^([^\r\n]*)', 1)",
        "error_pattern": f"IF(error_message IN ({kept}), error_message,"
        f" IF(coalesce(fingerprint_version, 1) < 2, {first}, {second}))",
        "error_frame": rf"regexp_replace({frame}, r'\d+', '*')",
    }


def _all_replaced(text: str, replaced: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in replaced:
        text = re.sub(pattern, re.sub(r"\$(\d)", r"\\\1", replacement), text, flags=re.ASCII)
    return text


def _all_replaced_sql(text: str, replaced: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in replaced:
        text = f"regexp_replace({text}, r'{pattern}', '{replacement}')"
    return text
