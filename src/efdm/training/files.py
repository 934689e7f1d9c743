"""Small files of a run."""

from __future__ import annotations

import json
from pathlib import Path


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
