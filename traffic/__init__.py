"""What is sent, over which path, and what it cost."""

import sys

from traffic.compiled import CompiledModules

sys.meta_path.insert(0, CompiledModules)
