"""The options that several commands have, and the forms in which they print."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pipelines.commands import completion
from pipelines.jvm import jvm_log

EVERY_SECONDS = 10.0  # from look to look, for what goes on until it is stopped
TIMES = "2026-11-21T02:00Z, 14:05, yesterday, 2h: UTC"

RowsFormat = Literal["table", "json", "csv"]
TableFormat = Literal["table", "json"]
TextFormat = Literal["text", "json"]
DrawingFormat = Literal["text", "json", "mermaid", "svg"]


def _show_jvm_log(is_wanted: bool) -> bool:
    if is_wanted:
        jvm_log.show()
    return is_wanted


WarehouseOption = Annotated[str | None, typer.Option(help="Directory or URI of the warehouse.")]
LandingOption = Annotated[str | None, typer.Option(help="Directory that feeds land in.")]
ClusterOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only that one of several clusters.", show_default="all")
]
TeamOption = Annotated[
    str | None,
    typer.Option(
        "--team",
        metavar="TEAM",
        help="Only what is of one team of the settings, or of 'no team'.",
        autocompletion=completion.teams,
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark logs.", callback=_show_jvm_log)]
AtOption = Annotated[str | None, typer.Option(help=f"As of that time ({TIMES}).", show_default="now")]
ParameterOption = Annotated[list[str] | None, typer.Option(help="name=value for :name.")]

RowsOption = Annotated[RowsFormat, typer.Option(help="How to print the rows.")]
TextOrObject = Annotated[TextFormat, typer.Option(help="json: one object.")]
TableOrObject = Annotated[TableFormat, typer.Option(help="json: one object.")]
TableOrObjects = Annotated[TableFormat, typer.Option(help="json: one object a table.")]
TableOrCounts = Annotated[TableFormat, typer.Option(help="json: the last line is the counts.")]
