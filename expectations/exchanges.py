"""Columns and rules that the contracts of exchanges with streams groups share.

An exchange is a request and its response: one line of the brokers' request log.
"""

from expectations import provenance
from expectations.contract import Column
from expectations.rules import at_least, between, is_true, not_null, one_of, readable

READABLE = "error IS NULL"
GRAIN = ("cluster", "connection", "correlation_id")


def origin(unit: str) -> tuple[Column, ...]:
    """Return the columns that identify the bronze row that a row comes from, and the request that it is about."""
    return (
        *provenance.origin("bronze.streams_requests", unit),
        Column(
            "connection",
            "string",
            "Connection, as the broker names it; with the correlation id it repeats after a restart of the broker.",
            (not_null("A logged request names its connection.").where(READABLE),),
        ),
        Column(
            "correlation_id",
            "int",
            "Number of the request on its connection.",
            (not_null("A logged request has a correlation id.").where(READABLE),),
        ),
        Column("client_id", "string", "The client's name for itself.", content="text"),
        Column("principal", "string", "Who the broker took the client for.", content="text"),
        Column("api_version", "int", "Version of the request."),
    )


def logged(name: str, comment: str) -> Column:
    """Return the column with the log's timestamp: when the broker had answered the request."""
    return Column(name, "timestamp", comment, (not_null("A line of the log has a time.").where(READABLE),))


def item(unit: str) -> Column:
    """Return the column that numbers the groups in one response."""
    return Column("_item", "int", f"Place of the {unit} in its response, from 0.", (at_least(0),))


def group_id(*rules: str) -> Column:
    """Return the column of the group; ``rules`` are SQL guards under which the group's name must not be empty."""
    named = tuple(
        is_true("named", "group_id <> ''", "A group has a name.").where(guard).failing("came without a group's name")
        for guard in rules
    )
    return Column("group_id", "string", "Streams group.", (not_null("The group is named.").where(READABLE), *named))


def outcome(codes: tuple[int, ...], subject: str = "error_code") -> tuple[Column, ...]:
    """Return the columns of a response's error.

    The gate counts codes that the API does not define, but their rows enter the table.
    ``subject`` is the SQL expression that must give one of the codes.
    """
    known = "Kafka's API answers with these codes only."
    return (
        Column(
            "error_code",
            "int",
            "Error code of the response; 0 is success.",
            (
                not_null("A response has an error code.").where(READABLE),
                one_of(*codes, name="of_the_api", meaning=known).of(subject).tolerated(),
            ),
        ),
        Column("error_name", "string", "Kafka's name of the error code; null where it has none."),
        Column("error_message", "string", "What the broker said of it; null where it said nothing.", content="text"),
    )


DEFECTS = Column(
    "defects",
    "array<string>",
    "What is wrong with the description although brokers accept it, such as dangling_successor; empty: nothing.",
)
CONTENT_HASH = Column("_content_hash", "bigint", "Hash of what was exchanged: tells a duplicate from a conflict.")
EVIDENCE = (
    Column("line", "binary", "The line as logged.", evidence=True, content="line"),
    Column(
        "error",
        "string",
        "Why the line cannot be read.",
        (readable("error", "A line of the request log can be read."),),
        evidence=True,
        content="text",
    ),
)
THROTTLE = Column(
    "throttle_time_ms", "int", "How long the response told the client to wait because of a quota, in milliseconds."
)
STATUS = Column(
    "status",
    "int",
    "0 NOT_REQUESTED, 1 NOT_STORED, 2 ERROR, 3 AVAILABLE; 0 where the request's version has no status.",
    (
        between(0, 3, "KIP-1331 knows four statuses.").tolerated(),
        is_true(
            "available_with_description",
            "(status = 3) = (description IS NOT NULL)",
            "AVAILABLE carries a description, and no other status does.",
        )
        .failing("had a status that does not fit the description")
        .tolerated(),
        is_true("answered", "status <> 0", "A describe that asks for the description is told its status.")
        .where("description_requested AND error_code = 0")
        .failing("came without a status")
        .tolerated(),
    ),
)
