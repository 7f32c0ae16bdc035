"""A few files -> a warehouse of this version, packed: a test lets each later version open, migrate and run it.

``make keep-warehouse`` writes ``tests/data/warehouses/<version>.tar.xz`` at a release. What is packed never changes
again; a later release packs its own beside it.
"""

from __future__ import annotations

import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from pipelines.settings import ROOT

KEPT = ROOT / "tests" / "data" / "warehouses"
PLANTED = ROOT / "demo"
MOST_BYTES = 1 << 20
LEFT_OUT = ("_reports", "spark-warehouse")
FILES_ONLY = {
    "AFTERLOG_CLUSTER": '"default"',
    "AFTERLOG_KAFKA": "{}",
    "AFTERLOG_TOLERANCE": "1.0",
    **{f"AFTERLOG_{feed}__SOURCE": "files" for feed in ("DLQ", "STREAMS_REQUESTS", "ACKNOWLEDGEMENTS")},
}


def main() -> int:
    """Pack the warehouse of this version; refuse to replace one that is kept already."""
    target = KEPT / f"{version('afterlog')}.tar.xz"
    if target.exists():
        print(f"{target.relative_to(ROOT)} is kept already: what users have of that version does not change.")
        return 1
    with tempfile.TemporaryDirectory(prefix="afterlog-") as made:
        directory = Path(made)
        _land(directory / "landing")
        given = ["--warehouse", os.fspath(directory / "warehouse"), "--landing", os.fspath(directory / "landing")]
        for _ in range(2):  # the second run finds the last files, so that tables have several versions
            _command(["run", *given])
            _land(directory / "landing", again=True)
        packed = pack(directory)
    if len(packed) > MOST_BYTES:
        print(f"The warehouse has {len(packed):,} bytes, more than {MOST_BYTES:,}: let it land less.")
        return 1
    KEPT.mkdir(exist_ok=True)
    target.write_bytes(packed)
    print(f"{target.relative_to(ROOT)}: {len(packed):,} bytes")
    return 0


def _land(landing: Path, again: bool = False) -> None:
    """Land the planted files; at first without those whose names sort last in their directory."""
    for directory in sorted(directory for directory in PLANTED.iterdir() if directory.is_dir()):
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        for path in files if again else files[:-1] or files:
            target = landing / path.relative_to(PLANTED)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(path, target)


def _command(arguments: list[str]) -> None:
    variables: Mapping[str, str] = {**os.environ, **FILES_ONLY}
    subprocess.run([sys.executable, "-m", "afterlog", *arguments], cwd=ROOT, env=variables, check=True)


def pack(directory: Path) -> bytes:
    """Return a directory as a compressed archive, in the order of names and without what tells who packed it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            within = path.relative_to(directory)
            if path.is_file() and not any(part in LEFT_OUT for part in within.parts):
                entry = archive.gettarinfo(path, os.fspath(within))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpack(archive: Path, directory: Path) -> None:
    """Write the files of a kept warehouse below a directory: ``warehouse`` and ``landing``."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(archive.read_bytes()))) as packed:
        packed.extractall(directory, filter="data")


if __name__ == "__main__":
    sys.exit(main())
