"""The part of Kubernetes' API that KubernetesPodOperator calls, in front of processes of this machine.

No kubelet can run here, so a pod's containers are processes without images: `afterlog` is the one on their PATH, and
`/airflow/xcom` in their arguments is a directory of the pod. Everything that the client sends and reads is real HTTP.
A pod that does not follow the published schema is refused, as an API server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
from aiohttp import WSMsgType, web
from jsonschema import ValidationError

RELEASE = "1.37"
_SHARED = "/airflow/xcom"
_STDOUT, _STATUS = b"\1", b"\3"  # channels of the protocol v4.channel.k8s.io


class Cluster:
    """Pods by name, as they were asked for, and their processes."""

    def __init__(self, directory: Path, path: str) -> None:
        self.directory = directory
        self.path = path
        self.pods: dict[str, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.handed_over: set[str] = set()
        self.refuses: str | None = None

    def app(self) -> web.Application:
        pods = "/api/v1/namespaces/{namespace}/pods"
        app = web.Application()
        app.add_routes(
            [
                web.post(pods, self.create),
                web.get(pods, self.listed),
                web.get(pods + "/{name}", self.read),
                web.patch(pods + "/{name}", self.read),
                web.delete(pods + "/{name}", self.delete),
                web.get(pods + "/{name}/log", self.log),
                web.get(pods + "/{name}/exec", self.execute),
                web.get("/api/v1/namespaces/{namespace}/events", self.events),
            ]
        )
        return app

    async def create(self, request: web.Request) -> web.Response:
        pod = await request.json()
        if self.refuses:
            return web.json_response({"message": self.refuses}, status=403, reason="Forbidden")
        try:
            kubernetes_validate.validate(pod, RELEASE, strict=True)
        except ValidationError as error:
            return web.json_response({"message": error.message}, status=422)
        self.asked.append(pod)
        name = pod["metadata"]["name"]
        self.pods[name] = pod
        base = pod["spec"]["containers"][0]
        shared = self.directory / name
        shared.mkdir()
        own = {row["name"]: row["value"] for row in base["env"]}
        words = [_expanded(word, own).replace(_SHARED, str(shared)) for word in (*base["command"], *base["args"])]
        variables = own | {"PATH": self.path, "HOME": os.environ["HOME"]}
        with (shared / "log").open("wb") as log:
            self.processes[name] = subprocess.Popen(words, env=variables, stderr=log, stdin=subprocess.DEVNULL)
        return web.json_response(self.told(name), status=201)

    def told(self, name: str) -> dict[str, Any]:
        code = self.processes[name].poll()
        base, beside = self.pods[name]["spec"]["containers"]
        at = datetime.now(UTC).isoformat()
        runs = {"running": {"startedAt": at}}
        states = {
            base["name"]: runs if code is None else _ended(128 - code if code < 0 else code, at),
            beside["name"]: _ended(0, at) if name in self.handed_over else runs,
        }
        phase = "Running" if code is None or name not in self.handed_over else "Failed" if code else "Succeeded"
        statuses = [
            {"name": item, "state": state, "image": "", "imageID": "", "ready": True, "restartCount": 0}
            for item, state in states.items()
        ]
        return {**self.pods[name], "status": {"phase": phase, "containerStatuses": statuses}}

    async def listed(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [self.told(name) for name in self.pods]}
        )

    async def read(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.json_response(self.told(name)) if name in self.pods else web.json_response({}, status=404)

    async def delete(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.processes[name].terminate()
        self.deleted.append(name)
        told = self.told(name)
        del self.pods[name]
        return web.json_response(told)

    async def log(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        answer = web.StreamResponse()
        await answer.prepare(request)
        with (self.directory / name / "log").open("rb") as log:
            while True:
                has_ended = self.processes[name].poll() is not None
                for line in log:
                    await answer.write(f"{datetime.now(UTC).isoformat()} ".encode() + line)
                if has_ended:
                    return answer
                await asyncio.sleep(0.05)

    async def execute(self, request: web.Request) -> web.WebSocketResponse:
        name = request.match_info["name"]
        channel = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await channel.prepare(request)
        if "stdin" in request.query and request.query["stdin"] == "true":  # asks the container beside to end
            async for message in channel:
                if message.type is WSMsgType.BINARY and b"kill" in message.data:
                    break
            self.handed_over.add(name)
        else:
            words = [word.replace(_SHARED, str(self.directory / name)) for word in request.query.getall("command")]
            output = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
            await channel.send_bytes(_STDOUT + output)
        await channel.send_bytes(_STATUS + json.dumps({"status": "Success"}).encode())
        await channel.close()
        return channel

    async def events(self, request: web.Request) -> web.Response:
        return web.json_response({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []})


def _ended(code: int, at: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": at, "finishedAt": at}}


def _expanded(word: str, variables: dict[str, str]) -> str:
    """Return a word of a command as a kubelet starts it: `$(NAME)` is a variable of the container, `$$` a dollar."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda found: variables.get(found[1], found[0]) if found[1] else "$", word)


@contextlib.contextmanager
def cluster(directory: Path, path: str) -> Iterator[tuple[Cluster, str]]:
    """Yield the cluster, whose containers have that PATH, and the JSON of an Airflow connection to it."""
    made = Cluster(directory, path)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(made.app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {}}],
    }
    try:
        yield made, json.dumps({"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(config)}})
    finally:
        for process in made.processes.values():
            process.kill()
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
