"""Whether the outputs that notebooks carry are those they give today: `current.py EXECUTED COMMITTED`.

Compares the text of every cell: what was printed, and tables. Pictures are
drawn from the same numbers, and every matplotlib draws them a little otherwise.
A cell tagged `varies` (speeds, say) is left out.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def texts(notebook: Path) -> list[tuple[str, str]]:
    """Source and text of each code cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = []
    for cell in cells:
        if cell["cell_type"] != "code" or "varies" in cell["metadata"].get("tags", []):
            continue
        said = []
        for output in cell["outputs"]:
            if output["output_type"] == "stream" and output["name"] == "stdout":
                said.append("".join(output["text"]))
            elif output["output_type"] in ("execute_result", "display_data"):
                said.append("".join(output["data"].get("text/plain", "")))
        # Objects without a form of their own print their address; figures their size in pixels.
        text = re.sub(r" at 0x[0-9a-f]+|<Figure size [^>]*>", "", "".join(said))
        found.append(("".join(cell["source"]), text.strip()))
    return found


def main() -> int:
    executed, committed = Path(sys.argv[1]), Path(sys.argv[2])
    stale = 0
    for path in sorted(committed.glob("*.ipynb")):
        # Slow ones do not run every time.
        if not (executed / path.name).exists():
            continue
        new, old = texts(executed / path.name), texts(path)
        if not any(text for _, text in old):
            print(f"{path.name} carries no outputs yet", file=sys.stderr)
            continue
        for number, (now, then) in enumerate(zip(new, old), 1):
            if now != then:
                stale += 1
                print(f"{path.name}, code cell {number}: {then[1][:200]!r} is now {now[1][:200]!r}", file=sys.stderr)
                break
    if stale:
        print("outputs are of another time: TRINITY_BLESS=1 cargo xtask test notebooks writes them anew", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
