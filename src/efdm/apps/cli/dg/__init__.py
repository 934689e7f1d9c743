"""``efdm dg``: domain generalization. One module per command."""
