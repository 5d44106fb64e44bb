"""How many people in danger the list of phrases finds, and whom it takes for one: texts of ours, as JSON.

    python tests/trust/trust_danger.py

Recall and false alarms with Clopper and Pearson's 95 % intervals, by family of texts; those of the test half
were written before anybody looked at the phrases, and the phrases are improved on the other half only.
"""

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
TEXTS: Final = ROOT / "tests" / "data" / "danger_texts.toml"


def count(half: str) -> dict[str, Any]:
    """How many texts of a half are flagged: those of danger, and those that only look so, by family."""
    from calibration.bias.crossed_shares import exact_share
    from data.crisis import danger_said

    def row(texts: Sequence[str]) -> dict[str, Any]:
        flagged = sum(danger_said(text) is not None for text in texts)
        share = exact_share(flagged, len(texts))
        ends = (share.interval.low, share.interval.high) if share.interval else (None, None)
        return {"flagged": flagged, "of": len(texts), "share": share.value, "low": ends[0], "high": ends[1]}

    def kind(families: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        every = [text for texts in families.values() for text in texts]
        return {"all": row(every), **{family: row(texts) for family, texts in families.items()}}

    texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))[half]
    return {"danger": kind(texts["danger"]), "safe": kind(texts["safe"])}


if __name__ == "__main__":
    print(json.dumps({half: count(half) for half in ("test", "development")}, indent=2))
