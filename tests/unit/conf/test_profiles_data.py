"""The header profiles that are shipped as data: their form, and what tells each from all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from pipelines.columns.profiles import profiles_of
from pipelines.settings import Dlq, MappedHeader, OwnProfile, RequiredProfile
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


def test_settings_replace_a_shipped_profile_by_its_name_and_switch_others_off() -> None:
    own = OwnProfile(name="brighter", headers=(MappedHeader(name="x", field="original_topic", mandatory=True),))
    taking_part = profiles_of(Dlq(profile=(own,), disabled_profiles=("rebus",)))
    named = {profile.name: profile for profile in taking_part}
    assert named["brighter"].mandatory == ("x",)
    assert named["brighter"].kind == "settings"
    assert "rebus" not in named
    assert len(taking_part) == len(named) == len(profiles_of(Dlq())) - 1
    with pytest.raises(ValidationError, match="nobody is no shipped profile; they are: aws-lambda, brighter"):
        Dlq(disabled_profiles=("nobody",))


def test_a_shipped_profile_can_be_required_unless_it_is_switched_off() -> None:
    require = (RequiredProfile(topic="a", profile="silverback"),)
    assert Dlq(require=require).require == require
    with pytest.raises(ValidationError, match="names no profile"):
        Dlq(require=require, disabled_profiles=("silverback",))
