"""The forms of a feed's files that are read, in a sentence for people whose files are not."""

FORMS = {
    "dlq": (
        "Dead-letter records land in the capture form, as kcat -J, rpk, Spark or a console consumer with print options "
        "writes them, as exports of consoles, as a JSON array, Parquet or Avro"
    ),
    "streams-requests": "The brokers' request log lands at DEBUG, in the layouts and wrappers of log4j and containers",
    "cluster-settings": "A cluster's settings land as the JSON lines that `afterlog collect` writes",
    "acknowledgements": "Acknowledgements land as JSON lines, one for each record that a producer was told of",
    "producers": "Producers' settings land as JSON lines, one statement a line",
    "changes": "Changes land as JSON lines, in our own form, or as GitHub's and Argo CD's webhooks send them",
    "broker-logs": "The brokers' logs land in the layouts of log4j and the wrappers of containers and shippers",
    "segments": "Log segments land as copies of a broker's files, <topic>-<partition>/<base offset>.log",
}
"""By landing directory."""


def sentence(directory: str) -> str:
    """Return the sentence on the forms that land in a directory."""
    return f"{FORMS[directory]}: see docs/feeds.md."
