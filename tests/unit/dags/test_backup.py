"""The DAG `backup` runs as often as `[backup]` says, and not at all without a place."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dags import backup
from pipelines.catalog import POOL


@pytest.mark.parametrize(
    ("section", "schedule"),
    [
        (None, None),
        ({"keep": 3}, None),
        ({"to": "s3://lake/backups"}, timedelta(days=1)),
        ({"to": "backups", "every_hours": 6}, timedelta(hours=6)),
        ({"to": "", "every_hours": "soon"}, None),
    ],
)
def test_its_schedule_follows_the_settings(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any] | None, schedule: timedelta | None
) -> None:
    if section is not None:
        monkeypatch.setenv("AFTERLOG_BACKUP", json.dumps(section))
    assert backup._schedule() == schedule


def test_feeds_run_meanwhile() -> None:
    (task,) = backup.dag.tasks
    assert (task.task_id, task.arguments) == ("backup", ["backup", "--format", "json"])
    assert task.pool != POOL
