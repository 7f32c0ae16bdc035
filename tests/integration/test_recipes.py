"""The recipes of docs/feeds.md get at the logs: each command runs, and what it lands is read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipelines.settings import ROOT
from pipelines.sources import broker_log, landing
from pipelines.sources.logs import files
from tests.testing.clothes import EPOCH, Logged, dressed

DOCUMENT = (ROOT / "docs" / "feeds.md").read_text(encoding="utf-8")
SECTION = DOCUMENT[DOCUMENT.index("## Get at the logs") : DOCUMENT.index("## A cluster's settings")]
RECIPES = re.findall(r"^```sh\n(.+?)^```$", SECTION, re.DOTALL | re.MULTILINE)
AT = datetime(2026, 11, 21, 2, 41, 6)
STARTED = Logged(
    AT, "INFO", "main", "kafka.server.BrokerServer", "[BrokerServer id=3] Transition from STARTING to STARTED", ""
)
FAILED = Logged(
    *(AT + timedelta(seconds=40), "ERROR", "a-thread", "kafka.server.share.SharePartition"),
    "Failed to write to DLQ, proceeding to ARCHIVED regardless.",
    "org.apache.kafka.common.config.ConfigException: DLQ is not enabled on configured DLQ topic for share group: g, "
    "topic: dlq.orders.\n\tat kafka.Some.method(Some.java:1)",
)
# What programs print, by their arguments; the first whose words are all there.
PRINTED = (
    ({"kubectl", "logs", "--timestamps"}, "strimzi", "stamped"),
    ({"docker", "compose", "logs"}, "kafka", "compose"),
    ({"docker", "logs", "--timestamps"}, "kafka", "stamped"),
    ({"journalctl", "json"}, "kafka", "journal_json"),
    ({"journalctl", "short-iso"}, "kafka", "journal_iso"),
    ({"logcli", "query", "jsonl"}, "log4j2 json", "loki"),
)
FILES = {
    "/var/log/pods/kafka_my-cluster-kafka-0_8f/kafka/0.log": ("strimzi", "cri"),
    "/var/lib/docker/containers/0a/0a-json.log": ("kafka", "docker"),
}


def test_the_document_has_recipes() -> None:
    words = set(re.findall(r"^\w+", "".join(RECIPES), re.MULTILINE))
    assert words == {"kubectl", "docker", "journalctl", "logcli", "cp", "mv"}


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_a_recipe_lands_is_read(recipe: str, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for number, (words, layout, wrapper) in enumerate(PRINTED):
        lines = dressed([STARTED, FAILED], layout, wrapper)
        (programs / f"printed.{number}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        program = programs / next(iter(words & {"kubectl", "docker", "journalctl", "logcli"}))
        program.write_text(
            f"#!{sys.executable}\nimport os, sys\nwords = {{os.path.basename(sys.argv[0]), *sys.argv[1:]}}\n"
            f"known = {[sorted(item) for item, _, _ in PRINTED]}\n"
            "number = next(number for number, one in enumerate(known) if words.issuperset(one))\n"
            f"sys.stdout.write(open(f'{programs}/printed.{{number}}', encoding='utf-8').read())\n"
        )
        program.chmod(0o755)
    for name, (layout, wrapper) in FILES.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"{line}\n" for line in dressed([STARTED, FAILED], layout, wrapper, 90)))
    (tmp_path / "landing" / "broker-logs").mkdir(parents=True)
    script = recipe.replace(" /var/", f" {tmp_path}/var/")
    path = f"{programs}:{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    directory = tmp_path / "landing" / "broker-logs"
    listed = landing.listing(directory)
    assert len(listed) == 1 + recipe.count("\nmv ") // 2
    rotations = files.Rotations(str(directory), listed, None)
    for source in listed:
        work = files.work_on(rotations, source, None, broker_log.rows, "UTC")
        told = [row for row in files.rows_of(work) if row.kind or row.damage or row.error]
        assert [(row.kind, row.logged_micros, row.error) for row in told] == [
            ("BROKER_STARTED", (STARTED.at - EPOCH) // timedelta(microseconds=1), None),
            ("DLQ_WRITE_FAILED", (FAILED.at - EPOCH) // timedelta(microseconds=1), None),
        ]
        text = (told[1].message or (told[1].line or b"").decode()).split("\n", 1)
        assert text[1] == FAILED.stack
