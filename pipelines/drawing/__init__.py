"""Topology -> text, mermaid, SVG: a topology for a terminal, for Markdown and for a browser."""

from pipelines.drawing.listing import text
from pipelines.drawing.mermaid import mermaid
from pipelines.drawing.svg import svg

__all__ = ["mermaid", "svg", "text"]
