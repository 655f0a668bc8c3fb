"""mFabric's study without a network, for its scenario: one file per section."""
