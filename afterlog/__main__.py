"""``python -m afterlog``: the command ``afterlog``."""

from afterlog import main

if __name__ == "__main__":
    main()
