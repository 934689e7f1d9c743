"""``efdm reid``: person re-identification. One module per command."""
