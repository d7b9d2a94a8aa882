"""`python -m xidwatch`."""

import sys

from xidwatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
