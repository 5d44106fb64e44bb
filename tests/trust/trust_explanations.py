"""Do the marks of an explanation hold? Sentences of the samples left out, and swapped for neutral ones.

    python tests/trust/trust_explanations.py [--judge classifier] [--every 1]

A mark is the score less the score without a sentence. It holds where a neutral sentence in its place moves
the score the same way. Shares with 95 % intervals over prompts, as JSON.
"""

import argparse
import json
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from calibration.bias.crossed_shares import exact_share  # noqa: E402
from calibration.bootstrap import percentile_interval, ratio, resample_clusters  # noqa: E402
from calibration.estimate import Interval  # noqa: E402
from data.tables import read_exchanges  # noqa: E402
from judge.base import load_judge  # noqa: E402
from judge.explanation import CLEAR, Explanation, Part, explain  # noqa: E402

SAMPLES: Final = ROOT / "data" / "samples" / "responses.jsonl"
DRAWS: Final = 2000
STRONG: Final = 0.1  # points of score


def main() -> int:
    """Explain replies and print how far the two ways of changing them agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", default="classifier")
    parser.add_argument("--every", type=int, default=1, help="of the samples, only each so manieth")
    options = parser.parse_args()
    judge = load_judge(options.judge)
    exchanges = sorted(list(read_exchanges(SAMPLES))[:: options.every], key=lambda item: item.prompt_digest)
    prompts = [
        [explain(judge, item) for item in group]
        for _, group in groupby(exchanges, lambda item: item.prompt_digest)
    ]
    print(json.dumps({"judge": judge.name, "version": judge.version, **count(prompts)}, indent=2))
    return 0


def count(prompts: list[list[Explanation]]) -> dict[str, Any]:
    """How often marks hold, and how often the strongest part is the same both ways."""
    replies = [item for group in prompts for item in group if _is_swapped(item)]
    parts = [part for item in replies for part in item.parts]
    pairs = np.array(
        [(part.effect, part.swapped) for part in parts if None not in (part.effect, part.swapped)]
    )
    return {
        "replies": len(replies),
        "prompts": len(prompts),
        "sentences": len(parts),
        "correlation": round(float(np.corrcoef(pairs.T)[0, 1]), 3),
        "marks_hold": _share(prompts, lambda item: _held(item.parts, CLEAR)),
        "strong_marks_hold": _share(prompts, lambda item: _held(item.parts, STRONG)),
        "raising_marks_hold": _share(
            prompts, lambda item: _held([part for part in item.parts if (part.effect or 0) > 0], CLEAR)
        ),
        "lowering_marks_hold": _share(
            prompts, lambda item: _held([part for part in item.parts if (part.effect or 0) < 0], CLEAR)
        ),
        "strongest_sentence_is_the_same": _share(prompts, _same_strongest),
    }


def _is_swapped(item: Explanation) -> bool:
    return any(part.swapped is not None for part in item.parts)


def _held(parts: Any, least: float) -> tuple[int, int]:
    marked: list[Part] = [
        part
        for part in parts
        if part.effect is not None and part.swapped is not None and abs(part.effect) >= least
    ]
    return sum(not part.is_doubtful for part in marked), len(marked)


def _same_strongest(item: Explanation) -> tuple[int, int]:
    effects, swaps = ([getattr(part, name) or 0.0 for part in item.parts] for name in ("effect", "swapped"))
    return int(np.argmax(effects) == np.argmax(swaps)), 1


def _share(prompts: list[list[Explanation]], of: Any) -> dict[str, Any]:
    """Hits of cases, and their share, drawing prompts anew for its interval."""
    counts = [[of(item) for item in group if _is_swapped(item)] for group in prompts]
    sums = np.array([[sum(hit for hit, _ in rows), sum(total for _, total in rows)] for rows in counts])
    hits, total = map(int, sums.sum(axis=0))
    if hits in (0, total):  # drawn anew, prompts that all agree show no chance
        count = int((sums[:, 1] > 0).sum())
        interval = exact_share(count if hits else 0, count).interval
        return {"hits": hits, "of": total, "share": hits / total if total else None, **_ends(interval)}
    weights = resample_clusters(len(sums), rng=np.random.default_rng(0), draws=DRAWS)
    drawn = weights @ sums
    interval = percentile_interval(ratio(drawn[:, 0], drawn[:, 1]))
    return {"hits": hits, "of": total, "share": hits / total, **_ends(interval)}


def _ends(interval: Interval | None) -> dict[str, float | None]:
    return asdict(interval) if interval else {"low": None, "high": None}


if __name__ == "__main__":
    sys.exit(main())
