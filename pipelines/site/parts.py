"""Parts of pages that take long to make, such as pictures: each is taken from the page that holds it already."""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipelines.site.content import plain

MOST_PARTS = 64  # that several pages share: pages that follow each other often do
_PART = re.compile(r"<!--part ([0-9a-f]{24})-->(.*?)<!--/part-->", re.DOTALL)  # escaped text holds none of it


class Parts:
    """The parts of a site's pages, each known by a hash of what it depends on."""

    def __init__(self, version: str, directory: Path | None) -> None:
        """Take parts from the pages as they are in ``directory``; None: each part is made."""
        self.version = version
        self.directory = directory
        self._recent: OrderedDict[str, Markup] = OrderedDict()
        self._read: tuple[str, dict[str, str]] = "", {}

    def part(self, page: str, about: Any, make: Callable[[], Markup]) -> Markup:
        """Return a part of a page between comments that name it; make it only if it is not there yet."""
        digest = digest_of([self.version, about])
        part = self._recent.pop(digest, None)
        if part is None:
            held = self._held(page).get(digest)
            part = make() if held is None else Markup(held)
        self._recent[digest] = part
        if len(self._recent) > MOST_PARTS:
            self._recent.popitem(last=False)
        return Markup("<!--part {}-->{}<!--/part-->").format(digest, part)

    def _held(self, page: str) -> dict[str, str]:
        """Return the parts of a page as it stands."""
        if self.directory is None:
            return {}
        if self._read[0] != page:
            try:
                text = (self.directory / page).read_text(encoding="utf-8")
            except (OSError, ValueError):
                text = ""
            self._read = page, dict(_PART.findall(text))
        return self._read[1]


def digest_of(about: Any) -> str:
    """Return a hash of all that something depends on."""
    return hashlib.sha256(json.dumps(plain(about), sort_keys=True).encode()).hexdigest()[:24]
