"""Small files of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_json(path: Path, content: object) -> None:
    """At once, so that a crash leaves the old or the new file."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(new, path)
