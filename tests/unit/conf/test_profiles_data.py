"""The header profiles that are shipped as data: their form, and what tells each from all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.settings.profiles import SHIPPED, shipped_profiles
from tests.testing.writers import RECORDS

PATHS = sorted(SHIPPED.glob("*.toml"))
ANYBODYS = {
    *("traceparent", "tracestate", "baggage", "content-type", "contentType", "__TypeId__"),
    *("topic", "url", "payload"),
}
each_profile = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def told_by(name: str) -> set[str]:
    (profile,) = (profile for profile in shipped_profiles() if profile.name == name)
    return {header.name or header.path or "" for header in profile.headers if header.mandatory}


@each_profile
def test_a_file_has_one_profile_its_source_and_a_record(path: Path) -> None:
    (profile,) = (profile for profile in shipped_profiles() if profile.name == path.stem)
    assert profile.writer
    assert not ANYBODYS.intersection(header.name for header in profile.headers)
    assert any(line.startswith("# Source: ") for line in path.read_text().splitlines())
    assert path.stem in RECORDS


@each_profile
def test_what_tells_a_profile_tells_it_from_all_others(path: Path) -> None:
    told = told_by(path.stem)
    for other in PATHS:
        assert other == path or not told_by(other.stem) <= told, (
            f"a record of {path.stem} would also be of {other.stem}"
        )


def test_each_record_belongs_to_a_profile() -> None:
    assert {name.removesuffix(".twice") for name in RECORDS} == {path.stem for path in PATHS}
