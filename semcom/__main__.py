"""`python -m semcom` is the command `semcom`."""

import sys

from semcom.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
