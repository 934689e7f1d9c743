"""Style transfer: networks run with matching, trained and measured."""
