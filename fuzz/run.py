"""Run the fuzzers one after another: ``python fuzz/run.py --seconds 60``.

The corpus is kept; with ``--keep`` new finds are added to it.

An input that breaks a promise is written to build/fuzz and ends the run with exit code 1; running the target with that
file as its argument shows it again.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = ("server", "upstream", "streams", "requests")


def main() -> int:
    """Share the time among the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--keep", action="store_true", help="add new finds to the corpus")
    parser.add_argument("targets", nargs="*", default=TARGETS)
    given = parser.parse_args()
    for name in given.targets:
        if name not in TARGETS:
            parser.error(f"there is no target '{name}': {', '.join(TARGETS)}")
    crashes = HERE.parent / "build" / "fuzz"
    failed = []
    for name in given.targets:
        corpus, found = HERE / "corpus" / name, crashes / name
        for folder in (corpus, found):
            folder.mkdir(parents=True, exist_ok=True)
        folders = [corpus] if given.keep else [found / "corpus", corpus]
        folders[0].mkdir(parents=True, exist_ok=True)
        limit = max(1, given.seconds // len(given.targets))
        options = [
            f"-max_total_time={limit}",
            f"-artifact_prefix={found}/",
            "-max_len=4096",
            "-timeout=20",
            "-verbosity=0",
        ]
        print(f"fuzzing {name} for {limit} s", flush=True)
        if subprocess.run([sys.executable, HERE / f"{name}.py", *folders, *options], check=False).returncode:
            failed.append(name)
    print(f"broken: {', '.join(failed)}; see build/fuzz" if failed else "no promise was broken")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
