from __future__ import annotations

import re

from pipelines.run import ids


def test_a_run_id_cannot_be_taken_for_a_time_with_a_zone() -> None:
    found = {ids.new_run_id() for _ in range(200)}

    assert len(found) == 200
    assert all(re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z-[a-z]{6}", item) for item in found)
