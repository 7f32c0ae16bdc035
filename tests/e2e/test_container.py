"""The image of the Containerfile, built by buildah on a Debian of this machine's package sources, and run read-only.

It takes six minutes and a network, so that only `make test-all` runs it, where buildah and mmdebstrap are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.install import environ
from pipelines.settings import ROOT

NEEDED = ("buildah", "mmdebstrap", "unshare", "chroot")
USER = 10001
BASE = "localhost/base"
# Mounts of a container with a read-only root: names, processes, devices, two directories to write to.
_ENTER = r"""set -e
root=$0
hostname container
mount --bind $root $root
mount -t proc proc $root/proc
mount --bind /dev $root/dev
mount --bind $HOSTS $root/etc/hosts
mount -t tmpfs tmpfs $root/tmp
mount --bind $WORK $root/var/lib/afterlog
mount -o remount,bind,ro $root
exec chroot --userspec=$USER:$USER $root /usr/bin/env -i $VARIABLES \
    /bin/sh -c 'cd /var/lib/afterlog && exec "$0" "$@"' "$@"
"""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(name) is None for name in NEEDED),
        reason=f"needs root and {', '.join(NEEDED)}",
    ),
]


class Image:
    """The built image, unpacked."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = Path()
        (place / "hosts").write_text("127.0.0.1 localhost container\n")

    def buildah(self, *arguments: str | Path) -> str:
        command = [
            "buildah",
            "--storage-driver",
            "vfs",
            "--root",
            self.place / "storage",
            "--runroot",
            self.place / "run",
        ]
        return subprocess.run([*command, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def build(self) -> None:
        sources = next(
            item for item in ("sources.list.d/debian.sources", "sources.list") if Path("/etc/apt", item).exists()
        )
        base = self.place / "base.tar"
        with Path("/etc/apt", sources).open("rb") as given:
            debian = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "bookworm", base, "-"]
            subprocess.run(debian, check=True, stdin=given)
        empty = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", empty, base, "/")
        self.buildah("commit", "--quiet", "--rm", empty, BASE)
        # What this machine needs to reach packages, and an image does not keep.
        mounted = ("/etc/ssl/certs", "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d")
        self.buildah(
            *("bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--build-arg", f"BASE={BASE}"),
            *(part for directory in mounted for part in ("--volume", f"{directory}:{directory}:ro")),
            *(part for name in environ() if name.startswith(("PIP_", "SSL_", "UV_INDEX")) for part in ("--env", name)),
            *("--tag", "localhost/afterlog", ROOT),
        )
        self.root = Path(self.buildah("mount", self.buildah("from", "--pull-never", "localhost/afterlog")))

    def run(self, work: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the entry point with words and more variables, as the image's user, with a directory to work in."""
        config = self.buildah(
            *("inspect", "--type", "image", "--format"),
            "{{range .OCIv1.Config.Env}}{{.}} {{end}}\n{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}",
            "localhost/afterlog",
        )
        variables, entry = config.split("\n")
        variables += "".join(f"{name}={value} " for name, value in more.items())
        outside = {"HOSTS": str(self.place / "hosts"), "WORK": str(work), "USER": str(USER), "VARIABLES": variables}
        return subprocess.run(
            ["unshare", "--mount", "--uts", "sh", "-c", _ENTER, self.root, *entry.split(), *words],
            env={**os.environ, **outside},
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    built = Image(tmp_path_factory.mktemp("image"))
    built.build()
    yield built
    built.buildah("rm", "--all")
    built.buildah("rmi", "--all", "--force")


def test_it_fills_tables_with_a_root_that_nobody_can_write_to(image: Image, tmp_path: Path) -> None:
    work = landed(tmp_path)
    ended = image.run(work, "run", "--feed", "dlq", "--engine", "spark")
    assert (ended.returncode, "gold.dlq_summary" in ended.stdout) == (0, True), ended.stderr
    assert image.run(work, "report").returncode == 0
    assert {path.name for path in work.iterdir()} >= {"landing", "warehouse"}
    assert image.run(work, "run", "--feed", "none").returncode == 2


def test_spark_on_kubernetes_can_start_a_driver_in_it(image: Image, tmp_path: Path) -> None:
    """What the Spark operator starts, but for the master."""
    work = landed(tmp_path)
    (work / "spark.properties").write_text(
        "spark.master=local[2]\nspark.driver.extraClassPath=/opt/afterlog/jars/spark/*\n"
    )
    ended = image.run(
        *(work, "driver", "--properties-file", "/var/lib/afterlog/spark.properties"),
        *("--class", "org.apache.spark.deploy.PythonRunner"),
        "local:///opt/afterlog/lib/python3.11/site-packages/afterlog/__main__.py",
        *("run", "--feed", "dlq", "--engine", "spark"),
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
    )
    assert (ended.returncode, "gold.dlq_summary" in ended.stdout) == (0, True), ended.stderr


def test_spark_on_kubernetes_can_start_an_executor_in_it(image: Image, tmp_path: Path) -> None:
    """It starts with the variables that Spark sets, and looks for its driver, which is not there."""
    names = ("CORES", "ID", "POD_IP", "POD_NAME")
    ended = image.run(
        *(landed(tmp_path), "executor"),
        **{f"SPARK_EXECUTOR_{name}": "1" for name in names},
        SPARK_EXECUTOR_MEMORY="256m",
        SPARK_APPLICATION_ID="application",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:9",
        SPARK_JAVA_OPT_1="-Dtwo=2",
        SPARK_JAVA_OPT_0="-Dspark.driver.port=9",
    )
    assert ended.returncode != 0
    assert "KubernetesExecutorBackend" in ended.stderr
    assert "127.0.0.1:9" in ended.stderr


def landed(directory: Path) -> Path:
    """Return a directory of the image's user, with dead letters in it."""
    work = directory / "work"
    shutil.copytree(ROOT / "tests" / "data" / "dlq", work / "landing" / "dlq")
    for path in (work, *work.rglob("*")):
        os.chown(path, USER, USER)
    return work
