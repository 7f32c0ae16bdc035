"""Processes whose clock is another one: `LD_PRELOAD` puts a function of ours before the C library's `clock_gettime`.

Python, the JVM and the libraries in Rust all ask it. Times of files are those of the kernel, as on a file server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

SHIFT = "AFTERLOG_TEST_CLOCK_SHIFT"
_SOURCE = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {{
    static const char *text;
    if (!text && !(text = getenv("{SHIFT}"))) text = "0";
    return atol(text);
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
