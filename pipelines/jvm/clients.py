"""kafka-clients 4.4, the newest ones, in a JVM of their own, driven by Py4J.

Spark's connector brings an older version of the same library, so these clients never run in a Spark session's JVM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayClient, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import REFERENCE_TYPE, get_return_value, is_error  # type: ignore[import-untyped]

from pipelines.jvm import jars, launch, small

# What the clients need of the jars beside a broker's: no Log4j, which would start more slowly and log.
_NEEDED = (
    *("kafka-clients", "slf4j-api", "jose4j"),
    *("jackson-core", "jackson-databind", "jackson-annotations", "jackson-datatype-jdk8"),
)


class Client(GatewayClient):  # type: ignore[misc]
    """Raises Java's exceptions itself: PySpark, once loaded, takes every exception for one of its own JVM."""

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """Send a command; raises Py4JJavaError: Java raised an exception."""
        answer = super().send_command(command, retry, binary)
        if not binary and is_error(answer)[0] and answer[1:2] == REFERENCE_TYPE:
            get_return_value(answer, self)
        return answer


class Gateway(JavaGateway):  # type: ignore[misc]
    """A gateway to a JVM that is not Spark's."""

    def _create_gateway_client(self) -> Client:
        return Client(gateway_parameters=self.gateway_parameters)


@contextlib.contextmanager
def newest() -> Iterator[Any]:
    """Yield the view of a small JVM with the newest Kafka clients, which ends with the context or this process.

    Raises EnvironmentLacking: no Java, no jars.
    """
    directory = Path(jars.class_path("broker")).parent
    needed = [jar for name in _NEEDED for jar in directory.glob(f"{name}-[0-9]*.jar")]
    found, process = small.start(needed, auto_convert=True)
    gateway = Gateway(gateway_parameters=found)
    try:
        yield gateway.jvm
    finally:
        launch.end(gateway, process)


def json_mapper(jvm: Any) -> Any:
    """Return a JSON writer that reads fields, bytes as base64: Kafka's objects have no getters that Jackson knows."""
    jackson = jvm.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper().registerModule(jackson.datatype.jdk8.Jdk8Module())
    visibility = jackson.annotation.JsonAutoDetect.Visibility
    mapper.setVisibility(jackson.annotation.PropertyAccessor.ALL, visibility.NONE)
    return mapper.setVisibility(jackson.annotation.PropertyAccessor.FIELD, visibility.ANY)
