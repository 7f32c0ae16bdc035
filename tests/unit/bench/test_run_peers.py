"""``make bench-peers``: what it prints and keeps of its peers, which here are small processes without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Table
from deltalake import DeltaTable, QueryBuilder

from bench import duck, run_peers
from bench.run_peers import COMMAND, WARM, Counts, Expected, Measured, Peer, Work, arguments, main, ratios
from pipelines.columns import headers
from pipelines.errors import EnvironmentLacking
from pipelines.settings import ROOT

WRITES = """
import json, sys
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake
for name, count in (("silver", int(sys.argv[2])), ("quarantine", int(sys.argv[3]))):
    rows = Table.from_pydict({"a": Array(range(count), DataType.int64())})
    write_deltalake(f"{sys.argv[1]}/{name}", rows)
print("a line before the last")
print(json.dumps({"seconds": 0.25}))
"""


def peer(name: str, *said: str | Path, program: str = WRITES, kinds: tuple[str, ...] = (COMMAND, WARM)) -> Peer:
    """A peer whose process is a small Python program."""

    def prepare(work: Work) -> Callable[[Path], Sequence[str | Path]]:
        return lambda out: [sys.executable, "-c", program, out, *said]

    return Peer(name, name.title(), kinds, prepare, run_peers._tables)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_peers, "RESULTS", tmp_path / "results")
    return tmp_path / "results" / "peers.json"


def test_each_kind_of_measurement_has_its_own_fastest() -> None:
    counts = Counts(1)
    measured = [
        Measured("a", "A", COMMAND, (9.0, 2.0, 3.0), counts),
        Measured("a", "A", WARM, (2.0,), counts),
        Measured("b", "B", COMMAND, (1.5,), counts),
        Measured("b", "B", WARM, (5.0,), counts),
    ]
    assert ratios(measured) == [2.0, 1.0, 1.0, 2.5]


EXPECTED = Expected(1_000, 980, 14)
LAX = peer("lax")
EXACT = replace(LAX, is_exact=True)
REPEATING = replace(LAX, keeps_repeated=True)


@pytest.mark.parametrize(
    ("peer", "counts", "is_right"),
    [
        pytest.param(EXACT, Counts(980, 14, 0), True, id="Afterlog, as the ledger says"),
        pytest.param(EXACT, Counts(981, 13, 0), False, id="Afterlog, one too lax"),
        pytest.param(EXACT, Counts(900, 14, 80), True, id="Afterlog holds a topic"),
        pytest.param(EXACT, Counts(900, 14, 90), False, id="Afterlog holds too many"),
        pytest.param(LAX, Counts(985, 9), True, id="laxer rules"),
        pytest.param(LAX, Counts(985), True, id="no quarantine"),
        pytest.param(LAX, Counts(979, 14), False, id="a good row is lost"),
        pytest.param(LAX, Counts(980, 15), False, id="a good row is quarantined"),
        pytest.param(LAX, Counts(1_001, 0), False, id="a row too many"),
        pytest.param(REPEATING, Counts(985, 15), True, id="repeated rows are kept"),
        pytest.param(REPEATING, Counts(984, 15), False, id="repeated rows are kept, one is lost"),
    ],
)
def test_counts_are_held_against_the_ledger(peer: Peer, counts: Counts, is_right: bool) -> None:
    assert (EXPECTED.doubt(peer, counts) is None) == is_right


@pytest.mark.parametrize(
    "words",
    [
        ["--records", "999"],
        ["--records", "many"],
        ["--attempts", "0"],
        ["--cores", "0"],
        ["--cores", "1000000"],
        ["--only", "nobody"],
        ["--unknown"],
    ],
    ids=" ".join,
)
def test_a_wrong_argument_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(words)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert words[0] in said.err


def test_the_table_and_the_file_have_a_row_for_each_measurement(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generated = 1_000
    monkeypatch.setattr(run_peers, "PEERS", (peer("quick", "985", "4"), peer("other", "985", "4", kinds=(WARM,))))
    assert main(["--records", str(generated), "--attempts", "2"]) == 0
    kept = json.loads(results.read_text())
    assert [(row["peer"], row["measured_as"]) for row in kept["peers"]] == [
        ("quick", COMMAND),
        ("quick", WARM),
        ("other", WARM),
    ]
    command, *warm = kept["peers"]
    assert len(command["seconds"]) == 2
    assert min(command["seconds"]) > 0
    for values in warm:
        assert (values["seconds"], values["records_per_second"], values["to_the_fastest"]) == ([0.25, 0.25], 4_000, 1.0)
        assert (values["accepted"], values["quarantined"], values["held"]) == (985, 4, None)
    assert (kept["records"], kept["expected"]["records"]) == (generated, generated)
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["Quick", COMMAND], ["Quick", WARM], ["Other", WARM]]
    assert rows[1].split()[2:] == ["0.25", "4,000", "1.00", "x", "985", "4", "-"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        pytest.param("sys.exit('first\\nno memory is left')", "no memory is left", id="a sentence"),
        pytest.param("raise ValueError('no column\\n+- a plan')", "ValueError: no column", id="an exception"),
        pytest.param("sys.exit('x' * 10_000)", "x" * 300, id="too long"),
        pytest.param("sys.exit(1)", "it says nothing", id="nothing"),
    ],
)
def test_a_peer_that_fails_is_left_out_with_one_sentence(
    program: str, reason: str, results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = peer("failing", program=f"import sys; {program}")
    monkeypatch.setattr(run_peers, "PEERS", (failing, peer("quick", "985", "4")))
    assert main(["--records", "1000"]) == EnvironmentLacking.exit_code
    assert {row["peer"] for row in json.loads(results.read_text())["peers"]} == {"quick"}
    assert capsys.readouterr().err.splitlines()[-1] == f"Failing ends with 1: {reason}"


def test_some_peers_alone_replace_no_results(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_peers, "PEERS", (peer("quick", "985", "4"), peer("other", program="raise SystemExit(1)")))
    assert main(["--records", "1000", "--only", "quick"]) == 0
    assert not results.exists()


def test_a_peer_that_loses_rows_is_reported(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_peers, "PEERS", (peer("losing", "12", "4"),))
    assert main(["--records", "1000"]) == 1
    assert results.exists()
    assert "The counts of Losing (losing) cannot be right" in capsys.readouterr().err


def test_set_up_installs_no_peer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installed = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    assert not any(text.startswith("databricks") for text in installed)
    assert "databricks-labs-dqx" in run_peers.REQUIREMENTS.read_text(encoding="utf-8")
    assert "default-groups" not in project["tool"]["uv"]


def test_the_duckdb_script_reads_the_headers_of_the_five_profiles() -> None:
    fields = {"topic": "original_topic", "partition": "original_partition", "offset": "original_offset"}
    fields |= {"group": "consumer_group", "message": "error_message", "exception": "exception_class"}
    fields |= {"deliveries": "delivery_count"}
    known = {named.name: {(header.field, header.name) for header in named.headers} for named in headers.PROFILES}
    found = {
        name: {(fields.get(field, field), header) for field, header in of.items()} for name, of in duck.PROFILES.items()
    }
    assert found.keys() == known.keys()
    assert all(found[name] <= known[name] for name in known)


# --- the DuckDB script ------------------------------------------------------------------------------------------------


def text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def line(offset: int, named: dict[str, bytes], value: bytes | None = b"paid", at: int = 1_795_228_875_344) -> str:
    record = {"topic": "dlq", "partition": 0, "offset": offset, "timestamp": at, "timestampType": 0, "key": None}
    landed = [{"key": name, "value": text(content)} for name, content in named.items()]
    return json.dumps({**record, "value": text(value), "headers": landed})


def original(prefix: str, partition: bytes = b"3", offset: bytes = b"7") -> dict[str, bytes]:
    return {f"{prefix}topic": b"orders", f"{prefix}partition": partition, f"{prefix}offset": offset}


BROKER = {**original("__dlq.errors."), "__dlq.errors.group": b"workers", "__dlq.errors.delivery.count": b"2"}
DRAFT = {
    "_dlq.errors.disposition": b"COORDINATOR_INITIATED",
    **original("_dlq.errors.original."),
    "_dlq.errors.original.consumer.group": b"workers",
    "_dlq.errors.timestamp": b"2026-11-21T03:00:00Z",
}
SPRING = original("kafka_dlt-original-", b"\0\0\0\3", b"\0\0\0\0\0\0\0\7")
STREAMS = {**original("__streams.errors."), "__streams.errors.exception": b"java.lang.Error: no", "x": b"a user's"}


def run_duck(landing: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, duck.__file__, landing, out], capture_output=True, text=True, check=False)


def stored(table: Path) -> list[dict[str, Any]]:
    rows = Table.from_arrow(QueryBuilder().register("stored", DeltaTable(str(table))).execute("SELECT * FROM stored"))
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.thorough
def test_the_duckdb_script_fills_four_tables(tmp_path: Path) -> None:
    lines = [
        line(0, BROKER | {"__dlq.errors.message": b"Offset rejected by client."}),
        line(1, DRAFT),
        line(2, SPRING | {"kafka_dlt-exception-message": b"too late"}),
        line(3, STREAMS),
        line(4, original("__connect.errors.")),
        line(4, original("__connect.errors.")),  # repeated
        line(5, STREAMS | BROKER),  # the last writer counts
        line(6, {"x": b"a user's"}),
        line(7, BROKER | {"__dlq.errors.partition": b"-1"}),
        line(8, BROKER | {"__dlq.errors.topic": b"\xff"}),
        line(9, DRAFT | {"_dlq.errors.disposition": b"REJECTED"}),
        line(10, DRAFT | {"_dlq.errors.timestamp": b"yesterday"}),
        line(11, BROKER | {"__dlq.errors.group": b""}),
        line(12, BROKER).replace(str(text(b"paid")), "%"),
        line(13, BROKER)[:40],
        "java.lang.Error",
    ]
    landing, out = tmp_path / "landing", tmp_path / "out"
    (landing / "dlq").mkdir(parents=True)
    (landing / "dlq" / "a.jsonl").write_text("\n".join(lines) + "\n")
    done = run_duck(landing, out)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {name: said[name] for name in ("records", "accepted", "quarantined")} == {
        "records": 16,
        "accepted": 6,
        "quarantined": 9,
    }
    assert said["seconds"] > 0
    assert len(stored(out / "bronze")) == 16
    silver = {row["dlq_offset"]: row for row in stored(out / "silver")}
    assert {offset: row["profile"] for offset, row in silver.items()} == {
        0: "kip-1191",
        1: "kip-1317",
        2: "spring-kafka",
        3: "kafka-streams",
        4: "kafka-connect",
        5: "kip-1191",
    }
    assert {(row["original_topic"], row["original_partition"], row["original_offset"]) for row in silver.values()} == {
        ("orders", 3, 7)
    }
    assert [silver[offset]["disposition"] for offset in (0, 1, 2)] == ["CLIENT_REJECTED", "COORDINATOR_INITIATED", None]
    assert (silver[0]["delivery_count"], silver[0]["consumer_group"]) == (2, "workers")
    assert (silver[2]["error_message"], silver[3]["exception_class"]) == ("too late", "java.lang.Error")
    assert silver[0]["value"] == b"paid"
    assert silver[0]["content_hash"] != silver[1]["content_hash"]
    found = {row["dlq_offset"]: row["violations"] for row in stored(out / "quarantine") if row["dlq_offset"]}
    assert found == {
        6: ["no known profile"],
        7: ["original_partition"],
        8: ["original_topic"],
        9: ["disposition"],
        10: ["routed_at"],
        11: ["consumer_group"],
        12: ["not base64"],
    }
    hours = stored(out / "gold")
    assert sum(row["record_count"] for row in hours) == 6
    assert {row["hour"].hour for row in hours if row["disposition"] == "COORDINATOR_INITIATED"} == {3}


@pytest.mark.thorough
def test_the_duckdb_script_refuses_wrong_places_in_one_sentence(tmp_path: Path) -> None:
    nothing = run_duck(tmp_path, tmp_path / "out")
    assert (nothing.returncode, nothing.stdout, nothing.stderr.count("\n")) == (2, "", 1)
    (tmp_path / "dlq").mkdir()
    (tmp_path / "dlq" / "a.jsonl").write_text("{}\n")
    there = run_duck(tmp_path, tmp_path)
    assert (there.returncode, there.stdout, there.stderr.count("\n")) == (2, "", 1)
