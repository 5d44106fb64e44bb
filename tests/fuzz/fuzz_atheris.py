"""Coverage-guided fuzzing of one target, where atheris is installed (it has wheels for x86-64 only).

    python tests/fuzz/fuzz_atheris.py marks.txt -max_total_time=60

Further arguments are libFuzzer's own. New inputs go to a folder of their own, named with a second plain
argument; the seeds in `corpus` are read and stay as they are.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    """Instruments our packages, then hands over to libFuzzer."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(
        include=["calibration", "data", "emotionbench", "judge", "nightly", "server"]
    ):
        from harness import CORPUS, TARGETS, corpus_of, try_input

        if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
            sys.exit(f"name a target: {', '.join(TARGETS)}")
        name = sys.argv.pop(1)
        for seed in corpus_of(name):  # what a target needs is imported, and instrumented, on first use
            try_input(name, seed)

    def one_input(data: bytes) -> None:
        try_input(name, data)

    found = [item for item in sys.argv[1:] if not item.startswith("-")] or [
        tempfile.mkdtemp(prefix="atheris-")
    ]
    options = [item for item in sys.argv[1:] if item.startswith("-")]
    atheris.Setup([sys.argv[0], *options, found[0], str(CORPUS / name)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
