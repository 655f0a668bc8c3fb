"""The figures of the study at scale, a section each, which `scenarios/mfabric_scale.py` lists."""
