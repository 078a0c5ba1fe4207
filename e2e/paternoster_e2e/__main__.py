"""``python -m paternoster_e2e``."""

import sys

from paternoster_e2e.cli import main

sys.exit(main())
