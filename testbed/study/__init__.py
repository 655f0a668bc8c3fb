"""The application: a study of points, from its options or its file to results that can be quoted."""
