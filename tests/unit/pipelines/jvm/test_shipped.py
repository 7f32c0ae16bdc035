"""What executors of a cluster get: jars, and code that needs few packages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from pipelines.jvm import shipped
from pipelines.settings import ROOT
from tests.testing.spark_cluster import PACKAGES

IMPORTED = ("pipelines.sources.segments", "pipelines.sources.request_log", "pipelines.sources.broker_log")
PROGRAM = f"""
import importlib, sys
for module in {IMPORTED}:
    importlib.import_module(module)
print(*sys.modules)
"""


def test_jars_of_a_user_follow_ours(tmp_path: Path) -> None:
    for jar in ("spark/b.jar", "spark/a.jar", "s3/c.jar", "s3/notes"):
        (tmp_path / jar).parent.mkdir(exist_ok=True)
        (tmp_path / jar).touch()
    ours = [f"{tmp_path}/{jar}" for jar in ("spark/a.jar", "spark/b.jar", "s3/c.jar")]
    class_paths = [f"{tmp_path}/spark/*", f"{tmp_path}/s3/*"]
    assert shipped.jars(class_paths, {}) == ",".join(ours)
    assert shipped.jars(class_paths, {"spark.jars": "hdfs:///d.jar"}) == ",".join([*ours, "hdfs:///d.jar"])


def test_the_code_is_that_which_runs_here(tmp_path: Path) -> None:
    with zipfile.ZipFile(shipped.code(tmp_path / "own")) as packed:
        for name in packed.namelist():
            assert packed.read(name) == (ROOT / name).read_bytes()
        folders = {name.partition("/")[0] for name in packed.namelist()}
        assert (folders, packed.testzip()) == ({"expectations", "pipelines"}, None)
        assert {f"{module.replace('.', '/')}.py" for module in IMPORTED} <= {*packed.namelist()}


def test_what_python_workers_import_needs_few_packages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not {"pydantic", "great_expectations", "deltalake", "duckdb", "obstore"} & loaded
    told = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert all(f"`{package}`" in told for package in PACKAGES)
