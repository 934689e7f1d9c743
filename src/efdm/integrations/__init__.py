"""Nodes and plug-ins for other programs."""
