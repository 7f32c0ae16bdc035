"""How a warehouse's store is reached, and what is said of one that refuses."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import pytest
from obstore.exceptions import GenericError

from pipelines.errors import EnvironmentLacking
from pipelines.stores import connection

GOOGLE, AZURE = "gs://b/w", "abfss://c@a.dfs.core.windows.net/w"
LISTED = "Error performing list request: Error performing GET http://x/b?list-type=2 - Server returned non-2xx status"
TOKEN = "Error performing token request: Error performing GET http://x/ - Server returned non-2xx status"


@pytest.mark.parametrize(
    ("root", "error", "why"),
    [
        (GOOGLE, f"{LISTED} code: 403 Forbidden", "the store refuses it: check the keys"),
        (AZURE, f"{LISTED} code: 404 Not Found", "there is no such bucket or container"),
        (GOOGLE, f"{LISTED} code: 503 Unavailable", "check the network, GOOGLE_APPLICATION_CREDENTIALS and"),
        (AZURE, f"{TOKEN} code: 404 Not Found", "check the network, the account's name, AZURE_STORAGE_ACCOUNT_KEY and"),
    ],
    ids=["refused", "absent", "no answer", "no key"],
)
def test_a_list_that_fails_is_one_sentence_that_says_what_to_check(root: str, error: str, why: str) -> None:
    def ask() -> NoReturn:
        raise GenericError(error)

    with pytest.raises(EnvironmentLacking) as refused:
        connection.asked(root, ask)
    assert why in str(refused.value)


def test_keys_of_s3_that_are_nowhere_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> NoReturn:
        raise GenericError("Error performing PUT http://169.254.169.254/latest/api/token")

    def why() -> str:
        with pytest.raises(EnvironmentLacking) as refused:
            connection.asked("s3a://b/w", ask)
        return str(refused.value)

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    assert why().endswith("and the keys, which neither AWS_ACCESS_KEY_ID nor a profile in ~/.aws has.")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    assert why().endswith("AWS_REGION and the keys.")


@pytest.mark.parametrize(("root", "variable"), [(GOOGLE, "GOOGLE_ALLOW_HTTP"), (AZURE, "AZURE_ALLOW_HTTP")])
def test_an_address_that_is_not_encrypted_has_to_be_allowed(
    root: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allows() -> Any:
        connection.opened(root)
        return options.pop()["allow_http"]

    options: list[dict[str, Any]] = []
    monkeypatch.setattr("obstore.store.from_url", lambda root, client_options, **_: options.append(client_options))
    monkeypatch.delenv(variable, raising=False)
    connection._opened.cache_clear()
    assert allows() is False
    monkeypatch.setenv(variable, "true")
    assert allows() is True
    connection._opened.cache_clear()
