"""Ids of incidents: eight letters and digits that can be said on the phone, such as ``7KQ2-MD4X``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.text import hint

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: I, L, O and U are not in it
LENGTH = 8
_HEARD = str.maketrans("OIL", "011")


def incident_id(fingerprint: str, first_at: int) -> str:
    """Return the id of an incident that begins at a time in microseconds."""
    return spoken(int.from_bytes(sha256(f"{fingerprint}:{first_at}".encode()).digest()[:5], "big"))


def spoken(number: int) -> str:
    """Return the id of a number of 40 bits."""
    letters = "".join(ALPHABET[number >> 5 * digit & 31] for digit in reversed(range(LENGTH)))
    return f"{letters[:4]}-{letters[4:]}"


def whole_id(wanted: str, known: Iterable[str], what: str, command: str) -> str:
    """Return the known id that a person typed, whole or its beginning; ``command`` lists what there is.

    Raises UsageError: there is none, or several.
    """
    name = read(wanted)
    if name is None:
        raise UsageError(f"'{visible(wanted[:40])}' is no id of {what}, such as 7KQ2-MD4X: see `{command}`.")
    known = sorted(set(known))
    matches = [known_id for known_id in known if known_id.startswith(name)]
    noun = what.rpartition(" ")[2]
    if len(matches) > 1:
        raise UsageError(f"Several {noun}s begin with {name}: {', '.join(matches[:5])}.")
    if not matches:
        raise UsageError(f"There is no {noun} {visible(wanted[:40])}.{hint(name, known)} `{command}` lists all.")
    return matches[0]


def survivor(name: str, into: Mapping[str, str]) -> str:
    """Return the id of the incident that took in another one, directly or not; its own id if none did.

    >>> survivor('a', {'a': 'b', 'b': 'c'})
    'c'
    """
    while name in into:
        name = into[name]
    return name


def page(name: str) -> str:
    """Return the path of an incident's page below the reports' directory; it never changes."""
    return f"incidents/{name}.html"


def read(text: str) -> str | None:
    """Return the beginning of an id that a person typed, in its written form; None if it cannot be one."""
    letters = re.sub(r"[\s-]", "", text).upper().translate(_HEARD)
    if not letters or len(letters) > LENGTH or not set(letters) <= set(ALPHABET):
        return None
    return f"{letters[:4]}-{letters[4:]}" if len(letters) > 4 else letters
