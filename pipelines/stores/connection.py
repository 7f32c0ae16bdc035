"""The URI of a warehouse -> its object store, and what its errors mean, without their text: it can quote keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.settings import s3

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult
    from obstore.store import ObjectStore, S3Credential

PATIENCE = timedelta(seconds=15)  # of a request with its repetitions
_VERSION = ("e_tag", "version")
_REFUSED = "the store refuses it: check the keys and their permissions to get, put, list and delete objects"
_ABSENT = "there is no such bucket or container: create it, or name another warehouse"
_REFUSED_LIST = re.compile(r"list request.*status code: (403|404)\b", re.DOTALL)
Answer = TypeVar("Answer")
silent: ContextVar[dict[str, str] | None] = ContextVar("silent", default=None)
"""What was said of stores that did not answer, by root: who only reads asks them once."""


def opened(root: str) -> ObjectStore:
    """Open the location of a warehouse; keys come from the environment, a profile, or the role of the machine.

    Raises UsageError: the variables of S3 cannot be used.
    """
    return _opened(root, s3.connection() if s3.is_s3(root) else None, _variables())


def options(root: str) -> dict[str, str]:
    """Return how ``deltalake`` reaches a warehouse; raises UsageError: the variables of S3 cannot be used."""
    return _options(s3.connection()) if s3.is_s3(root) else {}


def asked(root: str, ask: Callable[[], Answer]) -> Answer:
    """Return what the store answers.

    Raises EnvironmentLacking: it does not answer, or it refuses.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    known = silent.get()
    if known is not None and root in known:
        raise EnvironmentLacking(known[root])
    try:
        return ask()
    except (PermissionDeniedError, UnauthenticatedError):
        why = _REFUSED
    except FileNotFoundError:
        why = _ABSENT
    except BaseError as error:
        why = f"{_name(root)} does not answer as it should: check the network, {_variables_of(root)}"
        if refused := _REFUSED_LIST.search(str(error)):  # obstore has a type for refusals of objects only
            why = _REFUSED if refused[1] == "403" else _ABSENT
    sentence = f"{s3.shown(root)} cannot be read and written, as {why}."
    if known is not None:
        known[root] = sentence
    raise EnvironmentLacking(sentence) from None


def version_of(facts: Mapping[str, Any] | ObjectMeta | PutResult) -> str:
    """Return what tells an object from later ones of its path: its ETag, on Google Cloud Storage its generation."""
    return json.dumps([facts[name] for name in _VERSION])  # type: ignore[literal-required]


def mode_over(version: str | None) -> Any:
    """Return the mode of a put that succeeds over a version only, or (None) if there is no object."""
    if version is None:
        return "create"
    named = zip(_VERSION, json.loads(version), strict=True)
    return {name: value for name, value in named if value is not None}


def _name(root: str) -> str:
    endpoint = s3.connection().endpoint if s3.is_s3(root) else None
    name = "S3" if s3.is_s3(root) else "the store"
    return f"{name} at {urlsplit(endpoint).hostname}" if endpoint else name


def _variables_of(root: str) -> str:
    """Name what says where a store is and who asks it."""
    if s3.is_s3(root):
        absent = "" if s3.has_keys() else ", which neither AWS_ACCESS_KEY_ID nor a profile in ~/.aws has"
        return f"AWS_ENDPOINT_URL, AWS_REGION and the keys{absent}"
    if _is_google(root):
        return "GOOGLE_APPLICATION_CREDENTIALS and the role of the machine"
    return "the account's name, AZURE_STORAGE_ACCOUNT_KEY and the role of the machine"


def _is_google(root: str) -> bool:
    return root.lower().startswith("gs://")


def _variables() -> frozenset[tuple[str, str]]:
    """Return the variables that say where stores are and who asks them; a process can change them."""
    return frozenset(pair for pair in os.environ.items() if pair[0].startswith(("AWS_", "GOOGLE_", "AZURE_")))


@lru_cache(maxsize=8)
def _opened(root: str, found: s3.Connection | None, variables: frozenset[tuple[str, str]]) -> ObjectStore:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store, from_url

    waiting: dict[str, Any] = {
        "client_options": {"timeout": "10s", "connect_timeout": "5s"},
        "retry_config": {"max_retries": 3, "retry_timeout": PATIENCE},
    }
    if found is None:
        waiting["client_options"]["allow_http"] = s3.is_true(f"{'GOOGLE' if _is_google(root) else 'AZURE'}_ALLOW_HTTP")
        try:
            return from_url(root, **waiting)
        except (BaseError, ValueError):
            raise UsageError(
                f"{root} cannot be used as a place on an object store: it has to be like gs://bucket/path or "
                f"abfss://container@account.dfs.core.windows.net/path; check {_variables_of(root)}, too."
            ) from None
    bucket, _, prefix = root.partition("://")[2].partition("/")
    config: dict[str, Any] = {"endpoint": found.endpoint, "region": found.region}
    if found.endpoint and found.endpoint.lower().startswith("http://"):
        waiting["client_options"]["allow_http"] = True
    return S3Store(
        bucket,
        prefix=prefix or None,
        **{name: value for name, value in config.items() if value},
        **waiting,
        conditional_put="etag",
        virtual_hosted_style_request=found.endpoint is None,
        credential_provider=_provider(found.keys) if found.keys else None,
    )


def _options(found: s3.Connection) -> dict[str, str]:
    named = {"AWS_ENDPOINT_URL": found.endpoint, "AWS_REGION": found.region, "conditional_put": "etag"}
    if found.endpoint and found.endpoint.lower().startswith("http://"):
        named["AWS_ALLOW_HTTP"] = "true"
    if found.endpoint is None:
        named["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    if found.keys:
        named["AWS_ACCESS_KEY_ID"] = found.keys.access_key_id
        named["AWS_SECRET_ACCESS_KEY"] = found.keys.secret_access_key
        named["AWS_SESSION_TOKEN"] = found.keys.token
    return {name: value for name, value in named.items() if value}


def _provider(keys: s3.Keys) -> Callable[[], S3Credential]:
    def provide() -> S3Credential:
        return {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "token": keys.token,
            "expires_at": None,
        }

    return provide
