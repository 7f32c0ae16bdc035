"""Dead letters -> samples for pages of incidents, masked as ``[[privacy]]`` says; only if the settings ask for them."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.commands import show
from pipelines.errors import UsageError
from pipelines.warehouse.tables import Warehouse

MOST_INCIDENTS = 50  # open ones, the most urgent first


def shown(warehouse: Warehouse) -> Callable[[str], str]:
    """Return a function that returns the dead letter at TOPIC:PARTITION:OFFSET as text, as ``afterlog show`` prints it.

    If it must not or cannot be shown, such as without the key of hashes, the text says why.
    """

    def letter(coordinate: str) -> str:
        try:
            return show.answer(warehouse, coordinate).result
        except UsageError as error:
            return str(error)

    return letter
