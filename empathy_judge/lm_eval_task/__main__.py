"""Says where the task lies, for `--include_path`."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).parent)
