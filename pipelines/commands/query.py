"""Spark SQL over the warehouse, read-only: one statement in, its rows out as a table, as JSON or as CSV."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from expectations import literals
from expectations.contract import Contract
from expectations.quality import QUALITY
from expectations.replays import TABLES as REPLAYS
from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.commands import rows as printed
from pipelines.commands import tabular
from pipelines.engines.duckdb import translate
from pipelines.errors import EnvironmentLacking, UsageError, readable
from pipelines.incidents.signature import with_fingerprints
from pipelines.moments import moment_of
from pipelines.run import newest
from pipelines.settings import QUESTIONS
from pipelines.stage import Land, Stage
from pipelines.steps.held import contract_of_held, own, rows_held
from pipelines.text import hint, near
from pipelines.warehouse import jvmless
from pipelines.warehouse.alert_log import ALERTS, NO_ROUTE, alerts
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Parameter = str | int | bool | Decimal | date | datetime

LAYERS = ("bronze", "silver", "gold", "quarantine", "held", "quality")
FRESHNESS = "quality.freshness"
RECORDS = "silver.dlq_records"
PRESENT = (FRESHNESS, ALERTS.table)
"""Tables that no file holds: their rows are made when somebody asks."""
TABLES = (
    *(table for stage in CATALOG for table in (stage.table, stage.quarantine) if table),
    *(contract.table for contract in map(contract_of_held, CATALOG) if contract),
    *(contract.table for contract in QUALITY),
    *PRESENT,
)
STORED = tuple(dict.fromkeys(table for table in (*TABLES, *REPLAYS) if table not in PRESENT))
"""Tables that have files."""
SHOWN_FIELDS, FIELDS = "spark.sql.debug.maxToStringFields", "25"  # in plans of EXPLAIN; conf/ sets none
READING_COMMANDS = ("Show", "Describe", "Explain")
TIME_FORMATS = {"timestamp": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestamp_ntz": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": TIME_FORMATS["timestamp"],
    "timestampNTZFormat": TIME_FORMATS["timestamp_ntz"],
}

# Nodes of a plan that change something, but are not a Command in Spark's classes.
ACTING_NODES = re.compile(r"Call|InsertIntoDir|\w*ExecuteImmediate|\w+Statement")
CLOCKS = ("now", "current_timestamp", "current_date", "curdate", "localtimestamp")  # Spark's functions
WINDOW = timedelta(hours=1)  # of a question about now that names no interval
UNITS = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_592_000,
    "year": 31_536_000,
}
NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")

_HERE = "CurrentNamespace$"  # the node in a plan that names no namespace
_TABLE = re.compile(r"[a-z]+\.[a-z_]+")
_FEEDS = re.compile(r"^--[ ]Feeds:[ ]([a-z, -]+)\.?[ ]*$", re.MULTILINE)
_INTERVAL = re.compile(rf"\bINTERVAL\s+'?([0-9]{{1,9}})'?\s+({'|'.join(UNITS)})s?\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""
      (?P<skipped> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<literal> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<quoted> `(?:[^`]|``)*` )
    | (?P<name> [^\W\d]\w* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def statement_tables(text: str) -> set[str]:
    """Return the names in a statement that look like tables of a warehouse, without literals and comments.

    A column of an alias that is called like a layer looks like a table too, so callers leave out what does not exist.
    """
    tokens = list(_tokens(text))
    tables = set()
    for position, (layer, dot, name) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        behind_dot = position > 0 and tokens[position - 1] == "."
        in_catalog = behind_dot and position > 1 and tokens[position - 2].lower() == "spark_catalog"
        if dot == "." and layer.lower() in LAYERS and (not behind_dot or in_catalog):
            tables.add(f"{layer}.{name}".lower())
    return tables


def _tokens(text: str) -> Iterator[str]:
    """Yield names (unquoted) and single characters; a string literal becomes one ``'``, which is never a name."""
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        kind, token = match.lastgroup, match[0]
        if kind == "comment":
            end = _end_of_comment(text, position)
            position = len(text) if end is None else end
        elif kind == "quoted":
            yield token[1:-1].replace("``", "`")
        elif kind == "literal":
            yield "'"
        elif kind != "skipped":
            yield token


def _end_of_comment(text: str, position: int) -> int | None:
    """Return where a bracketed comment ends, None if it does not; Spark's bracketed comments nest."""
    depth = 1
    while depth:
        bracket = re.compile(r"/\*|\*/").search(text, position)
        if bracket is None:
            return None
        depth += 1 if bracket[0] == "/*" else -1
        position = bracket.end()
    return position


def statements(text: str) -> tuple[list[str], str]:
    """Return the statements of a text that end with ``;``, and what comes after the last ``;``."""
    complete, begun = [], 0
    for kind, token, end in _scanned(text):
        if kind == "open":
            break
        if token == ";":
            if not is_blank(text[begun : end - 1]):
                complete.append(text[begun : end - 1].strip())
            begun = end
    return complete, text[begun:]


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing but spaces and comments."""
    return all(kind in ("skipped", "comment") for kind, _, _ in _scanned(text))


def is_open(text: str) -> bool:
    """Tell whether a literal, a comment or a bracket has no end yet."""
    tokens = list(_scanned(text))
    brackets = [token for kind, token, _ in tokens if kind == "other"]
    return any(kind == "open" for kind, _, _ in tokens) or brackets.count("(") > brackets.count(")")


def is_in_text(text: str) -> bool:
    """Tell whether a text ends within a literal or a comment."""
    kind, token, _ = deque(_scanned(text), maxlen=1).pop() if text else (None, "", 0)
    return kind == "open" or token.startswith("--")


def _scanned(text: str) -> Iterator[tuple[str | None, str, int]]:
    """Yield the kind, text and end of each token; the rest of the text is ``open`` if a token in it has no end."""
    position = 0
    while match := _TOKEN.match(text, position):
        kind, position = match.lastgroup, match.end()
        if kind == "comment":
            end = _end_of_comment(text, position)
            kind = "open" if end is None else kind
            position = len(text) if end is None else end
        elif match[0] in ("'", '"', "`"):
            kind, position = "open", len(text)
        yield kind, text[match.start() : position], position


def text_of(statement: str | None, file: Path | None) -> str:
    """Return the statement given as an argument or as a file.

    Raises UsageError: neither or both are given, or the file cannot be read.
    """
    if (statement is None) == (file is None):
        raise no_statement()
    if file is None:
        return statement or ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        missing = isinstance(error, FileNotFoundError)
        meant = hint(file.stem, [path.stem for path in questions()]) if missing else ""
        if missing and file.stem in {path.stem for path in questions()}:
            meant = f" That question is {QUESTIONS / file.stem}.sql."
        raise UsageError(f"The file {visible(str(file))} cannot be read: {reason}.{meant}") from None


def no_statement() -> UsageError:
    """Return the error for a command line without a statement, or with two."""
    return UsageError('Give one statement: afterlog sql "SELECT ..." or afterlog sql --file FILE.')


def questions() -> list[Path]:
    """Return the files of the on-call questions."""
    return sorted(QUESTIONS.glob("*.sql"))


def parameters_of(given: Sequence[str], text: str | None = None) -> dict[str, Parameter]:
    """Return the values of ``name=value`` arguments, typed by their form; ``now`` is the present if not given.

    ``text`` is the statement that takes them; with a parameter that it does not take the answer would be to another
    question.

    The types are whole numbers, decimals, true and false, dates, and timestamps with ``T`` (UTC unless they name a
    zone). Everything else is text, and so is a value in single quotes. ``now`` can also be relative, such as ``2h``.

    Raises UsageError: an argument is not ``name=value``, the text does not take it, or ``now`` is no time.
    """
    present = moments.now()
    values: dict[str, Parameter] = {}
    for argument in given:
        name, equals, value = argument.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {argument!r} cannot be used: write --param NAME=VALUE.")
        values[name] = moment_of(value, "--param now", present) if name == "now" else _typed(value)
    taken = _taken(text) if text is not None and given else None
    if taken is not None and (unknown := next((name for name in values if name not in taken), None)):
        names = ", ".join(f":{name}" for name in sorted(taken)) or "none"
        known = " It tells what is known now." if unknown == "now" else hint(unknown, taken)
        raise UsageError(f"There is no parameter :{visible(unknown)} in it; it takes {names}.{known}")
    return {"now": present} | values


def _taken(text: str) -> set[str] | None:
    """Return the parameters that a statement takes; None if only Spark can parse it, which may take any."""
    try:
        return {*translate.parameters(text)}
    except translate.Untranslatable:
        return None


def _typed(text: str) -> Parameter:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) and len(text) <= 38:
        return Decimal(text)
    if text in ("true", "false"):
        return text == "true"
    if re.match(r"\d{4}-\d\d-\d\d(T\d\d:\d\d|$)", text, re.ASCII):
        try:
            if "T" not in text:
                return date.fromisoformat(text)
            moment = datetime.fromisoformat(text)
        except ValueError:
            return text
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return text


def answer(
    warehouse: Warehouse,
    text: str,
    values: Mapping[str, Parameter],
    form: str = "table",
    seen: Callable[[printed.Rows], printed.Rows] = lambda rows: rows,
) -> list[str]:
    """Write the rows of one reading statement to standard output; as a table, write their number to standard error.

    ``seen`` makes what is shown of the rows. Return remarks: a sentence for each feed that explains why the answer is
    empty, or why it tells nothing of now.
    """
    width = tabular.terminal_width(sys.stdout)
    written = write(rows_of(warehouse, text, values), form, sys.stdout, width=width, seen=seen)
    return remarks_after(warehouse, text, values, form, written)


def remarks_after(
    warehouse: Warehouse, text: str, values: Mapping[str, Parameter], form: str, written: int
) -> list[str]:
    """Write the number of rows of a table to standard error; return the remarks on an answer."""
    if form == "table":
        print(counted(written, "row"), file=sys.stderr)
    try:
        return remarks(warehouse, text, values, written)
    except Exception:  # the answer is written already, and remarks are optional
        return []


def remarks(warehouse: Warehouse, text: str, values: Mapping[str, Parameter], written: int) -> list[str]:
    """Return a sentence for each feed that explains why an answer is empty, or why it tells nothing of now.

    A feed that is not set up explains why there are no rows. If a statement is about now, a feed whose newest accepted
    record is older than the statement's shortest interval explains missing rows. Held rows explain them too. That no
    route is set explains why there are no alerts.
    """
    tables = sorted(statement_tables(text))
    stages = [stage for stage in map(newest.source_of, tables) if stage]
    feeds = list(dict.fromkeys(stage.directory for stage in stages))
    timed = set(feeds)
    if head := _FEEDS.search(text):
        stated = [name.strip() for name in head[1].split(",")]
        known = {stage.directory for stage in stages_of_type(Land)}
        feeds = [name for name in stated if name in known]
        timed = set(feeds[:1])
    present = moments.now()
    asked = values.get("now") if _names_now(text) else present if _reads_a_clock(text) else None
    now = min(asked, present) if isinstance(asked, datetime) else present
    window = _shortest_interval(text)
    sentences = [] if written else _unknown_topic(warehouse, values.get("topic"))
    is_untold = not written and ALERTS.table in tables and not warehouse.settings.alerts.route
    sentences += [NO_ROUTE] if is_untold else []
    read = [stage for stage in stages_of_type(Land) if stage.directory in feeds]
    for stage, of_cluster in product(read, warehouse.of_clusters()):
        age = newest.of_feed(of_cluster, stage, now)
        feed = age.feed if warehouse.settings.sole_cluster else f"{age.feed} in cluster {of_cluster.cluster}"
        if not age.is_readable:
            continue
        if not age.used:
            if not written:
                sentences.append(f"The feed {feed} is {age.in_words}.")
            continue
        stale = asked is not None and stage.directory in timed
        stale = stale and (age.accepted_at is None or age.accepted_at < now - window)
        as_of = "" if present - now < timedelta(minutes=1) else f", as of {newest.moment(now)}"
        if stale and age.accepted_at and age.at and age.at >= now - window:
            since = f"{newest.lasting(now - age.accepted_at)} old ({newest.moment(age.accepted_at)}){as_of}"
            sentences.append(f"Of the feed {feed} the newest accepted record is {since}; newer ones were not accepted.")
        elif stale:
            sentences.append(f"Of the feed {feed} {age.in_words}{as_of}.")
        if stale or not written:
            sentences += _held_of(of_cluster, stage)
    return sentences


def _unknown_topic(warehouse: Warehouse, topic: Parameter | None) -> list[str]:
    """Return a sentence if no dead letter is of a source topic; none also if the parameter names no topic."""
    if not isinstance(topic, str) or not warehouse.exists(RECORDS):
        return []
    text = "SELECT DISTINCT original_topic AS topic FROM rows WHERE original_topic IS NOT NULL"
    topics = [
        row["topic"]
        for own in warehouse.of_clusters()
        for row in jvmless.query(own, RECORDS, text, {"cluster": own.cluster})
    ]
    return [] if topic in topics else [f"No dead letter is of topic '{visible(topic)}'.{hint(topic, topics)}"]


def _held_of(warehouse: Warehouse, source: Stage) -> list[str]:
    """Return a sentence for each table that holds rows of a feed: answers do not see held rows."""
    sentences = []
    for stage in CATALOG:
        known = own(warehouse, stage.table) if source.table in stage.inputs else None
        if known and (rows := sum(scope.rows for scope in known.held.values())):
            sentences.append(f"{rows_held(rows, stage.table)}, which answers do not see: see `afterlog doctor`.")
    return sentences


def _names_now(text: str) -> bool:
    tokens = list(_tokens(text))
    return any(pair == (":", "now") for pair in pairwise(tokens))


def _reads_a_clock(text: str) -> bool:
    tokens = [token.lower() for token in _tokens(text)]
    called = {name for name, bracket in pairwise(tokens) if bracket == "("}
    return bool(called.intersection(CLOCKS) or {"current_timestamp", "current_date"}.intersection(tokens))


def _shortest_interval(text: str) -> timedelta:
    """Return the shortest interval that a statement names: a feed without newer records explains missing rows."""
    seconds = [int(number) * UNITS[unit.lower()] for number, unit in _INTERVAL.findall(text)]
    return timedelta(seconds=min(min(seconds), 10**9)) if seconds else WINDOW


def rows_of(warehouse: Warehouse, text: str, values: Mapping[str, Parameter]) -> DataFrame:
    """Return the rows of one reading statement over the warehouse's tables, each ``:name`` bound to its value.

    ``{fingerprint}`` in it is that of a row of silver.dlq_records, of which incidents are made.

    Raises UsageError: the statement writes, cannot be understood, or names something that does not exist.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    text = with_fingerprints(text)
    try:
        plan = _read_only(warehouse.spark, text)
        if str(plan.getClass().getSimpleName()).startswith("Show"):
            present = {table for table in (*TABLES, *REPLAYS) if table in PRESENT or warehouse.exists(table)}
            _register(warehouse, present)
            if pattern := _shows_all_tables(plan):
                return _all_tables(warehouse.spark, pattern)
        else:
            _register(warehouse, statement_tables(text))
        if SHOWN_FIELDS not in warehouse.settings.spark:
            warehouse.spark.conf.set(SHOWN_FIELDS, FIELDS)
        return warehouse.spark.sql(text, args=dict(values))
    except PySparkException as error:
        raise UsageError(_sentence(error)) from None
    except Py4JJavaError as error:  # Delta's own errors
        text = str(error.java_exception.getMessage())
        raise UsageError(f"The statement cannot be answered: {visible(_plain(text))}") from None


def _shows_all_tables(plan: Any) -> str | None:
    """Return the pattern of a SHOW TABLES that names no layer, ``*`` by default; None for any other statement."""
    if plan.getClass().getSimpleName() != "ShowTables" or plan.namespace().getClass().getSimpleName() != _HERE:
        return None
    return str(plan.pattern().get()) if plan.pattern().isDefined() else "*"


def _all_tables(spark: SparkSession, pattern: str) -> DataFrame:
    """Return the tables of all layers, in the form in which SHOW TABLES lists those of one layer."""
    like = literals.spark(pattern)
    listed = [
        spark.sql(f"SHOW TABLES IN {layer} LIKE {like}") for layer in LAYERS if spark.catalog.databaseExists(layer)
    ]
    return reduce(lambda above, below: above.union(below), listed)


def _read_only(spark: SparkSession, text: str) -> Any:
    """Return the plan of a statement.

    Raises UsageError: the statement is more than a query for Spark's own parser.
    """
    jvm: Any = spark.sparkContext._jvm
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    command = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.plans.logical.Command")
    nodes = [plan]
    for node in nodes:
        name = str(node.getClass().getSimpleName())
        if ACTING_NODES.fullmatch(name) or (command.isInstance(node) and not name.startswith(READING_COMMANDS)):
            raise UsageError(
                "afterlog sql only reads (SELECT, WITH, VALUES, SHOW, DESCRIBE, EXPLAIN): tables are written by "
                "`afterlog run` and `afterlog readmit`."
            )
        children = node.children()
        nodes.extend(children.apply(number) for number in range(children.length()))
    return plan


def _register(warehouse: Warehouse, names: set[str]) -> None:
    """Register the tables that exist.

    Raises UsageError: a table of the pipeline does not exist; the message of ``register`` says what to do.
    """
    tables = {table for table in names if _TABLE.fullmatch(table)}
    for contract, entries in present(warehouse, tables).values():
        _register_present(warehouse, contract, entries)
    there = {table for table in tables.difference(PRESENT) if table in TABLES or warehouse.exists(table)}
    warehouse.register(there)


def stored(warehouse: Warehouse, what: str) -> list[str]:
    """Return the tables with files that a warehouse has, for ``what`` a command does without a session.

    Raises UsageError: there is none yet, or only Spark opens the warehouse.
    """
    warehouse.refuse_spark_only(what)
    tables = [table for table in STORED if warehouse.exists(table)]
    if not tables:
        raise warehouse.absent(STORED[0])
    return tables


def present(warehouse: Warehouse, tables: Collection[str]) -> dict[str, tuple[Contract, list[list[Any]]]]:
    """Return those of the tables that no file holds, with their contracts and rows; times are text."""
    by_name: dict[str, tuple[Contract, list[list[Any]]]] = {}
    if FRESHNESS in tables:
        from pipelines.run import freshness

        names = [column.name for column in freshness.FRESHNESS.columns]
        entries = [[getattr(entry, name) for name in names] for entry in freshness.freshness(warehouse)]
        by_name[FRESHNESS] = freshness.FRESHNESS, entries
    if ALERTS.table in tables:
        rows = [row for own in warehouse.of_clusters() for row in alerts(own)]
        by_name[ALERTS.table] = ALERTS, [[row[column.name] for column in ALERTS.columns] for row in rows]
    return by_name


def _register_present(warehouse: Warehouse, contract: Contract, entries: Sequence[Sequence[Any]]) -> None:
    """Write the rows of a table that no file holds to a table of the session's own catalog."""
    from pyspark.sql import functions as F

    schema = ", ".join(f"`{c.name}` {'string' if c.type == 'timestamp' else c.type}" for c in contract.columns)
    rows = warehouse.spark.createDataFrame([tuple(entry) for entry in entries], schema).coalesce(1)
    typed = [F.col(column.name).cast(column.type) for column in contract.columns]
    warehouse.spark.sql("CREATE DATABASE IF NOT EXISTS quality")
    rows.select(typed).write.format("parquet").mode("overwrite").saveAsTable(contract.table)


def _sentence(error: PySparkException) -> str:
    """Return one line on what is wrong with a statement, without Spark's plans and its advice on settings."""
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        table = str(parameters.get("relationName", "")).replace("`", "")
        return f'There is no table {visible(table)}.{near(table, TABLES)} `afterlog sql "SHOW TABLES"` lists all.'
    if condition == "UNBOUND_SQL_PARAMETER":
        return str(no_value(str(parameters.get("name"))))
    return f"The statement cannot be answered: {visible(_plain(str(error)))}"


def no_value(*names: str) -> UsageError:
    """Return the error for parameters of a statement that have no value."""
    wanted, given = ", ".join(f":{name}" for name in names), " ".join(f"--param {name}=VALUE" for name in names)
    return UsageError(f"The statement needs {'a value' if len(names) == 1 else 'values'} for {wanted}: give {given}.")


def _plain(text: str) -> str:
    """Return the first line of Spark's message without its codes."""
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", text.strip()).partition("\n")[0]
    return re.sub(r"\s*SQLSTATE: \w+(?:; ?)?", " ", text).strip(" ;")


def write(
    rows: DataFrame,
    form: str,
    out: TextIO,
    *,
    width: int | None = None,
    seen: Callable[[printed.Rows], printed.Rows] = lambda rows: rows,
) -> int:
    """Write rows as they arrive, never all at once in memory; return how many.

    ``width`` is that of a terminal, None without one. ``seen`` makes what is shown of the rows.

    - ``table``: for people. Control and bidirectional characters are shown as escapes; ``tabular`` says how a table
      fits a narrow terminal.
    - ``json``: one object per line; numbers that JSON cannot write (NaN, Infinity) are text.
    - ``csv``: RFC 4180 with a header line; null is an empty field, an empty string is ``""``. Values stay unchanged: a
      spreadsheet takes a cell that begins with ``=`` for a formula.

    If the reader goes away (``| head``), writing ends without an error.

    Raises UsageError: the statement fails on a row, or, as JSON, two columns have the same name. EnvironmentLacking: a
    file of a table cannot be read.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return printed.write(seen(_SparkRows(rows)), form, out, width)
    except (PySparkException, Py4JJavaError) as error:  # their texts can quote a value of a row
        if isinstance(unread := readable(error), EnvironmentLacking):
            raise unread from None
        match = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", str(error))
        condition = match[1] if match else "an error of Spark's"
        raise UsageError(f"The statement fails on some row with {condition}: guard it, as try_cast does.") from None


class _SparkRows:
    """Rows of a DataFrame, fetched one partition after the other."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        self.names = rows.columns

    @property
    def are_numbers(self) -> list[bool]:
        return [field.dataType.typeName() in NUMBERS for field in self._rows.schema.fields]

    def texts(self) -> Iterator[Sequence[str | None]]:
        columns = [_text(f"_{index}", field.dataType) for index, field in enumerate(self._rows.schema.fields)]
        return self._numbered().select(columns).toLocalIterator()

    def objects(self) -> Iterator[str]:
        from pyspark.sql import functions as F

        columns = [F.col(f"_{index}").alias(name) for index, name in enumerate(self.names)]
        for (line,) in self._numbered().select(F.to_json(F.struct(*columns), JSON_OPTIONS)).toLocalIterator():
            yield line

    def _numbered(self) -> DataFrame:
        """Name the columns by their position, as two can have the same name."""
        return self._rows.toDF(*(f"_{index}" for index in range(len(self.names))))


def _text(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F

    column = F.col(name)
    if kind.typeName() == "binary":
        return F.base64(column)
    if kind.typeName() in ("array", "map", "struct", "variant"):
        return F.to_json(column, JSON_OPTIONS)
    if kind.typeName() in TIME_FORMATS:
        return F.date_format(column, TIME_FORMATS[kind.typeName()])
    return column.cast("string")
