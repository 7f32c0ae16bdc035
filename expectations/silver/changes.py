"""Contract of silver.changes: deployments and other changes that people, CI, GitHub or Argo CD tell of."""

from expectations.contract import Column, Contract
from expectations.json_lines import EVIDENCE, READABLE
from expectations.provenance import origin
from expectations.rules import is_true, matches, not_null

COMMIT = r"\A[0-9a-fA-F]{7,64}\z"

CONTRACT = Contract(
    table="silver.changes",
    description="One row per distinct line that tells of a change: a deployment, or what else may have broken things.",
    columns=(
        *origin("bronze.changes"),
        Column(
            "changed_at",
            "timestamp",
            "When it was done.",
            (
                is_true(
                    "moment", "changed_at IS NOT NULL OR time IS NULL", "A time in ISO-8601 with its zone."
                ).failing("named no time in ISO-8601 with its zone"),
            ),
        ),
        Column(
            "application",
            "string",
            "Application id, consumer group, connector or client id that it concerns; null: everything in the cluster.",
            (
                is_true("named", "application <> ''", "An empty name is no name; null means everything.").failing(
                    "came with an empty application"
                ),
            ),
        ),
        Column(
            "what",
            "string",
            "A version, a branch, images or a sentence; null where only the commit is told.",
            (
                not_null("A change says what it is, or its commit.")
                .of("coalesce(what, commit)")
                .where(READABLE)
                .failing("came without what or commit"),
            ),
            content="text",
        ),
        Column(
            "commit",
            "string",
            "Hash of the commit; null where it is not told.",
            (matches("hash", COMMIT, "7 to 64 hexadecimal digits.").failing("named a commit that is no hash"),),
        ),
        Column("link", "string", "Address that tells more; null where it is not told.", content="text"),
        Column("environment", "string", "Such as production; null where it is not told."),
        Column(
            "time",
            "string",
            "The time as the line says it.",
            (not_null("A change has a time.").where(READABLE),),
            evidence=True,
        ),
        *EVIDENCE,
    ),
    grain=("cluster", "_bronze_id"),
)
