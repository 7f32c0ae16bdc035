from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from expectations.text import visible


@given(st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_what_is_shown_can_be_printed_and_reads_back(text: str) -> None:
    escaped = visible(text.replace("\\", "/"))

    assert escaped.isprintable()
    quoted = '"' + escaped.replace('"', '\\"') + '"'
    assert json.loads(quoted).encode("utf-16", "surrogatepass") == text.replace("\\", "/").encode(
        "utf-16", "surrogatepass"
    )
