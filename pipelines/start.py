"""The command ``afterlog``: it listens to Ctrl-C first, then imports the command line, which takes time."""

from __future__ import annotations

from pipelines.run import interrupt


def main() -> None:
    """Run the command line and end the process."""
    with interrupt.heard():
        from pipelines import cli

        cli.main()


if __name__ == "__main__":
    main()
