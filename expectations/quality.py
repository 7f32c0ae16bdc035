"""Contracts of the quality tables: what each run did, what each expectation found, which offsets are missing."""

from expectations.contract import Column, Contract

STAGE_RUNS = Contract(
    table="quality.stage_runs",
    description="One row per run and table that had new input; read = accepted + quarantined + duplicates + skipped + "
    "held. A landing or split table gets one row for each that is accepted; a summarised one is computed again where "
    "it is touched, so that it may get more rows than were read, or fewer.",
    columns=(
        Column("run_id", "string", "Run, sortable by time."),
        Column("cluster", "string", "Kafka cluster, a setting; null: rows of several clusters at once."),
        Column("table", "string", "Table that the stage fills."),
        Column("started_at", "timestamp", "When the stage began."),
        Column("finished_at", "timestamp", "When the stage ended."),
        Column("seconds", "double", "Wall-clock time of the stage, in seconds."),
        Column("status", "string", "passed, broken (a gate broke: what it judged so is held) or failed (an error)."),
        Column(
            "read",
            "bigint",
            "What was read: of a landing stage lines and records, of a split one new rows of its input and held ones "
            "that are judged again, of a summarised one changed rows of its inputs that touch a group, as they were "
            "and as they are; of a blocked batch the same.",
        ),
        Column(
            "accepted",
            "bigint",
            "Of what was read, what was taken in: by a landing or split table as a row of its own, by a summarised one "
            "(all that was read) into the groups that it touches.",
        ),
        Column("quarantined", "bigint", "Rows written to the quarantine."),
        Column("duplicates", "bigint", "Rows that the table or its quarantine held already, or that came twice."),
        Column("skipped", "bigint", "Rows that are not the table's business."),
        Column("held", "bigint", "Rows of scopes, such as topics, that break the contract: they wait."),
        Column(
            "written",
            "bigint",
            "Rows written to the table: of a landing or split stage those accepted, of a summarised one all rows of "
            "the groups that were computed again; null where an earlier version of Afterlog did not say.",
        ),
        Column("input_from", "bigint", "Version of the input read before this batch; null: from the beginning."),
        Column("input_to", "bigint", "Version of the input that the batch ends with; null for a landing stage."),
        Column("message", "string", "What the operator should know, for example why a gate broke."),
        Column(
            "engine",
            "string",
            "spark or duckdb: what decided about the candidates of a split table, or computed a summarised one; null "
            "of other stages, which are Spark's, and where an earlier version of Afterlog did not say.",
        ),
        Column("engine_reason", "string", "Why it was this engine."),
    ),
    grain=("run_id", "cluster", "table", "started_at"),
)

EXPECTATION_RESULTS = Contract(
    table="quality.expectation_results",
    description="One row per run, table and expectation; counts and coordinates, never a value of a record.",
    columns=(
        Column("run_id", "string", "Run, as in quality.stage_runs."),
        Column("cluster", "string", "Kafka cluster, a setting; null: rows of several clusters at once."),
        Column("table", "string", "Table whose gate it is."),
        Column("expectation", "string", "Code of the rule, column.rule, or of the fact."),
        Column("scope", "string", "Part of the batch that was looked at, such as a topic; null: all of it."),
        Column("success", "boolean", "False where the expectation broke the gate."),
        Column("failing", "bigint", "Rows that break the rule."),
        Column("candidates", "bigint", "Rows that the rule speaks about, with those of small batches before."),
        Column("observed", "double", "failing / candidates."),
        Column("tolerance", "double", "Share above which failing rows break the gate."),
        Column("min_failures", "bigint", "Failing rows below which nothing breaks."),
        Column("coordinates", "array<string>", "Of a broken gate: up to 20 failing rows' coordinates."),
        Column(
            "places",
            "array<string>",
            "Of a broken gate: the files and topics that hold most of the failing rows, how many, and where in them.",
        ),
        Column("examined_at", "timestamp", "When the gate ran."),
    ),
    grain=("run_id", "cluster", "table", "expectation", "scope", "examined_at"),
)

GAPS = Contract(
    table="quality.gaps",
    description="One row per range of a topic's offsets that was removed before it was read.",
    columns=(
        Column("run_id", "string", "Run that found it."),
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("table", "string", "Table that the records would have gone to."),
        Column("topic", "string", "Topic that held the records."),
        Column("topic_id", "string", "Its id: a topic that is created again has another."),
        Column("partition", "int", "Partition of the topic."),
        Column("from_offset", "bigint", "First offset that is missing."),
        Column("to_offset", "bigint", "Offset behind the last one that is missing."),
        Column("found_at", "timestamp", "When it was found."),
    ),
    grain=("cluster", "table", "topic_id", "partition", "from_offset"),
)

INCIDENT_ACTIONS = Contract(
    table="quality.incident_actions",
    description="One row per action of a person on an incident: a mute, a resolution or a note.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("action_id", "string", "Id of the action."),
        Column("incident_id", "string", "Incident in gold.dlq_incidents."),
        Column("action", "string", "mute, resolve or note."),
        Column("acted_at", "timestamp", "When."),
        Column("acted_by", "string", "Account that acted."),
        Column(
            "until",
            "timestamp",
            "Until when alerts are muted; of a resolution the last record's time, if that was ahead of the clock.",
        ),
        Column("note", "string", "What the person wrote; null without.", content="text"),
    ),
    grain=("action_id",),
)

ERASURES = Contract(
    table="quality.erasures",
    description="One row per erasure of a person's data and table that it changed, and one with no table for its proof;"
    " never what was erased.",
    columns=(
        Column("erasure_id", "string", "Id of the erasure."),
        Column("began_at", "timestamp", "When it began."),
        Column("finished_at", "timestamp", "When its proof was made."),
        Column("erased_by", "string", "Account that erased."),
        Column("selector", "string", "How the records were named: key, header, where or message; not by what."),
        Column("table", "string", "Table that was changed; null: the whole warehouse."),
        Column("row_count", "bigint", "Rows in which something was erased."),
        Column("cell_count", "bigint", "Cells in which something was erased."),
        Column("file_count", "bigint", "Of the proof: files that were read to their end; else null."),
        Column("left_count", "bigint", "Of the proof: files in which something was found; else null."),
    ),
    grain=("erasure_id", "table"),
)

ERASED_RECORDS = Contract(
    table="quality.erased_records",
    description="One row per landed row that an erasure changed: copies of it never land again.",
    columns=(
        Column("erasure_id", "string", "Erasure in quality.erasures."),
        Column("erased_at", "timestamp", "When the erasure began."),
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("table", "string", "Table of bronze that the row is in."),
        Column("bronze_id", "string", "Its _bronze_id there."),
        Column("dlq_topic", "string", "Dead-letter topic of the record; null of other feeds."),
        Column("dlq_topic_id", "string", "Its topic id, where the source knows it."),
        Column("dlq_partition", "int", "Partition of the record."),
        Column("dlq_offset", "bigint", "Offset of the record."),
        Column("dlq_timestamp", "timestamp", "Kafka's timestamp of the record: a topic can have other records later."),
        Column("is_whole", "boolean", "True: all of its content was erased; false: only what was named."),
    ),
    grain=("erasure_id", "cluster", "table", "bronze_id"),
)

QUALITY = (STAGE_RUNS, EXPECTATION_RESULTS, GAPS, INCIDENT_ACTIONS, ERASURES, ERASED_RECORDS)
