"""The audit: what is possible passes, what is not is found."""
