"""How to reach the Kafka cluster."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from pipelines.settings.section import Section

# [kafka] has settings of its own for some of these; the others decide which offsets Spark reads.
_REFUSED_OPTIONS = {
    *("bootstrap.servers", "security.protocol", "isolation.level", "group.id", "auto.offset.reset"),
    *("enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer"),
}
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]/]+):([0-9]{1,5})")


class Kafka(Section):
    """Addresses, security and timeout of the cluster whose topics are read.

    Secrets never appear in logs, errors or ``repr``. Certificates and keys are PEM files. ``options`` are properties
    of Kafka's clients and override the other settings.
    """

    bootstrap_servers: str = ""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password: SecretStr | None = None
    password_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: SecretStr | None = None
    options: dict[str, SecretStr] = Field(default_factory=dict)
    timeout_seconds: Annotated[float, Field(ge=1.0, le=3600.0)] = 15.0

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_addresses(cls, text: str) -> str:
        addresses = [part.strip() for part in text.split(",") if part.strip()]
        for address in addresses:
            match = _ADDRESS.fullmatch(address)
            if not match or not 0 < int(match[1]) < 1 << 16:
                raise ValueError("write it like host:9092,other:9092")
        return ",".join(addresses)

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if refused := sorted(_REFUSED_OPTIONS & options.keys()):
            raise ValueError(f"{refused[0]} cannot be set here")
        return options

    @model_validator(mode="after")
    def _check_combination(self) -> Kafka:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        return self

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The hosts and ports of the bootstrap servers."""
        pairs = (address.rpartition(":") for address in self.bootstrap_servers.split(",") if address)
        return tuple((host.strip("[]"), int(port)) for host, _, port in pairs)
