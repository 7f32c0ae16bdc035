"""S3LogStore.java -> a jar: Delta's log store for S3, compiled by the Janino that PySpark ships, as no JDK is there."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pipelines.errors import EnvironmentLacking
from pipelines.installation import setup
from pipelines.jvm import launch

SOURCE = Path(__file__).with_name("S3LogStore.java")
CLASS = "afterlog.S3LogStore"
JAR = "afterlog-s3-log-store.jar"
_JAVA = 8  # Janino knows the language of Java 8


def make(directory: Path, delta: Sequence[Path]) -> None:
    """Compile the log store with Delta's jars, and put it as a jar into a directory.

    Raises EnvironmentLacking: there is no usable Java, or it does not compile the file.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    janino = launch.pyspark_jars("janino-*.jar", "commons-compiler-*.jar")
    known = [*delta, *launch.pyspark_jars("hadoop-client-*.jar", "slf4j-api-*.jar")]
    class_path = os.pathsep.join(map(os.fspath, janino))
    port, token, process = launch.gateway(class_path, launch.options(*launch.LIGHT), daemonize_redirect=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        with tempfile.TemporaryDirectory(prefix="afterlog-") as classes:
            file = gateway.jvm.java.io.File
            paths = gateway.new_array(file, len(known))
            for index, jar in enumerate(known):
                paths[index] = file(os.fspath(jar))
            sources = gateway.new_array(file, 1)
            sources[0] = file(os.fspath(SOURCE))
            compiler = gateway.jvm.org.codehaus.janino.Compiler()
            compiler.setSourceVersion(_JAVA)
            compiler.setTargetVersion(_JAVA)
            compiler.setClassPath(paths)
            compiler.setDestinationDirectory(file(classes), False)
            compiler.compile(sources)
            with zipfile.ZipFile(directory / JAR, "w") as packed:
                for compiled in sorted(Path(classes).rglob("*.class")):
                    packed.write(compiled, compiled.relative_to(classes).as_posix())
    except Py4JError as error:
        lines = str(error).splitlines()
        reason = next((line for line in reversed(lines) if line.startswith("Caused by")), lines[0])
        raise EnvironmentLacking(f"{SOURCE.name} cannot be compiled ({reason}); run `{setup('s3')}` again.") from None
    finally:
        launch.end(gateway, process)
