"""What scripts of one's own import (docs/python_api.md)."""
