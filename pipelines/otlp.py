"""OpenTelemetry's protocol: whether the standard variables ask for a signal, and one that is sent within seconds.

Nothing of OpenTelemetry is imported unless a signal is sent. Whatever goes wrong is a sentence, which names neither
headers nor paths of the endpoint, as these can hold secrets.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from expectations.text import visible
from pipelines.errors import UsageError, readable

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

SECONDS = 3.0  # that sending may take, with all tries
SCOPE = "afterlog"

Signal = Literal["traces", "metrics"]

_SILENT = f"it cannot be reached, or does not answer within {SECONDS:.0f} seconds"
_PACKAGES = {"http/protobuf": "http", "grpc": "grpc"}
_EXPORTERS = {"traces": ("trace_exporter", "OTLPSpanExporter"), "metrics": ("metric_exporter", "OTLPMetricExporter")}


def wanted(signal: Signal) -> bool:
    """Tell whether the environment asks for a signal: it names an endpoint, or the exporter ``otlp``."""
    if _variable("OTEL_SDK_DISABLED").lower() == "true":
        return False
    if named := _variable(f"OTEL_{signal.upper()}_EXPORTER"):
        return "otlp" in [name.strip() for name in named.split(",")]
    return bool(_exporter_variable(signal, "ENDPOINT"))


def resource() -> Resource:
    """Return what sends: the service ``afterlog`` and its version, under what the environment says of it.

    The library gives each process a random instance, which would make new series of all metrics in each run.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    named = OTELResourceDetector().detect()
    own = Resource({"service.name": "afterlog", "service.version": version("afterlog")}).merge(named)
    found = dict(Resource.create(own.attributes).attributes)
    if "service.instance.id" not in named.attributes:
        found.pop("service.instance.id", None)
    return Resource(found)


class Sender:
    """Sends one signal to the endpoint that the environment names."""

    def __init__(self, signal: Signal) -> None:
        """Take the signal."""
        self.signal = signal
        self._exporter: Any = None
        self._answers: list[int] = []
        self._thread: threading.Thread | None = None

    def send(self, make: Callable[[], Any]) -> str | None:
        """Send what ``make`` returns, unless that is empty; return a sentence if the endpoint did not take it.

        It takes `SECONDS` at most. What an endpoint still has not answered then is left to a thread.
        """
        if self._thread is not None and self._thread.is_alive():
            return self._sentence(_SILENT)
        problems: list[str | None] = []
        try:
            exporter = self._exporter = self._exporter or self._made()
            if not (data := make()):
                return None
        except Exception as error:
            return f"{self.signal.capitalize()} are not sent to OpenTelemetry. {readable(error)}"
        self._thread = threading.Thread(target=lambda: problems.append(self._sent(exporter, data)), daemon=True)
        self._thread.start()
        self._thread.join(SECONDS + 0.5)
        return problems[0] if problems else self._sentence(_SILENT)

    def _made(self) -> Any:
        """Return the exporter of OpenTelemetry's own library.

        Raises UsageError: there is no such protocol. Raises ModuleNotFoundError: the library is not installed.
        """
        # Its messages quote headers and whole addresses.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        protocol = _exporter_variable(self.signal, "PROTOCOL") or "http/protobuf"
        if protocol not in _PACKAGES:
            raise UsageError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be one of {', '.join(_PACKAGES)}.")
        module, name = _EXPORTERS[self.signal]
        package = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{_PACKAGES[protocol]}.{module}")
        more: dict[str, Any] = {}
        if protocol == "http/protobuf":
            import requests

            more["session"] = session = requests.Session()
            session.hooks["response"] = [lambda answer, *_, **__: self._answers.append(answer.status_code)]
        return getattr(package, name)(timeout=SECONDS, **more)

    def _sent(self, exporter: Any, data: Any) -> str | None:
        """Send data; return a sentence if the endpoint did not take it."""
        self._answers.clear()
        try:
            is_taken = exporter.export(data).name == "SUCCESS"
        except Exception as error:
            return self._sentence(f"{type(error).__name__}")
        if self._answers and self._answers[-1] >= 300:  # the library takes a redirection for a success
            return self._sentence(f"it answered {self._answers[-1]}")
        return None if is_taken else self._sentence(_SILENT)

    def _sentence(self, why: str) -> str:
        address = _exporter_variable(self.signal, "ENDPOINT") or "localhost"
        try:
            parts = urlsplit(address if "://" in address else f"//{address}")
            endpoint = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        except ValueError:
            endpoint = "the endpoint of OTEL_EXPORTER_OTLP_ENDPOINT, which is no address"
        return f"{self.signal.capitalize()} did not reach OpenTelemetry's collector at {visible(endpoint)}: {why}."


def _exporter_variable(signal: Signal, name: str) -> str:
    """Return a variable of the exporter: that of the signal, else that of all signals, else an empty text."""
    return _variable(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or _variable(f"OTEL_EXPORTER_OTLP_{name}")


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()
