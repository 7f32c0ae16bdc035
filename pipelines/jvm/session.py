"""Spark sessions: on this machine by default, or on a cluster; jars from disk, in-memory catalog, quiet."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines import scratch
from pipelines.errors import EnvironmentLacking
from pipelines.jvm import class_data_archive, jars, java, jvm_log, launch, shipped
from pipelines.jvm.properties import LOCAL, check_reachable, defaults, for_store, is_cluster
from pipelines.settings import ROOT, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# For short work: a JIT compiler that stops at its first tier, and no generated code for expressions that see few rows.
# This halves the time of small batches and doubles the time of large ones. At the first tier Java's default code cache
# has 48 MB, which is too little for Spark: Java would drop code and compile it again all the time.
SHORT_WORK = 64 << 20  # a run with fewer unread bytes is short work
# A young generation that holds what some queries' plans leave behind, so that few collections copy it.
SHORT_LIVED_JAVA = (*launch.LIGHT, "-XX:ReservedCodeCacheSize=256m", "-XX:InitialRAMPercentage=6", "-XX:NewRatio=1")
# For long work nobody waits for a pause: with G1, Java's default, many dead letters take a fifth longer. With the other
# option the heap can shrink when `give_back` asks for it.
LONG_LIVED_JAVA = ("-XX:+UseParallelGC", "-XX:+UseAdaptiveSizePolicyWithSystemGC")
# Percent of the heap that may stay free when it shrinks. Only `give_back` sets it: if it always held, Java would shrink
# the heap in the middle of a batch, and collect garbage all the time.
MOST_FREE = 40
OPTIONS = {"spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"}
COLLECTOR = re.compile(r"-XX:\+Use(?:Serial|Parallel|G1|Z|Shenandoah|Epsilon)GC(?:\s+|$)")
SHORT_LIVED = {
    "spark.sql.shuffle.partitions": "1",  # a second task costs more than it computes
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # it would make each shuffle a separate job
}


# For a session that lives for months: how many finished jobs and queries Spark keeps for its UI, which is off, and how
# soon it frees cached tables and broadcasts that nothing refers to any more.
LONG_LIVED = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.cleaner.periodicGC.interval": "5min",
}


log = logging.getLogger("afterlog")

STANDARD_ERROR = 2  # its file descriptor

BEHIND = "SPARK_DIST_CLASSPATH"  # what Spark's launcher puts behind all other jars

# Names that PySpark looks up in the JVM with each call. To look up a name takes a scan of all jars.
LOOKED_UP = ("functions", "org.apache.spark.sql.functions", "PythonSQLUtils", "PythonUtils", "org", "java", "scala")


@contextlib.contextmanager
def spark_session(settings: Settings, short_lived: bool = False) -> Iterator[SparkSession]:
    """Yield a session, then stop it; a process's first one starts the JVM, if ``short_lived`` for short work."""
    spark = start(settings, short_lived)
    try:
        yield spark
    finally:
        spark.stop()


def start(settings: Settings, short_lived: bool = False) -> SparkSession:
    """Start a session on this machine, or on the master that ``[spark]`` names, which gets the code and the jars.

    A session on a cluster is never ``short_lived``.

    Raises EnvironmentLacking: no Java 17 or 21, no jars, or no session on the cluster. UsageError: the variables of S3
    cannot be used, there is no such kind of master, or a cluster may not reach the warehouse.
    """
    on_cluster = is_cluster(settings.spark)
    check_reachable(settings, "warehouse")
    java.ensure()
    # Spark gives Python timestamps without a zone, in the process's time zone: only UTC makes each of them unambiguous.
    os.environ["TZ"] = "UTC"
    time.tzset()
    class_path, for_executors = jars.class_path("spark"), [jars.class_path("spark")]
    store = jars.of(settings.warehouse)
    if store == jars.S3 or (store and not jars.fault_of(store)):  # others can be those of the cluster, or of [spark]
        for_executors.append(jars.class_path(store))
        _add_behind(jars.class_path(store))
    own = Path(scratch.directory("spark"))  # Spark must not put its warehouse in the user's directory
    os.environ.setdefault("SPARK_LOCAL_DIRS", os.fspath(own / "local"))  # a killed JVM leaves files here
    short_lived = short_lived and not on_cluster
    properties = {
        "spark.master": LOCAL,
        "spark.app.name": "afterlog",
        "spark.driver.extraClassPath": class_path,
        "spark.sql.warehouse.dir": (own / "tables").as_uri(),
        "spark.driver.extraJavaOptions": _java_options(own, short_lived),
        **for_store(settings.warehouse),
    }
    if not on_cluster:
        properties |= {
            "spark.executor.extraClassPath": os.pathsep.join(for_executors),
            "spark.executorEnv.PYTHONPATH": os.fspath(ROOT),  # Python workers decode segments with this project's code
        }
    os.environ.setdefault("PYSPARK_PYTHON", shipped.python(settings.spark) if on_cluster else sys.executable)
    ours = {**properties, **defaults(settings.spark), **(SHORT_LIVED if short_lived else {})}
    chosen = {**ours, **settings.spark}
    for name in OPTIONS & ours.keys() & settings.spark.keys():
        chosen[name] = with_options_of_user(ours[name], settings.spark[name])
    if on_cluster:
        chosen[shipped.JARS] = shipped.jars(for_executors, settings.spark)
    with ThreadPoolExecutor(1) as pool:  # on the main thread PySpark would handle SIGINT itself
        try:
            spark = pool.submit(_session, chosen).result()
        except Exception as error:
            if not on_cluster:
                raise
            raise EnvironmentLacking(
                f"No session begins on {chosen['spark.master']}: check its address, and that its machines reach this "
                "one; --verbose shows what Spark logs."
            ) from error
    jvm: Any = spark.sparkContext._jvm
    for name in LOOKED_UP:
        vars(jvm).setdefault(name, getattr(jvm, name))
    _quieten(spark)
    if on_cluster:
        spark.sparkContext.addPyFile(os.fspath(shipped.code(own)))
    return spark


def _quieten(spark: SparkSession) -> None:
    """Keep Spark and PySpark from logging what is no error, and errors that are raised anyway."""
    from pyspark.logger import PySparkLogger

    spark.sparkContext.setLogLevel("ERROR")
    py4j = logging.getLogger("py4j")
    py4j.setLevel(max(py4j.level, logging.WARNING))
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # These loggers can quote a record's value. A filter stays if logging is configured later, which would enable a
        # disabled logger again.
        PySparkLogger.getLogger(name).addFilter(_nothing)


def _session(properties: dict[str, Any]) -> SparkSession:
    """Make the session. What its JVM prints goes to standard error, as a command's output is its answer alone."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(properties.items()))
        gateway = launch_gateway(conf, popen_kwargs={"stdout": STANDARD_ERROR})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
    return SparkSession.builder.config(map=properties).getOrCreate()


def _add_behind(class_path: str) -> None:
    """Add to the end of the class path of the next JVM: in front of it, the archive of classes would no longer fit."""
    there = [path for path in os.environ.get(BEHIND, "").split(os.pathsep) if path]
    if class_path not in there:
        os.environ[BEHIND] = os.pathsep.join((*there, class_path))


def with_options_of_user(own: str, users: str) -> str:
    """Return both Java options without what Java refuses: a second garbage collector, to write an archive and map one.

    The user's choice counts.
    """
    if COLLECTOR.search(users):
        own = COLLECTOR.sub("", own)
    if "-XX:ArchiveClassesAtExit=" in users:
        own = shlex.join(option for option in shlex.split(own) if not option.startswith("-XX:SharedArchiveFile="))
    return f"{own} {users}"


def tune_for(spark: SparkSession, settings: Settings, short_work: bool) -> None:
    """Tune a running session of this machine, not started as ``short_lived``, for short or for long work again."""
    if is_cluster(settings.spark):
        return
    for name, value in SHORT_LIVED.items():
        if name in settings.spark:
            continue
        if short_work:
            spark.conf.set(name, value)
        else:
            spark.conf.unset(name)


def give_back(spark: SparkSession) -> None:
    """Let Java collect garbage and give the memory back, which takes up to half a second: DuckDB may need it next.

    A Java that cannot do this keeps its memory.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm: Any = spark.sparkContext._jvm
    try:
        bean = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
        options = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(bean)
        least, most = (options.getVMOption(f"{end}HeapFreeRatio").getValue() for end in ("Min", "Max"))
        options.setVMOption("MaxHeapFreeRatio", str(max(int(least), min(int(most), MOST_FREE))))
        try:
            jvm.java.lang.System.gc()
        finally:
            options.setVMOption("MaxHeapFreeRatio", most)
    except Py4JError as error:
        log.debug("Java keeps its memory (%s).", type(error).__name__)


def cancel_jobs() -> None:
    """Cancel the jobs of this process's session, if one runs; the calls that started them raise errors."""
    context = _context()
    if context is not None:
        context.cancelAllJobs()


def cut_off() -> None:
    """Kill the JVM of this process's sessions, if one runs, even while it works; a waiting caller gets an error."""
    process = _jvm_process()
    if process is not None:
        process.kill()


def jvm_ended() -> bool:
    """Tell whether the JVM of this process's sessions was started, and has ended."""
    process = _jvm_process()
    return process is not None and process.poll() is not None


def _context() -> Any:
    return getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)


def _jvm_process() -> Any:
    gateway = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None)
    return getattr(gateway, "proc", None)


def quieten_py4j() -> None:
    """Keep Py4J from logging at length that a JVM is gone, or that PySpark's SIGINT handler interrupted a call.

    Py4J logs through its own loggers and through the root logger. The errors are still raised.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    root = logging.getLogger()
    if _is_not_py4js not in root.filters:
        root.addFilter(_is_not_py4js)


def _nothing(_record: logging.LogRecord) -> bool:
    return False


def _is_not_py4js(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _java_options(own: Path, short_lived: bool) -> str:
    return shlex.join(
        launch.options(
            *jvm_log.options(own),
            f"-Dderby.system.home={own.as_uri()}",
            *class_data_archive.options(),
            *(SHORT_LIVED_JAVA if short_lived else LONG_LIVED_JAVA),
            log="log4j2.properties",
        )
    )
