"""Remediation rules: the first that matches decides, and a file that cannot be used is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import UsageError
from pipelines.replay import rules
from pipelines.settings import ROOT, Replay, load


def test_the_shipped_file_replays_nothing() -> None:
    assert rules.read(ROOT / "conf" / "remediation.toml").rules == ()
    assert rules.read(ROOT / "conf" / "remediation.toml").decide({}) == ("REVIEW", None)


def test_the_shipped_examples_can_be_used(tmp_path: Path) -> None:
    text = (ROOT / "conf" / "remediation.toml").read_text(encoding="utf-8")
    file = tmp_path / "rules.toml"
    _, _, examples = text.partition("# [[rule]]")
    file.write_text(("[[rule]]" + examples).replace("\n# ", "\n"), encoding="utf-8")
    assert [rule.then for rule in rules.read(file).rules] == ["REPLAY", "REVIEW", "HOLD"]


def test_the_first_rule_whose_patterns_all_match_decides() -> None:
    known = rules.Rules(
        (
            rules.Rule(name="a", group="bill*", error="*Timeout*", then="REPLAY"),
            rules.Rule(name="b", verdict="SYSTEMIC", then="HOLD"),
            rules.Rule(name="c", topic="o?ders", dlq_topic="dlq.*", then="DISCARD"),
        )
    )

    def decided(**letter: str | None) -> tuple[str, str | None]:
        action, rule = known.decide(letter)
        return action, rule.name if rule else None

    assert decided(consumer_group="billing", exception_class="a.TimeoutException") == ("REPLAY", "a")
    assert decided(consumer_group="billing", error_message="Timeout of x\nmore") == ("REPLAY", "a")
    assert decided(consumer_group="billing") == ("REVIEW", None)
    assert decided(consumer_group="Billing", error_message="Timeout", verdict="SYSTEMIC") == ("HOLD", "b")
    assert decided(original_topic="orders", dlq_topic="dlq.x", verdict="FLOOD") == ("DISCARD", "c")
    assert decided(original_topic="orders", dlq_topic=None) == ("REVIEW", None)


@pytest.mark.parametrize(
    ("then", "verdict", "decision"),
    [
        ("REPLAY", None, ("REVIEW", "b")),
        ("DISCARD", None, ("REVIEW", "b")),
        ("HOLD", None, ("HOLD", "c")),
        ("REPLAY", "SYSTEMIC", ("HOLD", "b")),
        ("REPLAY", "KEY_LOCAL", ("REPLAY", "c")),
    ],
)
def test_what_has_no_verdict_yet_is_not_replayed_past_a_rule_that_may_hold_it(
    then: rules.Action, verdict: str | None, decision: tuple[str, str]
) -> None:
    known = rules.Rules(
        (
            rules.Rule(name="a", verdict="SYSTEMIC", group="another", then="HOLD"),
            rules.Rule(name="b", verdict="SYSTEMIC", group="bill*", then="HOLD"),
            rules.Rule(name="c", error="*Timeout*", then=then),
        )
    )
    action, rule = known.decide({"consumer_group": "billing", "error_message": "Timeout", "verdict": verdict})
    assert rule is not None
    assert (action, rule.name) == decision


def test_another_rule_is_another_digest() -> None:
    item = rules.Rules((rules.Rule(name="a", then="HOLD"),))
    assert item.digest == rules.Rules((rules.Rule(name="a", then="HOLD"),)).digest
    assert item.digest != rules.Rules((rules.Rule(name="a", then="REPLAY"),)).digest
    assert item.digest != rules.Rules().digest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[rule]]\nname = 'a'\n", "then cannot be used"),
        ("[[rule]]\nname = 'a'\nthen = 'DELETE'\n", "then cannot be used"),
        ("[[rule]]\nname = 'a'\nthen = 'HOLD'\ngroups = 'x'\n", "there is no such key"),
        ("[[rule]]\nname = 'a'\nthen = 'HOLD'\nverdict = 'BAD'\n", "POISON_PILL"),
        ("[[rule]]\nname = 'a'\nthen = 'HOLD'\ndisposition = 'BAD'\n", "CLIENT_REJECTED"),
        ("[[rule]]\nname = 'a'\nthen = 'HOLD'\n" * 2, "two are called 'a'"),
        ("[[rule]", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=why):
        rules.read(file)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml does not exist: correct \[replay\] rules"):
        rules.of(load(replay=Replay(rules=str(tmp_path / "none.toml"))))
