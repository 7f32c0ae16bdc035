"""S3 as the usual variables of AWS describe it: endpoint, region, and the keys of a profile."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.errors import UsageError
from pipelines.settings.files import text_of

SCHEMES = ("s3", "s3a")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
REGION = "us-east-1"  # what a server that is not Amazon's takes


@dataclass(frozen=True)
class Keys:
    """What signs a request; a token belongs to keys that end. Secrets never appear in ``repr``."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    token: str | None = field(repr=False)


@dataclass(frozen=True)
class Connection:
    """Where S3 is: an ``endpoint`` that is not Amazon's, the bucket's ``region``, and keys of a profile."""

    endpoint: str | None
    region: str | None
    keys: Keys | None


def is_s3(warehouse: str) -> bool:
    """Tell whether a warehouse is on S3."""
    return "://" in warehouse and warehouse.partition("://")[0].lower() in SCHEMES


def one_name(warehouse: str) -> str:
    """Return the one name of a warehouse: S3's by Hadoop's scheme, and URIs without a slash at their end."""
    scheme, separator, path = warehouse.partition("://")
    if not separator:
        return warehouse
    return f"{'s3a' if is_s3(warehouse) else scheme}://{path.rstrip('/')}"


def shown(address: str) -> str:
    """Return an address as messages say it: S3's by its own scheme, as people write it, not by Hadoop's."""
    return f"s3://{address.partition('://')[2]}" if is_s3(address) else address


def connection() -> Connection:
    """Return what the environment says about S3, and the profile that it names.

    Raises UsageError: the endpoint is not encrypted and AWS_ALLOW_HTTP does not allow it, or there is no such profile,
    or it does not hold keys but says how to get them, which only AWS's own tools can.
    """
    endpoint = _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if endpoint and "://" not in endpoint:
        raise UsageError("AWS_ENDPOINT_URL has to begin with https:// or http://.")
    if endpoint and endpoint.lower().startswith("http://") and not is_true("AWS_ALLOW_HTTP"):
        raise UsageError(
            "AWS_ENDPOINT_URL begins with http://, which is not encrypted: "
            "write https://, or set AWS_ALLOW_HTTP=true if that is what you want."
        )
    profile = _profile()
    region = _first("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region") or (REGION if endpoint else None)
    keys = None
    if not _first(*_KEYS):
        if any(name in ("role_arn", "credential_process") or name.startswith("sso_") for name in profile):
            raise UsageError(
                "The profile of AWS does not hold keys but says how to get them: put them into the environment, as "
                "`aws configure export-credentials --format env` prints them."
            )
        if "aws_access_key_id" in profile:
            secret, token = profile.get("aws_secret_access_key", ""), profile.get("aws_session_token")
            keys = Keys(profile["aws_access_key_id"], secret, token)
    return Connection(endpoint, region, keys)


def has_keys() -> bool:
    """Tell whether the environment or its profile has keys, or a token for them; else a role of the machine must."""
    return bool(_first(*_KEYS) or connection().keys)


def _profile() -> dict[str, str]:
    """Return what AWS's two files say about the profile; of a setting in both, that of the credentials counts.

    Raises UsageError: AWS_PROFILE names a profile that is in neither file.
    """
    name = _first("AWS_PROFILE")
    found: dict[str, str] = {}
    is_there = name is None
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", f"profile {name}" if name else "default"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name or "default"),
    ):
        path = Path(_first(variable) or Path("~/.aws") / file).expanduser()
        if _first(variable) is None and not path.exists():
            continue
        parsed = configparser.RawConfigParser(default_section="")
        try:
            parsed.read_string(text_of(path, variable))
        except configparser.Error:  # its text would quote a secret
            raise UsageError(f"{path} cannot be read as a file of AWS's profiles: correct it.") from None
        for heading in (section, name) if name == "default" else (section,):
            if parsed.has_section(heading):
                is_there = True
                found |= parsed.items(heading)
    if not is_there:
        raise UsageError("AWS_PROFILE names a profile that AWS's files do not have: correct it, or unset it.")
    return found


def _first(*variables: str) -> str | None:
    return next((value for variable in variables if (value := os.environ.get(variable))), None)


def is_true(variable: str) -> bool:
    """Tell whether a variable says yes, by the words that stores' clients know."""
    return os.environ.get(variable, "").lower() in ("1", "true", "on", "yes", "y", "t")
