"""The site over HTTP, for people on this machine or behind a proxy; it is built again as data comes."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import EnvironmentLacking, readable
from pipelines.site.publish import PRIVATE

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pipelines.run.stop import Stop

HOST, PORT = "127.0.0.1", 8765
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",  # beside the policy of each page
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LOCAL = ("127.0.0.1", "localhost", "[::1]")
DUE_SECONDS, DUE_TIMES = 60.0, 20
_GRACE_SECONDS = 2


@contextlib.contextmanager
def served(directory: Path, host: str = HOST, port: int = PORT) -> Iterator[str]:
    """Show a directory of pages over HTTP while the context lasts; yield the front's address.

    Only GET and HEAD are answered, and no hidden file. A server on this machine alone answers only those who call it by
    a name of this machine: a page elsewhere cannot read it through a name that it points here. A ``port`` of 0 is any.

    Raises EnvironmentLacking: the port is taken, or the host is none of this machine.
    """
    import uvicorn

    with _listening(host, port) as listening:
        config = uvicorn.Config(_app(directory, host), log_config=None, access_log=False, lifespan="off")
        config.timeout_graceful_shutdown = _GRACE_SECONDS
        server = uvicorn.Server(config)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a client that is gone is no news
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://{_shown(host)}:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(2 * _GRACE_SECONDS)


def refresh(
    build: Callable[[bool], object],
    every_seconds: float,
    stop: Stop,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Call ``build`` again and again until a stop is asked for; say once what fails, and when it works again.

    ``build`` is told whether the pages are due also without news, as they tell ages: once a minute, or less often if
    building takes more than a twentieth of the time.
    """
    failure: str | None = None
    due = clock() + DUE_SECONDS
    while not stop.asked():
        stop.wait(every_seconds)
        if stop.asked():
            return
        began, is_due = clock(), clock() >= due
        try:
            build(is_due)
        except Exception as error:
            if stop.is_why():
                return
            sentence = str(readable(error))
            if sentence != failure:
                say(f"{sentence} The pages stay as they are; it is tried again.")
            failure = sentence
        else:
            if failure is not None:
                say("The pages are built again.")
            failure = None
            if is_due:
                due = began + max(DUE_SECONDS, DUE_TIMES * (clock() - began))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EnvironmentLacking(
            f"The pages cannot be shown at {_shown(host)}:{port} ({reason}): name another with --host and --port."
        ) from None


def _app(directory: Path, host: str) -> ASGIApp:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import Response
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    class Pages(StaticFiles):
        """The pages, without what only Afterlog reads."""

        async def get_response(self, path: str, scope: Any) -> Response:
            """Return the response to a request for a path; 404 for a hidden file."""
            parts = Path(path).parts
            is_hidden = any(part.startswith(".") and part != "." for part in parts) or parts[:1] == (PRIVATE,)
            response = Response("Not found", 404) if is_hidden else await super().get_response(path, scope)
            response.headers.update(HEADERS)
            return response

    is_local = host in LOCAL or host == "::1" or host.startswith("127.")
    allowed = [*LOCAL, host] if is_local else ["*"]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=allowed, www_redirect=False)
    return Starlette(routes=[Mount("/", Pages(directory=directory, html=True))], middleware=[guard])


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
