"""Slack, ``kind = "slack"``: blocks for an incoming webhook.

Facts: https://docs.slack.dev/reference/block-kit/blocks (lengths) and .../messaging/formatting-message-text (escapes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.messages import MOST_LISTED, Alert, headline, line, more
from pipelines.text import cut

MOST_OF_TITLE, MOST_OF_TEXT = 150, 2_900  # characters that Slack takes


class Slack(Channel):
    """Takes a message for each alert, and one for a storm."""

    kind = "slack"

    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return a header, a section for each of the news, and the context."""
        title = headline(alert)
        blocks: list[dict[str, Any]] = [
            {"type": "header", "text": {"type": "plain_text", "text": cut(title, MOST_OF_TITLE), "emoji": False}}
        ]
        for change in alert.news[:MOST_LISTED]:
            link = f" <{change.page}|Open it>" if change.page else ""
            heading = "" if len(alert.news) == 1 else f"{_escaped(cut(line(change), 330))}: "
            text = cut(f"{heading}{_escaped(cut(change.text, 1_000))}", MOST_OF_TEXT - len(link))
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text + link, "verbatim": True}})
        for words in more(alert):
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": words}})
        report = f"<{frame.front}|Report>" if frame.front else None
        facts = [f"cluster {_escaped(cut(frame.cluster, 200))}", frame.route.owner, report, alert.id]
        context = " · ".join(fact for fact in facts if fact)
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": cut(context, MOST_OF_TEXT)}]})
        return {"text": _escaped(cut(title, MOST_OF_TITLE)), "blocks": blocks}


def _escaped(text: str) -> str:
    """Return text in which Slack finds no mention, link or command."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
