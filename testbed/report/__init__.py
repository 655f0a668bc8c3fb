"""What a run leaves: results, tables, plots, claims and the report."""
