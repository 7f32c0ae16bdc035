"""Header profiles -> the table of ``docs/writers.md``: who writes them, what they tell, and what they do not.

``python -m pipelines.columns.what_writers_tell`` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.columns.profiles import Profile, profiles_of
from pipelines.settings.feeds import Dlq

TOLD = {
    "topic": ("original_topic",),
    "partition": ("original_partition",),
    "offset": ("original_offset",),
    "time": ("original_timestamp",),
    "group": ("consumer_group",),
    "connector": ("connector_name",),
    "application": ("application",),
    "class": ("exception_class",),
    "cause": ("exception_cause_class",),
    "message": ("error_message",),
    "stack trace": ("exception_stacktrace",),
    "attempts": ("delivery_count",),
}
"""What a dead letter can tell, in the words of the table, and the fields that say it."""
NEEDED = ("topic", "partition", "offset", "group", "class", "message", "stack trace", "attempts")
"""What a reader misses if a writer does not tell it; a connector or an application stands for a group."""


def table(profiles: Iterable[Profile]) -> str:
    """Return a Markdown table of profiles, a row each."""
    rows = ["| writer | profile | recognised by | tells | does not tell | to learn more |", "|---|---|---|---|---|---|"]
    for profile in profiles:
        fields = {header.field for header in profile.headers}
        fields |= {"consumer_group"} if profile.before_group else set()
        tells = [word for word, names in TOLD.items() if fields.intersection(names)]
        missing = [word for word in NEEDED if word not in tells]
        if {"connector", "application"}.intersection(tells):
            missing = [word for word in missing if word != "group"]
        keys = ", ".join(f"`{key}`" for key in (*profile.mandatory, *profile.mandatory_paths))
        cells = (profile.writer, f"`{profile.name}`", keys, ", ".join(tells), ", ".join(missing), profile.tells_more)
        rows.append("| " + " | ".join(cell or " " for cell in cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(profiles_of(Dlq())))
