"""State files: a reader sees the old or the new text of a file, also after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines.warehouse import storage
from tests.integration.killed import Killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "silver.dlq_records.json"


@pytest.mark.parametrize("by_uri", [False, True], ids=["directory", "URI"])
def test_a_file_whose_writing_is_cut_off_keeps_its_text(
    by_uri: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = (tmp_path / "a warehouse").as_uri() if by_uri else str(tmp_path / "a warehouse")
    assert storage.read_text(warehouse, NAME) is None
    for text in ("{}", '{"text": "\u00e4 \U0001f600"}'):
        storage.write_text(warehouse, NAME, text)
        assert storage.read_text(warehouse, NAME) == text

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(storage, "bytearray" if by_uri else "replace_text", killed, raising=False)
        with pytest.raises(Killed):
            storage.write_text(warehouse, NAME, "{}")
    assert storage.read_text(warehouse, NAME) == text
    storage.write_text(warehouse, NAME, "{}")
    assert storage.read_text(warehouse, NAME) == "{}"
