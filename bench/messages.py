"""``python -m bench.messages LOGHUB``: how well patterns of messages tell errors apart, by version of the algorithm.

``LOGHUB`` is a checkout of github.com/logpai/loghub, whose labels name the event of each line. Precision is the share
of pairs of messages with one pattern that have one label, recall the share of pairs with one label that have one
pattern. Loghub is English and has few dates in its messages, so generated messages are counted too. ``--write`` puts
the figures into ``docs/incidents.md``.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from ipaddress import IPv6Address
from pathlib import Path

from bench.incidents import commit, write
from pipelines.incidents.episodes import VERSION
from pipelines.incidents.signature import pattern_of

BEGIN, END = "<!-- messages -->\n", "<!-- /messages -->\n"
GENERATED = "generated"
Labelled = tuple[str, str]
"""A message and its label."""

_QUOTES = ("\u201e{}\u201c", "\u201c{}\u201d", "« {} »", "「{}」", "《{}》", "\u2039{}\u203a", '"{}"')
_DATES = (
    *("%a %b %d %H:%M:%S UTC %Y", "%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"),
    *("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S +0200 CEST", "%B %d, %Y %I:%M:%S %p", "%s"),
)
_ZEROS = "0\u0660\u06f0\u0966\uff10"
_TEMPLATES = (
    *(
        "Order {number} not found",
        "Balance {signed} is below {signed}",
        "Token expired at {date}",
        "Peer {address} closed",
    ),
    *("Field {quoted} is required", "Value {quoted} is too long", "Order{plain}:NotFound({plain})"),
    *("Order{plain}:Shipped({plain})", "订单{number}未找到(代码{plain})", "订单{number}已发货(代码{plain})"),
    *(
        "注文{number}が見つかりません({plain})",
        "注文{number}は発送済みです({plain})",
        "주문{number}을 찾을 수 없습니다({plain})",
    ),
    *("주문{number}은 배송되었습니다({plain})", "ไม่พบคำสั่งซื้อ{number}({plain})", "คำสั่งซื้อ{number}จัดส่งแล้ว({plain})"),
    *("GET https://api{plain}.example.com/orders/{plain}?at={word} failed", "Retry {plain} until {date}"),
    *("GET https://api{plain}.example.com/payments/{plain}?at={word} failed", "الطلب {number} غير موجود"),
)


def values(chance: random.Random) -> dict[str, str]:
    """Return a value of each kind in a random form."""
    number = str(chance.randrange(1, 10 ** chance.randrange(1, 9)))
    zero = chance.choice(_ZEROS)
    at = datetime(2020, 1, 1) + timedelta(seconds=chance.randrange(3 * 10**8))
    address = IPv6Address(chance.choice((chance.randrange(2**128), chance.randrange(1, 2**16), 0xFE80 << 112 | 0xABCD)))
    word = chance.choice(("amount", "der Preis", "名前", "adresse"))
    return {
        "plain": number,
        "number": "".join(chr(ord(zero) + int(digit)) for digit in number),
        "signed": chance.choice(("", "-", "+", "\u2212")) + number,
        "date": at.strftime(chance.choice(_DATES)),
        "address": chance.choice((address.compressed, address.exploded)),
        "quoted": chance.choice(_QUOTES).format(word),
        "word": chance.choice(("joe", "ann", number)),
    }


def generated(count: int = 4_000, seed: int = 3) -> list[Labelled]:
    """Return messages of templates, which are their labels."""
    chance = random.Random(seed)
    drawn = (chance.choice(_TEMPLATES) for _ in range(count))
    return [(template.format_map(values(chance)), template) for template in drawn]


def of_loghub(directory: Path) -> dict[str, list[Labelled]]:
    """Return the labelled messages of each system in a checkout."""
    messages = {}
    for file in sorted(directory.glob("*/*_2k.log_structured.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            messages[file.parent.name] = [(row["Content"], row["EventId"]) for row in csv.DictReader(lines)]
    return messages


def score(messages: Sequence[Labelled], version: int) -> tuple[float, float]:
    """Return precision and recall of a version's patterns over the pairs of messages."""
    patterns = [(pattern_of(message, version), label) for message, label in messages]
    right = _pairs(patterns)
    return right / (_pairs(pattern for pattern, _ in patterns) or 1), right / (
        _pairs(label for _, label in messages) or 1
    )


def _pairs(values: Iterable[object]) -> int:
    return sum(count * (count - 1) // 2 for count in Counter(values).values())


def markdown(sets: dict[str, list[Labelled]], at: str) -> str:
    """Return precision and recall of each version in Markdown."""
    versions = range(1, VERSION + 1)
    scores = {name: [score(messages, version) for version in versions] for name, messages in sets.items()}
    heads = [f"{what}, version {version}" for version in versions for what in ("precision", "recall")]
    lines = [f"Measured at {at}:", "", f"| messages | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name, shares in scores.items():
        lines.append(f"| {name} | {' | '.join(f'{share:.1%}' for pair in shares for share in pair)} |")
    of_logs = [shares for name, shares in scores.items() if name != GENERATED]
    if of_logs:
        means = [
            sum(shares[to][part] for shares in of_logs) / len(of_logs) for to in range(len(versions)) for part in (0, 1)
        ]
        lines.append(f"| mean of {len(of_logs)} logs | {' | '.join(f'{mean:.1%}' for mean in means)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, print and, if asked, write the document."""
    parser = argparse.ArgumentParser(prog="messages", description=__doc__)
    parser.add_argument("loghub", type=Path, help="a checkout of github.com/logpai/loghub")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/incidents.md")
    given = parser.parse_args()
    text = markdown(of_loghub(given.loghub) | {GENERATED: generated()}, commit())
    print(text)
    if given.write:
        write(text, BEGIN, END)


if __name__ == "__main__":
    main()
