"""``python -m kip848_client``: the same as the command ``kip848``."""

from kip848_client.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
