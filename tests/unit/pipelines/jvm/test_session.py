"""Options of the JVM, where a user's choice of a garbage collector replaces ours, and of sessions for short work."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from pipelines.installation import ROOT
from pipelines.jvm import launch
from pipelines.jvm.session import LONG_LIVED_JAVA, SHORT_LIVED_JAVA, give_back, with_options_of_user


@pytest.mark.parametrize("own", [SHORT_LIVED_JAVA, LONG_LIVED_JAVA], ids=["short", "long"])
@pytest.mark.parametrize("users", ["-XX:+UseG1GC", "-Dx=y -XX:+UseParallelGC -Xss2m", "-Dx=y"])
def test_java_starts_with_options_of_a_user_and_with_one_collector(own: tuple[str, ...], users: str) -> None:
    options = with_options_of_user(" ".join(("-Da='two  words'", *own)), users)

    java = subprocess.run(
        launch.command("-XX:+PrintFlagsFinal", "-version", options=shlex.split(options)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert java.returncode == 0, java.stderr
    assert "two  words" in options
    flags = [line.split()[1] for line in java.stdout.splitlines() if "command line" in line and "GC " in line]
    counting = users.split() if "GC" in users else own
    chosen = [
        option.removeprefix("-XX:+") for option in counting if option.endswith(("SerialGC", "ParallelGC", "G1GC"))
    ]
    assert [flag for flag in flags if flag != "UseAdaptiveSizePolicyWithSystemGC"] == chosen


def test_what_java_prints_is_no_part_of_a_commands_answer(tmp_path: Path) -> None:
    """Java prints on its standard output why it ends, for example, where its memory is not enough."""
    text = (
        "from pipelines.jvm.session import start\n"
        "from pipelines.settings import Settings\n"
        f"settings = Settings(warehouse={str(tmp_path)!r}, spark={{'spark.app.name': 'chosen'}})\n"
        "spark = start(settings, short_lived=True)\n"
        "spark.sparkContext._jvm.java.lang.System.out.println('from Java')\n"
        "print(spark.sparkContext.appName)\n"
        "spark.stop()\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "chosen\n"
    assert "from Java" in ran.stderr


RATIOS = "-XX:MinHeapFreeRatio={} -XX:MaxHeapFreeRatio={}"


@pytest.mark.parametrize(
    ("users", "shrinks"),
    [
        ("", True),
        ("-XX:+UseG1GC", True),
        (RATIOS.format(0, 5), True),
        (RATIOS.format(50, 60), True),
        ("-XX:+DisableExplicitGC", False),
    ],
)
def test_a_jvm_for_long_work_gives_memory_back(users: str, shrinks: bool) -> None:
    own = with_options_of_user(shlex.join(LONG_LIVED_JAVA), users)
    port, token, process = launch.gateway("", [*shlex.split(own), "-Xmx1g"])
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        for _ in range(9):
            gateway.detach(gateway.new_array(gateway.jvm.long, 10_000_000))
        bean = gateway.jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
        options = gateway.jvm.java.lang.management.ManagementFactory.getPlatformMXBean(bean)
        ratios = [options.getVMOption(f"{end}HeapFreeRatio").getValue() for end in ("Min", "Max")]
        runtime = gateway.jvm.java.lang.Runtime.getRuntime()
        before = runtime.totalMemory()
        give_back(SimpleNamespace(sparkContext=SimpleNamespace(_jvm=gateway.jvm)))  # type: ignore[arg-type]
        assert (runtime.totalMemory() < before - 200_000_000) is shrinks
        assert [options.getVMOption(f"{end}HeapFreeRatio").getValue() for end in ("Min", "Max")] == ratios
    finally:
        launch.end(gateway, process)


def test_a_java_that_cannot_give_memory_back_keeps_it() -> None:
    def lacking(_name: str) -> None:
        raise Py4JError("such as OpenJ9")

    lang = SimpleNamespace(Class=SimpleNamespace(forName=lacking))
    jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))
    give_back(SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm)))  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["-XX:+UseAdaptiveSizePolicyWithSystemGC", "-XX:+UseGCOverheadLimit"])
def test_an_option_about_garbage_collection_chooses_no_collector(option: str) -> None:
    assert with_options_of_user(" ".join(LONG_LIVED_JAVA), option).startswith("-XX:+UseParallelGC ")


def test_a_jvm_that_writes_an_archive_maps_none() -> None:
    own = "-Da='two  words' -XX:SharedArchiveFile='/a b/spark.jsa' -Xlog:disable"
    options = with_options_of_user(own, "-XX:ArchiveClassesAtExit=/c.jsa")
    assert shlex.split(options) == ["-Da=two  words", "-Xlog:disable", "-XX:ArchiveClassesAtExit=/c.jsa"]
