from __future__ import annotations

import os
import socket
import warnings
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import jars

DELTA = '<dependency org="org.example" name="delta" rev="1.0" conf="spark->default"/>'
KAFKA = '<dependency org="org.example" name="kafka" rev="2.0" conf="broker->default"/>'


def ivy_file(tmp_path: Path, *dependencies: str) -> Path:
    file = tmp_path / "ivy.xml"
    file.write_text(
        '<ivy-module version="2.0"><info organisation="afterlog" module="jars"/>'
        '<configurations><conf name="spark"/><conf name="broker"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )
    return file


def publish(repository: Path, name: str, revision: str, jar: bytes) -> None:
    place = repository / "org" / "example" / name / revision
    place.mkdir(parents=True)
    (place / f"{name}-{revision}.jar").write_bytes(jar)
    (place / f"{name}-{revision}.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>org.example</groupId><artifactId>{name}</artifactId><version>{revision}</version></project>"
    )


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory for jars, beside a Maven repository with two jars; the path contains a space."""
    repository = tmp_path / "a repository"
    publish(repository, "delta", "1.0", b"delta 1.0")
    publish(repository, "kafka", "2.0", b"kafka 2.0")
    monkeypatch.setenv("AFTERLOG_MAVEN", repository.as_uri() + "/")
    monkeypatch.setenv("AFTERLOG_CACHE", os.fspath(tmp_path / "a cache"))
    return tmp_path / "the project" / ".jars"


def test_each_configuration_gets_its_jars_once(directory: Path, tmp_path: Path) -> None:
    ivy = ivy_file(tmp_path, DELTA, KAFKA)
    assert jars.fetch(directory, ivy) is True
    assert (directory / "spark" / "delta-1.0.jar").read_bytes() == b"delta 1.0"
    assert jars.sizes(directory) == {"spark/delta-1.0.jar": 9, "broker/kafka-2.0.jar": 9}
    assert {entry.name for entry in directory.iterdir()} == {"spark", "broker", "stamp.json", ".lock"}
    before = (directory / "stamp.json").stat().st_mtime_ns
    assert jars.fetch(directory, ivy) is False
    assert (directory / "stamp.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("harm", ["truncated", "removed", "added", "stamp"])
def test_damage_is_noticed_named_and_mended(directory: Path, tmp_path: Path, harm: str) -> None:
    ivy = ivy_file(tmp_path, DELTA, KAFKA)
    jars.fetch(directory, ivy)
    jar = directory / "spark" / "delta-1.0.jar"
    match harm:
        case "truncated":
            jar.write_bytes(b"delta")
        case "removed":
            jar.unlink()
        case "added":
            jar.with_name("delta-0.9.jar").write_bytes(b"old")
        case "stamp":
            (directory / "stamp.json").write_text("{")
    reason = jars.fault(directory, ivy)
    assert reason
    assert {"truncated": "delta-1.0.jar", "removed": "delta-1.0.jar", "added": "delta-0.9.jar", "stamp": "not in"}[
        harm
    ] in reason
    assert jars.fetch(directory, ivy) is True
    assert jars.sizes(directory) == {"spark/delta-1.0.jar": 9, "broker/kafka-2.0.jar": 9}


def test_changed_ivy_file_is_fetched_anew(directory: Path, tmp_path: Path) -> None:
    jars.fetch(directory, ivy_file(tmp_path, DELTA, KAFKA))
    publish(tmp_path / "a repository", "delta", "1.1", b"delta 1.1!")
    ivy = ivy_file(tmp_path, DELTA.replace("1.0", "1.1"), KAFKA)
    assert "has changed" in (jars.fault(directory, ivy) or "")
    jars.fetch(directory, ivy)
    assert jars.sizes(directory) == {"spark/delta-1.1.jar": 10, "broker/kafka-2.0.jar": 9}


def test_missing_artefact_is_named_and_leaves_what_was_there(directory: Path, tmp_path: Path) -> None:
    jars.fetch(directory, ivy_file(tmp_path, DELTA, KAFKA))
    with pytest.raises(EnvironmentLacking, match=r"does not have org\.example#delta;9\.9; correct the revision"):
        jars.fetch(directory, ivy_file(tmp_path, DELTA.replace("1.0", "9.9"), KAFKA))
    assert jars.sizes(directory) == {"spark/delta-1.0.jar": 9, "broker/kafka-2.0.jar": 9}
    assert jars.fault(directory, ivy_file(tmp_path, DELTA, KAFKA)) is None


def test_missing_jar_of_a_published_module_is_named(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "a repository/org/example/kafka/2.0/kafka-2.0.jar").unlink()
    with pytest.raises(EnvironmentLacking, match=r"org\.example#kafka;2\.0"):
        jars.fetch(directory, ivy_file(tmp_path, DELTA, KAFKA))
    assert jars.sizes(directory) == {}


def test_unreachable_repository_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, directory: Path, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setenv("AFTERLOG_MAVEN", f"http://user:secret@127.0.0.1:{port}/maven/")
        with pytest.raises(EnvironmentLacking) as caught:
            jars.fetch(directory, ivy_file(tmp_path, DELTA, KAFKA))
    assert str(caught.value) == (
        f"The JVM jars cannot be fetched from 127.0.0.1:{port} (Connection refused); check network and proxy, "
        "or name a mirror in AFTERLOG_MAVEN, then run `make setup` again."
    )
    assert {entry.name for entry in directory.iterdir()} == {".lock"}


def test_full_disk_is_one_sentence() -> None:
    told = "java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream.writeBytes"
    assert jars._reason(told) == "The disk is full; free about 200 MB, then run `make setup` again."


def test_directory_that_cannot_be_written_is_one_sentence(directory: Path, tmp_path: Path) -> None:
    directory.parent.mkdir()
    directory.write_text("a file, where a directory is due")
    with pytest.raises(EnvironmentLacking, match=r"\.jars: File exists; fix that, then run `make setup` again\.$"):
        jars.fetch(directory, ivy_file(tmp_path, DELTA, KAFKA))


def test_class_path_without_jars_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacking, match=r"^The JVM jars are not in .*none; run `make setup`\.$"):
        jars.class_path("spark", tmp_path / "none")


def test_class_path_of_the_project_holds_delta_and_the_kafka_source() -> None:
    directory = Path(jars.class_path("spark").removesuffix("/*"))
    names = {entry.name.rpartition("-")[0] for entry in directory.iterdir()}
    assert {"delta-spark_4.1_2.13", "delta-storage", "spark-sql-kafka-0-10_2.13", "kafka-clients"} <= names


def test_trust_store_holds_the_authorities_of_this_machine(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import pkcs12

    options = jars._trusting(tmp_path)
    if not options:
        pytest.skip("this machine lists no certificate authorities in one file")
    with warnings.catch_warnings(action="ignore"):
        held = pkcs12.load_pkcs12((tmp_path / "authorities.p12").read_bytes(), b"changeit")
    assert options[0] == f"-Djavax.net.ssl.trustStore={tmp_path / 'authorities.p12'}"
    assert held.additional_certs
