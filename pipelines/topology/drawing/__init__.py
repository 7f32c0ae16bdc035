"""Topology -> text, mermaid, SVG: a topology for a terminal, for Markdown and for a browser."""

from pipelines.topology.drawing.listing import text
from pipelines.topology.drawing.mermaid import mermaid
from pipelines.topology.drawing.svg import svg

__all__ = ["mermaid", "svg", "text"]
