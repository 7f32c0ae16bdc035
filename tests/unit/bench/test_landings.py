"""What lands for two versions to be compared: every feed, in two batches, of which the second continues the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.landings import Landing, captures, generated
from local import bundled
from pipelines.settings import load

OF_THE_DEMO = {directory for directories in bundled.BUNDLED.values() for directory in directories}


def landed(landing: Path) -> dict[str, bytes]:
    return {path.relative_to(landing).as_posix(): path.read_bytes() for path in landing.rglob("*") if path.is_file()}


@pytest.mark.parametrize("what", [captures(), generated(100)], ids=lambda what: what.name)
def test_each_feed_has_news_in_both_batches(tmp_path: Path, what: Landing) -> None:
    landing = tmp_path / "landing"
    what.land(landing, 0)
    first = landed(landing)
    times = {name: (landing / name).stat().st_mtime_ns for name in first}
    what.land(landing, 1)
    second = landed(landing)
    unchanged = {name for name in first if second[name] == first[name]}
    news = {name.partition("/")[0] for name in second.keys() - unchanged if not name.startswith("_")}
    assert {name.partition("/")[0] for name in first} - {"_truth"} == news == OF_THE_DEMO
    assert unchanged
    assert all((landing / name).stat().st_mtime_ns == times[name] for name in unchanged)


def test_the_second_batch_completes_what_the_demo_lands(tmp_path: Path) -> None:
    for batch in range(2):
        captures().land(tmp_path / "landing", batch)
    bundled.land(load(landing=str(tmp_path / "demo")))
    whole = landed(tmp_path / "demo")
    assert whole
    assert whole.items() <= landed(tmp_path / "landing").items()
