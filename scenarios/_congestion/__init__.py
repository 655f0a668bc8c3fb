"""The study of congestion controls: what it measures, claims and draws."""
