"""``python -m tests.conformance PATH...``"""

import sys

from tests.conformance.command import main

sys.exit(main())
