"""The checklist of a release: each point is found lacking where it lacks, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from local import release_check

ENTRY = "## [1.2.0] - 2026-12-01\n\nNothing must be done for it.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": '[project]\nversion = "1.2.0"\n',
        "CHANGELOG.md": f"# Changelog\n\n## [Unreleased]\n\n{ENTRY}\n## [1.1.0] - 2026-11-01\n\n- More.\n",
        "conf/afterlog.toml": '# image = "registry.example.com/afterlog:1.2.0"\n',
        "docs/deploy.md": "afterlog\n",
        "docs/decisions/README.md": "- [0001](0001-one.md)\n",
        "docs/decisions/0001-one.md": "",
        "tests/data/warehouses/1.2.0.tar.xz": "",
        "examples/job.yaml": "image: x/afterlog:1.2.0\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def left(project: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    code = release_check.main(project)
    lines = [text for text in capsys.readouterr().out.splitlines() if text.startswith("left")]
    assert code == bool(lines)
    return lines


def test_a_ready_project_is_ready(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert left(project, capsys) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        pytest.param("pyproject.toml", "1.2.0", "1.3.0", "an entry of the version", id="no entry"),
        pytest.param("CHANGELOG.md", " - 2026-12-01", "", "write the day", id="no day"),
        pytest.param("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]: 1.3.0\nNew.\n", "under [Unreleased]", id="rest"),
        pytest.param("CHANGELOG.md", "Nothing must be done", "Thanks", "what people must do", id="no duties"),
        pytest.param("docs/decisions/README.md", "0001-one.md", "", "lacks 0001-one.md", id="index"),
        pytest.param("examples/job.yaml", "1.2.0", "1.1.0", "in examples/job.yaml", id="image"),
    ],
)
def test_what_lacks_is_said(
    name: str, old: str, new: str, said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / name
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert any(said in line for line in left(project, capsys))


def test_a_warehouse_that_is_not_kept_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests/data/warehouses/1.2.0.tar.xz").unlink()
    (line,) = left(project, capsys)
    assert "make keep-warehouse" in line
