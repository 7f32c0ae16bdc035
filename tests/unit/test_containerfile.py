"""The Containerfile copies what the wheel is made of, nothing else, and its versions are those of set-up."""

from __future__ import annotations

import re
import tomllib

from dags import pods
from local.install import UV
from pipelines.installation import CONFIGURATIONS, ROOT

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_context_is_what_the_wheel_is_made_of() -> None:
    folders = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    files = ["pyproject.toml", "uv.lock", PROJECT["project"]["readme"], "LICENSE"]
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", TEXT, re.MULTILINE) for name in line.split()]
    assert sorted(copied) == sorted([*folders, *files])
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(copied)
    assert "*" in ignored


def test_versions_and_jars_are_those_of_set_up() -> None:
    assert f"pip install --no-cache-dir {UV}\n" in TEXT
    (jars,) = re.findall(r"-m pipelines\.jvm\.jars ([a-z0-9 ]*) \\", TEXT)
    assert tuple(jars.split()) == CONFIGURATIONS
    assert set(re.findall(r"python3\.\d+", TEXT)) == {"python3.11"}


def test_its_user_is_that_of_pods_and_not_root() -> None:
    assert re.findall(r"^USER (.*)$", TEXT, re.MULTILINE) == [f"{pods.USER}:{pods.USER}"]
    assert f"useradd --uid {pods.USER} " in TEXT
