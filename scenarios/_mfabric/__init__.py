"""mFabric's training step over circuits that follow it, for its scenarios."""
