"""Processes whose clock is another one: `LD_PRELOAD` puts a function of ours before the C library's `clock_gettime`.

Python, the JVM and the libraries in Rust all ask it. Times of files are those of the kernel, as on a file server. By
how much the clock is ahead stands in a variable, or in a file, so that it can move while the processes go on.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

SHIFT = "AFTERLOG_TEST_CLOCK_SHIFT"
_SOURCE = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {{
    static const char *text;
    static const long *moving;
    if (!text && !(text = getenv("{SHIFT}"))) text = "0";
    if (text[0] != '/') return atol(text);
    if (!moving) moving = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, open(text, O_RDONLY), 0);
    return *moving;
}}

int clock_gettime(clockid_t id, struct timespec *at) {{
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(id, at);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
    return result;
}}

int gettimeofday(struct timeval *at, void *zone) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}}

time_t time(time_t *at) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}}
"""


def library(directory: Path) -> Path:
    """Return the shared library; skip the test where no compiler is."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, which a process with another clock needs")
    source, made = directory / "clock.c", directory / "clock.so"
    source.write_text(_SOURCE, encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def environment(library: Path, shift: timedelta) -> dict[str, str]:
    """Return the variables of a process whose clock is so far ahead."""
    return os.environ | {"LD_PRELOAD": str(library), SHIFT: str(round(shift.total_seconds()))}


class Moving:
    """A clock that moves while processes go on: how far it is ahead stands in a file, which they share."""

    def __init__(self, file: Path) -> None:
        """Use the file, which begins with no shift."""
        if not file.exists():
            file.write_bytes(struct.pack("l", 0))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), 0)
        self._file = file

    @property
    def shift(self) -> timedelta:
        """By how much the clock is ahead."""
        return timedelta(seconds=struct.unpack_from("l", self._shared)[0])

    def move(self, by: timedelta) -> None:
        """Take the clock ahead."""
        struct.pack_into("l", self._shared, 0, round((self.shift + by).total_seconds()))

    def environment(self, library: Path) -> dict[str, str]:
        """Return the variables of a process that has this clock."""
        return os.environ | {"LD_PRELOAD": str(library), SHIFT: str(self._file.absolute())}
