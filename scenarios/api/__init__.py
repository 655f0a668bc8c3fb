"""What scripts of one's own import (docs/howto/python.md)."""
