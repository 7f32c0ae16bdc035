r"""An error's message and stack trace -> the parts of a fingerprint, in Python and as expressions of SQL.

This is the only home of the rule. Commands that choose the dead letters of an incident need the parts without a JVM.
`sql/silver/dlq_errors.sql` takes the expressions from `sql`. Tests hold Spark, DuckDB and Python to the same results. A
version that was told stays as it is, because dead letters keep theirs (`episodes.VERSION`).

No pattern has `\b`: up to Java 18 it is the end of a word in any script, later of ASCII alone, as `\w` and Python's
patterns are.
"""

from __future__ import annotations

import re

FINGERPRINT = "{fingerprint}"
"""What statements give in braces for the fingerprint of a dead letter."""
KEPT = ("Offset rejected by client.", "Offset delivery count exceeded the threshold.")
MOST_OF_MESSAGE = 500
MOST_OF_TRACE = 16_000
MARK = "<*>"

_QUOTES = r"\x22[^\x22]*\x22|(?<!\w)\x27[^\x27]*\x27(?!\w)|`[^`]*`"
_DOMAINS = "(?:com|net|org|io|dev|cloud|local|internal|svc|lan|corp|eu|de|uk|fr|us|cn|in)"

# --- version 1 ---------------------------------------------------------------------------------------------------

_HOST_1 = r"(?:(?<!\w)(?=\w)|(?<=\w)(?=-))(?:[a-z0-9-]+\.)+"
VARYING_1 = (
    r"(?=[\w\x22\x27`.+-])(?![A-Za-z_]++(?![\w.+@:-]))"
    rf"(?:\w+://\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|{_QUOTES}|{_HOST_1}[a-z0-9-]+:\d+|{_HOST_1}{_DOMAINS}(?!\w|\.\w)"
    r"|(?<!\w)[0-9a-fA-F]+(?:-[0-9a-fA-F]+)+(?!\w)|(?<!\w)\w*\d\w*(?:[-.:/+]\w+)*)"
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
_OPEN, _CLOSE = "「『｢《〈«»\u2039\u203a", "」』｣》〉»«\u203a\u2039"
_DOUBLE, _DOUBLE_END = "\u201c\u201d\u201e\u201f\u301d", "\u201c\u201d\u301e\u301f"
_SINGLE, _SINGLE_END = "\u2018\u201a\u201b", "\u2018\u2019"

FOREIGN_QUOTES = "|".join(
    (
        f"[{_DOUBLE}][^{_DOUBLE}{_DOUBLE_END}]*[{_DOUBLE_END}]",
        rf"(?<!\w)[{_SINGLE}][^{_SINGLE}{_SINGLE_END}]*[{_SINGLE_END}](?!\w)",
        *(f"{mark}[^{mark}]*{mark}" for mark in "\uff02\uff07"),
        *(
            f"{begin}(?:[^{begin}{end}]|{begin}[^{begin}{end}]*{end})*{end}"
            for begin, end in zip(_OPEN, _CLOSE, strict=True)
        ),
    )
)
"""Quotations; those of a pair of marks may hold one more."""
FOREIGN_DIGIT = "[" + "".join(f"{chr(zero)}-{chr(zero + 9)}" for zero in _ZEROS) + "]"

_HEX = "[0-9A-Fa-f]"
_LETTERS = "À-\u0dff"  # of scripts with spaces between words
_SIGNS = "+\N{MINUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH PLUS SIGN}\N{ARABIC LETTER MARK}\u200e\u200f-"
FIRST_LOOK = (
    rf"(?<!\w(?=\w))(?=[\w\x22\x26\x27`.:;?#{_SIGNS}])"
    r"(?![A-Za-z_]++(?!\d|[.+-][\w.+@-]|@|:[/:0-9A-Fa-f]))"
)
"""Holds before a character that can begin a match: not within a word, and before no word of letters alone. A search
without it takes much longer."""
_ADDRESS = (
    rf"(?<![\w:])(?={_HEX}{{0,4}}+:)(?={_HEX}{{0,4}}(?::{_HEX}{{1,4}})*::|(?:{_HEX}{{1,4}}:){{7}}|(?:{_HEX}{{2}}:){{5}})"
    rf"(?![A-Fa-f]+::[A-Fa-f]+(?![\w:])){_HEX}{{0,4}}(?::{_HEX}{{0,5}}){{2,}}(?:\.\d+){{0,3}}(?:%[\w.-]+)?(?![\w:(])"
)
"""Addresses of IPv6 and of hardware, but no names of C++ and the like: ``add::bad``."""
_HOST_2 = rf"(?<!\w)(?:[a-z0-9-]++\.(?=[a-z0-9-]))++(?:[a-z0-9-]++:\d+|{_DOMAINS}(?!\w|\.\w))"
_NUMBER = (
    rf"(?<!\w)(?:[{_SIGNS}]++\.?(?=\d))?+[A-Za-z_]*+(?:(?<=_)[+-])?+\d\w*+"
    rf"(?:[-.:+][A-Za-z_]*+\d\w*+|-(?:[b-df-hj-np-tv-xz]{{5}}|(?:{_HEX}{{4}}){{1,3}})(?!\w))*+"
)
"""A word with a digit and its sign, and what is joined to it: parts with a digit, the end of a pod's name, hex."""
_ENDS = "\u3001\u3002\u300d\u300f\u3011\uff01\uff09\uff0c\uff1a\uff1b\uff1f"  # of a web address, where no space follows
VARYING_2 = FIRST_LOOK + (
    rf"(?:(\w++://)(?:[^\s@\x22<>`]*+@)?+(?:[^\x00-\x7f][^\s/?#{_ENDS}]*|[\w.~%:!$\x26\x27*+,;=|\[\]{_LETTERS}-]*)"
    rf"|([?\x26#](?:amp;)?[^\s=?\x26#\x22<>`]++=|;jsessionid=|(?<=[\w/])\?(?=[\w%]))[^\s\x26#\x22<>`{_ENDS}]*"
    rf"|[\w.+-]++@[\w-]++(?:\.[\w-]++)++|{_QUOTES}|{_ADDRESS}|{_HOST_2}|(?<!\w){_HEX}++(?:-{_HEX}++)++(?!\w)|{_NUMBER})"
)
"""The groups are kept: a web address's scheme, and the name of a value in its query."""
_NAMES = (  # of days, months and zones, by their first letters
    *("M(?:on(?:day)?|ar(?:ch)?|ay|ON|AR|AY|SK|[SD]T)", "T(?:ue(?:sday)?|hu(?:rsday)?|UE|HU)"),
    *("W(?:ed(?:nesday)?|ED|ES?T)", "F(?:ri(?:day)?|eb(?:ruary)?|RI|EB)"),
    *("S(?:at(?:urday)?|un(?:day)?|ep(?:t(?:ember)?)?|AT|UN|EP|GT)", "J(?:an(?:uary)?|u(?:ne?|ly?)|AN|UN|UL|ST)"),
    *("A(?:pr(?:il)?|ug(?:ust)?|PR|UG|[KEC][SD]T|WST|M)", "O(?:ct(?:ober)?|CT)", "N(?:ov(?:ember)?|OV|Z[SD]T)"),
    *("D(?:ec(?:ember)?|EC)", "P(?:M|[SD]T)", "C(?:ES?|[SD])T", "E(?:ES?|[SD])T", "BST|GMT|H[SK]T|IST|KST|UTC"),
)
_NAME = rf"(?<!\w)(?=[A-Z])(?:{'|'.join(_NAMES)})(?!\w)"
_BETWEEN = (
    r"[\x00-.:;=>?@\[\\\]^`{|}~"
    "\u00a0\u00b7\u00d7\u060c\u061b\u066b\u066c\u2000-\u206f\u2212\u3000-\u3007\uff0c-\uff0e\uff1a\uff1b\uff5e\uff61\uff64]++"
)
JOINED_2 = rf"(?:{_NAME}{_BETWEEN})*+<\*>(?:{_BETWEEN}(?:<\*>|{_NAME}|[ap]m(?!\w)))*+"
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
"""Quotes and digits beyond ASCII are written in ASCII first. Few messages have any, so SQL asks before it searches."""


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
    """Return the expressions of the parts, from columns of a dead letter, by the names that SELECTs give in braces."""
    kept = ", ".join(f"'{text}'" for text in KEPT)
    begin = f"left(ltrim(error_message), {MOST_OF_MESSAGE})"
    line = rf"regexp_extract({begin}, r'^([^\r\n]*)', 1)"
    in_ascii = f"IF({begin} RLIKE '[^ -~]', {_all_replaced_sql(line, _OF_FOREIGN)}, {line})"
    first, second = _all_replaced_sql(line, _REPLACED[1]), _all_replaced_sql(in_ascii, _REPLACED[2])
    frame = rf"nullif(regexp_extract(concat('\n', left(exception_stacktrace, {MOST_OF_TRACE})), r'{FRAME}', 1), '')"
    return {
        "error_pattern": f"IF(error_message IN ({kept}), error_message,"
        f" IF(coalesce(fingerprint_version, 1) < 2, {first}, {second}))",
        "error_frame": rf"regexp_replace({frame}, r'\d+', '*')",
    }


def fingerprint(
    version: str = "algorithm_version", error_pattern: str = "error_pattern", error_frame: str = "error_frame"
) -> str:
    """Return the expression of a fingerprint, given those of the algorithm's version and of parts of the error."""
    named = "cluster, consumer_group, original_topic, disposition, exception_class, exception_cause_class"
    parts = f"array(CAST({version} AS STRING), {named}, {error_pattern}, {error_frame})"
    owner = "IF(consumer_group IS NULL AND owner IS NOT NULL, array(owner), array())"
    return f"left(sha2(to_json(concat({parts}, {owner}), map('ignoreNullFields', 'false')), 256), 16)"


def with_fingerprints(statement: str) -> str:
    """Return a statement about rows of silver.dlq_records with the expression of their fingerprints put in."""
    if FINGERPRINT not in statement:
        return statement
    return statement.replace(FINGERPRINT, fingerprint("coalesce(fingerprint_version, 1)", **sql()))


def _all_replaced(text: str, replaced: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in replaced:
        text = re.sub(pattern, re.sub(r"\$(\d)", r"\\\1", replacement), text, flags=re.ASCII)
    return text


def _all_replaced_sql(text: str, replaced: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in replaced:
        text = f"regexp_replace({text}, r'{pattern}', '{replacement}')"
    return text
