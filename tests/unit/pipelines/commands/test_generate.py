from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from expectations.silver.dlq_records import CONTRACT
from pipelines.commands.generate import Truth, generate
from pipelines.commands.generated_letters import PREFIXES
from pipelines.errors import UsageError

Line = tuple[dict[str, Any], str]  # an entry of the ledger, and its line


def lines_of(out: Path, truth: Truth) -> list[Line]:
    texts = {
        file.name: file.read_bytes().removesuffix(b"\n").split(b"\n")
        for file in (out / "dlq").iterdir()
        if file.suffix == ".jsonl"
    }
    entries = list(truth.lines())
    batch = {entry["file"] for entry in entries}
    assert sum(len(lines) for name, lines in texts.items() if name in batch) == len(entries)
    return [(entry, texts[entry["file"]][entry["line"] - 1].decode()) for entry in entries]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated") / "landing"


@pytest.fixture(scope="module")
def truth(out: Path) -> Truth:
    return generate(20_000, 1, out)


@pytest.fixture(scope="module")
def lines(out: Path, truth: Truth) -> list[Line]:
    return lines_of(out, truth)


def test_the_ledger_speaks_of_each_line(lines: list[Line], truth: Truth) -> None:
    assert len(lines) == 20_000
    for entry, line in lines:
        assert entry["bronze_id"] == hashlib.sha256(line.encode()).hexdigest()
        if entry["outcome"] == "quarantined":
            continue
        record = json.loads(line)
        assert (record["topic"], record["partition"], record["offset"]) == (
            entry["dlq_topic"],
            entry["dlq_partition"],
            entry["dlq_offset"],
        )
        assert any(header["key"].startswith(PREFIXES[entry["profile"]]) for header in record["headers"])
    counts = truth.counts()
    assert counts["outcomes"] == dict(Counter(entry["outcome"] for entry, _ in lines))
    assert counts["kinds"] == dict(Counter(f"{entry['kind']}/{entry['outcome']}" for entry, _ in lines))


def test_all_kinds_of_traffic_are_there(lines: list[Line]) -> None:
    profiles = Counter(entry["profile"] for entry, _ in lines)
    kinds = {entry["kind"] for entry, _ in lines}

    assert profiles.most_common(1)[0][0] == "kip-1191"
    assert set(profiles) == {*PREFIXES, None}
    assert kinds == {
        *("ordinary", "incident", "poison_pill", "second_hop", "self_loop", "control_marker", "headers_only"),
        *("collision", "bad", "duplicate", "conflict"),
    }


def test_bad_records_break_every_rule_on_what_headers_say(lines: list[Line]) -> None:
    bad = [entry for entry, _ in lines if entry["kind"] == "bad"]
    codes = {code for entry in bad for code in entry["violations"]}
    origin = ("original_topic", "original_partition", "original_offset")
    columns = (*origin, "header_profile", "disposition", "consumer_group", "routed_at", "error")
    expected = {rule.code for rule in CONTRACT.rules if rule.code.split(".")[0] in columns}

    assert 195 <= len(bad) <= 200
    of_settings = {f"header_profile.{name}" for name in ("required", "mandatory", "decodes")}
    assert codes == expected - of_settings


def test_offsets_and_time_increase_in_each_partition(lines: list[Line]) -> None:
    seen: dict[tuple[str, int], tuple[int, int]] = {}
    for entry, line in lines:
        if entry["file"].endswith("redelivered.jsonl") or entry["violations"] == ["error.readable"]:
            continue
        record = json.loads(line)
        place = (record["topic"], record["partition"])
        offset, timestamp = seen.get(place, (-1, 0))
        assert record["offset"] > offset
        assert record["timestamp"] >= timestamp
        seen[place] = (record["offset"], record["timestamp"])


def test_redelivered_lines_repeat_or_contradict_others(lines: list[Line]) -> None:
    first = {line: entry for entry, line in lines if entry["kind"] not in ("duplicate", "conflict")}
    places = {(e["dlq_topic"], e["dlq_partition"], e["dlq_offset"]): e for e in first.values()}
    for entry, line in lines:
        place = (entry["dlq_topic"], entry["dlq_partition"], entry["dlq_offset"])
        if entry["kind"] == "duplicate":
            assert first[line]["outcome"] == "accepted"
            assert first[line]["file"] != entry["file"]
        if entry["kind"] == "conflict":
            loser = max(entry, places[place], key=lambda e: str(e["bronze_id"]))
            winner = min(entry, places[place], key=lambda e: str(e["bronze_id"]))
            assert line not in first
            assert loser["violations"] == ["grain.conflict"]
            assert winner["outcome"] == "accepted"


def test_an_incident_is_a_time_in_which_a_group_fails_record_after_record(lines: list[Line], truth: Truth) -> None:
    incidents = truth.counts()["incidents"]
    records = Counter(e["incident"] for e, _ in lines if e["outcome"] == "accepted" and e["incident"])

    assert len(incidents) == 3
    assert {incident["name"]: incident["records"] for incident in incidents} == dict(records)
    assert min(records.values()) > 100
    assert all(incident["from"] < incident["to"] for incident in incidents)


def test_a_poison_pill_is_one_source_record_again_and_again(lines: list[Line], truth: Truth) -> None:
    pills = {pill["name"]: pill for pill in truth.counts()["poison_pills"]}
    found = Counter()
    for entry, line in lines:
        if entry["poison_pill"] and entry["outcome"] == "accepted":
            headers = {h["key"]: base64.b64decode(h["value"]).decode() for h in json.loads(line)["headers"]}
            pill = pills[entry["poison_pill"]]
            assert headers["__dlq.errors.offset"] == str(pill["original_offset"])
            assert headers["__dlq.errors.group"] == pill["consumer_group"]
            assert entry["disposition"] == "MAX_DELIVERY_ATTEMPTS_REACHED"
            found[pill["name"]] += 1

    assert {name: pill["records"] for name, pill in pills.items()} == found
    assert max(found.values()) >= 10


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def files(directory: Path) -> dict[str, bytes]:
        return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        generate(500, seed, tmp_path / name)

    assert files(tmp_path / "one") == files(tmp_path / "same")
    assert files(tmp_path / "one") != files(tmp_path / "other")
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_later_batch_continues_the_one_before(tmp_path: Path) -> None:
    first = generate(2_000, 3, tmp_path)
    second = generate(300, 3, tmp_path, batch=1)
    ends: dict[tuple[str, int], int] = {}
    for entry, _ in lines_of(tmp_path, first):
        place = (entry["dlq_topic"], entry["dlq_partition"])
        ends[place] = max(entry["dlq_offset"], ends.get(place, 0))
    starts: dict[tuple[str, int], int] = {}
    for entry, _ in lines_of(tmp_path, second):
        place = (entry["dlq_topic"], entry["dlq_partition"])
        starts[place] = min(entry["dlq_offset"], starts.get(place, entry["dlq_offset"]))

    assert starts
    assert all(offset == ends.get(place, -1) + 1 for place, offset in starts.items() if place[0] != "dlq.loop")
    assert first.counts()["to"] == second.counts()["from"] == "2026-11-21T00:00:00.000Z"
    assert second.counts()["to"] == "2026-11-21T01:00:00.000Z"
    assert second.counts()["incidents"]


def test_offsets_can_start_anywhere(tmp_path: Path) -> None:
    truth = generate(200, 3, tmp_path, start_offset=1_000)

    assert min(entry["dlq_offset"] for entry in truth.lines()) == 1_000


@pytest.mark.parametrize(("share", "bad"), [(0.0, 0), (0.25, 250), (1.0, 1_000)], ids=["none", "a quarter", "all"])
def test_the_share_of_bad_records_can_be_chosen(share: float, bad: int, tmp_path: Path) -> None:
    counts = generate(1_000, 3, tmp_path, bad_share=share).counts()

    assert counts["records"] == 1_000
    assert sum(count for kind, count in counts["kinds"].items() if kind.startswith("bad/")) == pytest.approx(bad, abs=5)


@pytest.mark.parametrize("records", [1, 19, 20, 21])
def test_few_records_are_as_many_as_asked_for(records: int, tmp_path: Path) -> None:
    assert len(list(generate(records, 3, tmp_path).lines())) == records


def test_it_says_what_it_wrote(tmp_path: Path) -> None:
    said = str(generate(100, 3, tmp_path))

    assert said.startswith(f"100 lines below {tmp_path / 'dlq'} (expected: ")
    assert "accepted" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"records": 0}, "1 or more", id="no records"),
        pytest.param({"bad_share": 1.5}, "from 0 to 1", id="share"),
        pytest.param({"batch": -1}, "0 or more", id="batch"),
        pytest.param({"start_offset": -1}, "0 or more", id="offset"),
        pytest.param({"batch": 2}, "continues batch 1, which is not in", id="no batch before"),
        pytest.param({"batch": 1}, "is in .* already", id="batch is there"),
        pytest.param({}, "holds files already", id="files are there"),
    ],
)
def test_what_cannot_be_generated_is_said(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "_truth").mkdir()
    (tmp_path / "_truth" / "batch-0001.json").write_text("{}")
    if arguments.get("batch") == 2:
        (tmp_path / "_truth" / "batch-0001.json").unlink()

    with pytest.raises(UsageError, match=said):
        generate(**{"records": 10, "seed": 1, "out": tmp_path, **arguments})
    assert not (tmp_path / "dlq").exists()


def test_files_of_others_are_not_mixed_with(tmp_path: Path) -> None:
    (tmp_path / "dlq").mkdir()
    (tmp_path / "dlq" / "real.jsonl").touch()
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="holds files already"):
        generate(10, 1, tmp_path)
    with pytest.raises(UsageError, match="cannot be kept"):
        generate(10, 1, tmp_path / "file")
