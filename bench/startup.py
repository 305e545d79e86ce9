"""What it costs to start: `import servo` beside a bare interpreter, and `servo --help`.

The cases take turns within one run, so that a busy moment of the machine falls on all of them, and
the figure is the difference of medians. Compiled files are allowed and warmed up first: that is how
an installed program starts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from report import figure

ROUNDS = 25
BIN = Path(sys.executable).parent
CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import servo": [sys.executable, "-c", "import servo"],
    "from servo import asset": [sys.executable, "-c", "from servo import asset"],
    "servo --help": [str(BIN / "servo"), "--help"],
}


def main() -> int:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for round_number in range(ROUNDS + 1):
        for name, command in CASES.items():
            began = time.perf_counter()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            if round_number:  # the first round warms up
                times[name].append((time.perf_counter() - began) * 1000)

    for name, measured in times.items():
        print(
            f"{name:<24} min {min(measured):6.1f} ms   median {statistics.median(measured):6.1f} ms"
        )
    median = {name: statistics.median(measured) for name, measured in times.items()}
    bare = median["python -c pass"]
    added = median["import servo"] - bare
    added_asset = median["from servo import asset"] - bare
    shown = median["servo --help"]
    figure("startup", "import_servo_added_ms", added, "ms", "<80", added < 80)
    figure("startup", "import_asset_added_ms", added_asset, "ms", "<150", added_asset < 150)
    figure("startup", "help_ms", shown, "ms", "<150", shown < 150)
    return 0 if added < 80 and added_asset < 150 and shown < 150 else 1


if __name__ == "__main__":
    raise SystemExit(main())
