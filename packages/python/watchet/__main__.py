"""`python -m watchet` runs the program."""

import os
import sys

from watchet.server import binary

os.execv(binary(), ["watchet", *sys.argv[1:]])
