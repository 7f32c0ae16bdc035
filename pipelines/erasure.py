"""Values that are to be forgotten -> the forms in which they stand in bytes, and what stands there instead.

A value stands as it is, escaped in JSON, HTML or a web address, or in base64 or hexadecimal digits, alone or within a
longer text. What replaces it is a word of letters that is the same for the same value within one erasure: so rows with
one key still have one key. It comes from a secret that ends with the erasure, and tells nothing about the value.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote

WORD = "erased"
ANYWHERE = 8  # bytes of a value that is found within words, too
LEAST = 4  # bytes of a value that is searched
LEAST_DIGITS = 8  # of a number that is searched: shorter ones are offsets and counts, too
_LETTERS = "bcdfghjklmnpqrstvwxyz"  # a word of them is no number and no name: patterns of errors keep it
_LETTERS_OF_A_TOKEN = 10
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{4,}={0,2}")
_HEX = re.compile(rb"[0-9A-Fa-f]{8,}")
_DEEPEST = 3  # encoded texts within encoded texts
_BESIDE = rb"A-Za-z0-9_"


def token(secret: bytes, value: bytes) -> bytes:
    """Return the word that replaces a value in an erasure."""
    digest = int.from_bytes(hmac.new(secret, value, hashlib.sha256).digest()[:8], "big")
    letters = ""
    for _ in range(_LETTERS_OF_A_TOKEN):
        digest, index = divmod(digest, len(_LETTERS))
        letters += _LETTERS[index]
    return (WORD + letters).encode()


def is_searched(value: bytes) -> bool:
    """Tell whether a value is long enough to be searched: a shorter one stands in many values by chance."""
    return len(value) >= (LEAST_DIGITS if value.isdigit() else LEAST)


@dataclass(frozen=True)
class Words:
    """Values to forget that are long enough to be searched, each with what replaces it; ``repr`` does not show them."""

    replaced_by: Mapping[bytes, bytes] = field(repr=False)

    @classmethod
    def of(cls, values: Iterable[bytes], secret: bytes) -> Words:
        """Return the words for those of some values that are searched."""
        return cls({value: token(secret, value) for value in values if is_searched(value)})

    @cached_property
    def _plain(self) -> list[tuple[re.Pattern[bytes], bytes]]:
        """What finds the forms of the values that stand in texts, the longest first, each with what replaces it."""
        forms: dict[bytes, tuple[bytes, bytes]] = {}
        for value, word in self.replaced_by.items():
            forms |= {form: (value, word) for form in _forms(value)}
        return [
            (_pattern(form, value), word)
            for form, (value, word) in sorted(forms.items(), key=lambda pair: -len(pair[0]))
        ]

    @cached_property
    def needles(self) -> tuple[bytes, ...]:
        """Bytes of which some are in every content that holds a value, and in few others."""
        found = dict.fromkeys(form for value in self.replaced_by for form in _forms(value))
        for value in self.replaced_by:
            once = _within_base64(value)
            twice = [two for form in once if len(form) >= ANYWHERE for two in _within_base64(form)]
            found |= dict.fromkeys((*once, *twice, *_within_hex(value)))
        return tuple(found)

    @cached_property
    def plain_needles(self) -> tuple[bytes, ...]:
        """The values as they are, if they are long enough not to stand in compressed bytes by chance."""
        return tuple(value for value in self.replaced_by if len(value) >= ANYWHERE)

    def may_be_in(self, content: bytes) -> bool:
        """Tell, quickly, whether a content may hold a value; False is certain."""
        return any(needle in content for needle in self.needles)

    def are_in(self, content: bytes) -> bool:
        """Tell whether a content holds a value in any form."""
        return self.may_be_in(content) and self.replaced(content) != content

    def replaced(self, content: bytes) -> bytes:
        """Return a content without the values."""
        return self._replaced(content, _DEEPEST) if self.may_be_in(content) else content

    def replaced_text(self, text: str) -> str:
        """Return a text without the values."""
        return self.replaced(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _replaced(self, content: bytes, depth: int) -> bytes:
        for pattern, word in self._plain:
            content = pattern.sub(lambda found, word=word: word, content)  # type: ignore[misc]
        if depth:
            content = self._encoded(content, _BASE64, _of_base64, _in_base64, _within_base64, depth)
            content = self._encoded(content, _HEX, _of_hex, _in_hex, _within_hex, depth)
        return content

    def _encoded(
        self,
        content: bytes,
        runs: re.Pattern[bytes],
        decoded: Callable[[bytes], bytes | None],
        encoded: Callable[[bytes, bytes], bytes],
        within: Callable[[bytes], tuple[bytes, ...]],
        depth: int,
    ) -> bytes:
        """Return a content in which no run of digits holds a value; what cannot be decoded is replaced."""
        needles = {needle: word for value, word in self.replaced_by.items() for needle in within(value)}

        def of(found: re.Match[bytes]) -> bytes:
            run = found[0]
            plain = decoded(run)
            if plain is not None and self.may_be_in(plain) and (clean := self._replaced(plain, depth - 1)) != plain:
                return encoded(clean, run)
            for needle, word in needles.items():
                if len(needle) >= ANYWHERE and needle in run:
                    return word
            return run

        return runs.sub(of, content)


def _forms(value: bytes) -> dict[bytes, None]:
    """Return how a value stands in texts that are not encoded as a whole."""
    found = {value: None, quote(value).encode(): None}
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return found
    for ascii_alone in (False, True):
        escaped = json.dumps(text, ensure_ascii=ascii_alone)[1:-1].encode("utf-8", "surrogatepass")
        found |= {escaped: None, escaped.replace(b"/", rb"\/"): None}
    return found | {html.escape(text).encode(): None, html.escape(text).replace("&#x27;", "&#39;").encode(): None}


def _pattern(form: bytes, value: bytes) -> re.Pattern[bytes]:
    """Return what finds a form; a short value, and a number, is found only as a word of its own."""
    if len(value) >= ANYWHERE and not value.isdigit():
        return re.compile(re.escape(form))
    return re.compile(rb"(?<![%b])%b(?![%b])" % (_BESIDE, re.escape(form), _BESIDE))


def _within_base64(value: bytes) -> tuple[bytes, ...]:
    """Return what the base64 of any content that holds a value contains, one for each index in a group of three."""
    found = []
    for before in range(3):
        digits = base64.b64encode(b"\0" * before + value)
        whole = (before + len(value)) * 8 // 6  # digits behind it also tell of what follows
        found.append(digits[-(-before * 8 // 6) : whole])
    return tuple(dict.fromkeys([*found, *(form.replace(b"+", b"-").replace(b"/", b"_") for form in found)]))


def _within_hex(value: bytes) -> tuple[bytes, ...]:
    return value.hex().encode(), value.hex().upper().encode()


def _of_base64(run: bytes) -> bytes | None:
    digits = run.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4))
    except (binascii.Error, ValueError):
        return None


def _in_base64(content: bytes, like: bytes) -> bytes:
    digits = base64.b64encode(content)
    if b"-" in like or b"_" in like:
        digits = digits.replace(b"+", b"-").replace(b"/", b"_")
    is_padded = like.endswith(b"=") or len(like) % 4 == 0
    return digits if is_padded else digits.rstrip(b"=")


def _of_hex(run: bytes) -> bytes | None:
    return bytes.fromhex(run.decode()) if len(run) % 2 == 0 else None


def _in_hex(content: bytes, like: bytes) -> bytes:
    return content.hex().upper().encode() if like.upper() == like else content.hex().encode()
