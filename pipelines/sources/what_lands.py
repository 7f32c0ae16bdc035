"""The forms of a feed's files that are read, in a sentence for people whose files are not."""

FORMS = {
    "dlq": "Dead-letter records land as JSON lines, in the capture form or as `kcat -J` writes them",
    "streams-requests": "The brokers' request log lands as Kafka's log4j2 writes it at DEBUG, one request a line",
    "cluster-settings": "A cluster's settings land as the JSON lines that `afterlog collect` writes",
    "acknowledgements": "Acknowledgements land as JSON lines, one for each record that a producer was told of",
    "producers": "Producers' settings land as JSON lines, one statement a line",
    "broker-logs": "The brokers' logs land as Kafka's log4j2 writes them: lines that begin with a date and a time",
    "segments": "Log segments land as copies of a broker's files, <topic>-<partition>/<base offset>.log",
}
"""By landing directory."""


def sentence(directory: str) -> str:
    """Return the sentence on the forms that land in a directory."""
    return f"{FORMS[directory]}: see docs/feeds.md."
