"""Microsoft Teams, ``kind = "teams"``: an Adaptive Card for a workflow that begins when a webhook request comes.

Facts: https://learn.microsoft.com/connectors/teams/ (a message has about 28 KB at most),
https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using (its form) and
https://learn.microsoft.com/adaptive-cards/schema-explorer/text-run (it has no Markdown, so that no name is a link).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from expectations.text import visible
from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.messages import MOST_LISTED, Alert, headline, line, more
from pipelines.text import cut

MOST_OF_TITLE, MOST_OF_HEADING, MOST_OF_TEXT, MOST_OF_NAME = 150, 200, 600, 100  # characters
MOST_OF_NEWS = 18_000  # bytes as they are sent; what the card has around them fits into the rest of 28 KB


class Teams(Channel):
    """Takes a message for each alert, and one for a storm."""

    kind = "teams"

    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return a message with one card."""
        blocks: list[dict[str, Any]] = []
        for change in alert.news[:MOST_LISTED]:
            runs = [] if len(alert.news) == 1 else [_run(f"{cut(line(change), MOST_OF_HEADING)}: ", weight="Bolder")]
            runs.append(_run(cut(change.text, MOST_OF_TEXT)))
            if change.page:
                runs += [_run(" "), _run("Open it", selectAction={"type": "Action.OpenUrl", "url": change.page})]
            block = _block(*runs)
            if blocks and len(json.dumps([*blocks, block])) > MOST_OF_NEWS:
                break
            blocks.append(block)
        blocks += [_block(_run(words)) for words in more(alert, len(blocks))]
        facts = [f"cluster {visible(frame.cluster)}", visible(frame.route.owner or ""), alert.id]
        context = " · ".join(cut(fact, MOST_OF_NAME) for fact in facts if fact)
        title = _run(cut(headline(alert), MOST_OF_TITLE), size="Large", weight="Bolder")
        card: dict[str, Any] = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.2",
            "msteams": {"width": "Full"},
            "body": [_block(title), *blocks, _block(_run(context, isSubtle=True, size="Small"))],
        }
        if frame.front:
            card["actions"] = [{"type": "Action.OpenUrl", "title": "Report", "url": frame.front}]
        content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [content]}


def _block(*runs: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [*runs]}


def _run(text: str, **style: Any) -> dict[str, Any]:
    return {"type": "TextRun", "text": text, **style}
