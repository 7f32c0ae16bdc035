from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import jars

DELTA = '<dependency org="org.example" name="delta" rev="1.0" conf="spark->default"/>'
AWS = '<dependency org="org.example" name="aws" rev="3.0" conf="s3->default"/>'
GOOGLE = '<dependency org="org.example" name="aws" rev="3.0" conf="gs->default"/>'
KAFKA = '<dependency org="org.example" name="kafka" rev="2.0" conf="broker->default"/>'


def ivy_file(tmp_path: Path, *dependencies: str) -> Path:
    file = tmp_path / "ivy.xml"
    file.write_text(
        '<ivy-module version="2.0"><info organisation="afterlog" module="jars"/>'
        '<configurations><conf name="spark"/><conf name="broker"/><conf name="s3"/><conf name="gs"/></configurations>'
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
    publish(repository, "aws", "3.0", b"aws 3.0")
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


def test_damage_is_noticed_named_and_mended(directory: Path, tmp_path: Path) -> None:
    ivy = ivy_file(tmp_path, DELTA, KAFKA)
    jars.fetch(directory, ivy)
    jar = directory / "spark" / "delta-1.0.jar"
    harms: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: jar.write_bytes(b"delta"), "delta-1.0.jar"),
        (jar.unlink, "delta-1.0.jar"),
        (lambda: jar.with_name("delta-0.9.jar").write_bytes(b"old"), "delta-0.9.jar"),
        (lambda: (directory / "stamp.json").write_text("{"), "not in"),
    )
    for harm, named in harms:
        assert jars.fault(directory, ivy) is None
        harm()
        assert named in (jars.fault(directory, ivy) or "")
        assert jars.fetch(directory, ivy) is True
        assert jars.sizes(directory) == {"spark/delta-1.0.jar": 9, "broker/kafka-2.0.jar": 9}


def test_changed_ivy_file_is_fetched_anew(directory: Path, tmp_path: Path) -> None:
    jars.fetch(directory, ivy_file(tmp_path, DELTA, KAFKA))
    publish(tmp_path / "a repository", "delta", "1.1", b"delta 1.1!")
    ivy = ivy_file(tmp_path, DELTA.replace("1.0", "1.1"), KAFKA)
    assert "has changed" in (jars.fault(directory, ivy) or "")
    jars.fetch(directory, ivy)
    assert jars.sizes(directory) == {"spark/delta-1.1.jar": 10, "broker/kafka-2.0.jar": 9}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The source of a log store, which a double compiles; it needs Delta's jar."""
    source = tmp_path / "S3LogStore.java"
    source.write_text("class S3LogStore {}")

    def make(directory: Path, delta: Sequence[Path]) -> None:
        (directory / "log-store.jar").write_text(source.read_text() + "".join(jar.name for jar in delta))

    monkeypatch.setattr(jars.log_store, "SOURCE", source)
    monkeypatch.setattr(jars.log_store, "make", make)
    return source


def test_jars_of_s3_come_when_they_are_asked_for_and_are_kept_up_to_date(
    directory: Path, tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "a repository", "delta-storage", "1.0", b"storage")
    storage = DELTA.replace('"delta"', '"delta-storage"')
    ivy = ivy_file(tmp_path, DELTA, storage, KAFKA, AWS, GOOGLE)
    monkeypatch.setattr(jars, "IVY_FILE", ivy)
    monkeypatch.setattr(jars.fault, "__defaults__", (directory, ivy))
    jars.fetch(directory, ivy)
    assert not (directory / "s3").exists()
    with pytest.raises(EnvironmentLacking, match=r"^A warehouse on S3 needs jars .*; run `make setup-s3`\.$"):
        jars.class_path("s3", directory)
    spark = (directory / "spark" / "delta-1.0.jar").stat().st_mtime_ns

    assert jars.fetch(directory, ivy, asked=["s3"]) is True
    assert jars.class_path("s3", directory) == os.fspath(directory / "s3" / "*")
    assert (directory / "s3" / "log-store.jar").read_text() == "class S3LogStore {}delta-storage-1.0.jar"
    assert jars.fetch(directory, ivy) is False
    assert (directory / "spark" / "delta-1.0.jar").stat().st_mtime_ns == spark

    compiled.write_text("class S3LogStore { }")
    assert jars.fault_of("s3", directory)
    assert jars.wanted(directory, ivy) == ("s3",)
    assert jars.fetch(directory, ivy) is True
    assert (directory / "s3" / "log-store.jar").read_text().startswith("class S3LogStore { }")
    with pytest.raises(EnvironmentLacking, match=r"on Google Cloud Storage needs .*; run `make setup-gs`\.$"):
        jars.class_path("gs", directory)
    assert jars.wanted(directory, ivy, ["gs"]) == ("gs",)
    assert jars.fetch(directory, ivy, ["gs"]) is True
    assert [jars.fault_of(conf, directory) for conf in ("s3", "gs")] == [None, None]
    (directory / "stamp.json").unlink()
    assert jars.wanted(directory, ivy) == ("spark", "broker", "s3", "gs")
    assert jars.fetch(directory, ivy) is True
    assert [jars.fault(directory, ivy), *(jars.fault_of(conf, directory) for conf in ("s3", "gs"))] == [None] * 3


def test_a_log_store_that_does_not_compile_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "S3LogStore.java"
    source.write_text("class S3LogStore {")
    monkeypatch.setattr(jars.log_store, "SOURCE", source)
    with pytest.raises(EnvironmentLacking, match=r"^S3LogStore\.java cannot be compiled \(.*\); run `make setup-s3`"):
        jars.log_store.make(tmp_path, [])


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
