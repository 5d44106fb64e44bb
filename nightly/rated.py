"""People's ratings of several models, read for a comparison: JSONL, CSV or Parquet, ours or another's."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.compared import Comparison, RatingColumns
from calibration.comparison import compare_ratings
from data.errors import UserError
from data.records import UNNAMED_MODEL, Exchange, Rating
from data.tables import check_table, read_exchanges, read_ratings
from nightly.published import PAPER, is_published

HUMAN = "human"
ALL = "all"  # --models all: the sister study's too
MODEL_COLUMNS = ("model", "system")


def compare_file(
    path: Path,
    *,
    baselines: Sequence[str] = (),
    models: Sequence[str] = (),
    exchanges: Path | None = None,
) -> tuple[Comparison, tuple[str, ...]]:
    """A file of ratings compared, and the models that were left out.

    The study's own data hold a sister study's model besides the paper's five: unless `models` says otherwise
    it is left out, so that the tests are the published ones.
    """
    ratings = read_rating_columns(path, exchanges=exchanges)
    found = np.unique(ratings.model).tolist()
    if len(baselines) > 1 or any(is_published(name) for name in baselines):
        raise UserError("--baseline: ratings are compared with one of their own models; name one")
    baseline = baselines[0] if baselines else HUMAN
    if baseline not in found:
        raise UserError(
            f"no ratings of {baseline!r}; name the model to compare with: --baseline {_some(found)}"
        )
    chosen = tuple(name for name in models if name != ALL)
    if not models and set(PAPER) <= set(found):
        chosen = tuple(name for name in found if name in PAPER)
        chosen = tuple(sorted(chosen, key=PAPER.index))
    comparison = compare_ratings(ratings, baseline=baseline, models=chosen)
    if len(comparison.models) < 2:
        raise UserError(f"{path}: ratings of one model only, {baseline!r}; a comparison needs two")
    return comparison, tuple(name for name in found if name not in comparison.models)


def read_rating_columns(path: Path, *, exchanges: Path | None = None) -> RatingColumns:
    """All ratings of empathy; a row's model and emotion are its own, or those of its exchange."""
    check_table(path)
    texts = {item.id: item for item in read_exchanges(exchanges)} if exchanges else {}
    rows = [item for item in read_ratings(path) if item.dimension == "empathy"]
    if not rows:
        raise UserError(f"{path}: no ratings of empathy in it")
    _check_twice(path, rows)
    model, emotion = [], []
    for item in rows:
        exchange = texts.get(item.id)
        model.append(_model(path, item, exchange))
        emotion.append(str(item.extra.get("emotion") or (exchange.emotion if exchange else None) or ""))
        if item.rating not in (1, 2, 3):
            raise UserError(
                f"{path.name}: rating {item.rating:g} of {item.id!r}: expected 1 to 3, or Bad, Okay or Good"
            )
    return RatingColumns(
        model=np.array(model),
        rater=np.array([item.rater for item in rows]),
        rating=np.array([int(item.rating) for item in rows], dtype=np.int64),
        emotion=np.array([name.strip().casefold() for name in emotion]),
    )


def _model(path: Path, rating: Rating, exchange: Exchange | None) -> str:
    own = next((rating.extra[name] for name in MODEL_COLUMNS if rating.extra.get(name)), None)
    if own is not None:
        return str(own).strip()
    if exchange is not None and exchange.model != UNNAMED_MODEL:
        return exchange.model
    raise UserError(
        f"{path.name}: the rating of {rating.id!r} names no model; give a column `model` or `system`,"
        " or the rated responses with --exchanges"
    )


def _check_twice(path: Path, rows: Sequence[Rating]) -> None:
    times = Counter((item.rater, item.id) for item in rows)
    (who, what), count = times.most_common(1)[0]
    if count > 1:
        raise UserError(f"{path.name}: {who!r} rated {what!r} {count} times; keep one of them")


def _some(names: Sequence[str]) -> str:
    return " or ".join(names[:6])
