"""`afterlog broker`: a Kafka broker on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import TableOrObject
from pipelines.cli.output import say

app = typer.Typer(no_args_is_help=True, help="A Kafka broker on this machine, for the demo, tests and trying out.")

DirectoryOption = Annotated[
    Path | None, typer.Option("--directory", help="Where it keeps its data and logs.", show_default=".cache/broker")
]


@app.command("start")
def start_broker(
    directory: DirectoryOption = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Of its listener.", show_default="the last one, or a free one")
    ] = None,
) -> None:
    """Start it and print its bootstrap servers once it answers."""
    from pipelines.broker import DIRECTORY, Broker

    broker = Broker(directory or DIRECTORY, port=port)
    if not broker.start():
        say(f"A broker runs already in {broker.directory}.")
    print(broker.bootstrap_servers)


@app.command("stop")
def stop_broker(directory: DirectoryOption = None) -> None:
    """Stop it; its data stays."""
    from pipelines.broker import DIRECTORY, Broker

    broker = Broker(directory or DIRECTORY)
    if not broker.stop():
        say(f"No broker runs in {broker.directory}.")


@app.command("status")
def show_broker(directory: DirectoryOption = None, format: TableOrObject = "table") -> None:
    """Say whether it runs, and where; ends with 1 where it does not."""
    from pipelines.broker import DIRECTORY, Broker

    broker = Broker(directory or DIRECTORY)
    running = broker.running
    if running is None:
        say(f"No broker runs in {broker.directory}; `afterlog broker start` starts one.")
        raise typer.Exit(1)
    if format == "json":
        print(json.dumps(asdict(running)))
    else:
        for name, value in asdict(running).items():
            if value is not None:
                print(f"{name.replace('_', ' ')}: {value}")
