"""The options on how a file of ratings is read."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from empathy_judge.commands.shared.options import FILE


def ratings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options on how a file of ratings is read; the command takes them together as `reading`."""

    @click.option(
        "--scale",
        metavar="LOW-HIGH|LEVELS",
        help="Levels of the ratings, worst first: 1-5, or poor,fair,good."
        "  [default: Bad,Okay,Good, thumbs or stars, detected]",
    )
    @click.option(
        "--cut",
        metavar="OKAY,GOOD",
        help="For --scale: the lowest level that counts as Okay, and the lowest that counts as Good."
        "  [default: thirds of the scale]",
    )
    @click.option(
        "--column",
        "columns",
        metavar="FIELD=NAME",
        multiple=True,
        help="Column of the ratings that is the id, rater, rating, model, prompt, response ...;"
        " may be repeated.  [default: detected]",
    )
    @click.option(
        "--ai-raters",
        metavar="NAMES|all",
        help="Raters that are AIs, separated by commas.  [default: those whose `rater_kind` is ai]",
    )
    @click.option(
        "--exchanges",
        type=FILE,
        multiple=True,
        help="The replies: for models, lengths, emotions, examples, ratings without ids; may be repeated.",
    )
    @click.option("--skip-invalid", is_flag=True, help="Skip rows that cannot be read.")
    @wraps(command)
    def gathered(
        *args: Any,
        scale: str | None,
        cut: str | None,
        columns: tuple[str, ...],
        ai_raters: str | None,
        skip_invalid: bool,
        **rest: Any,
    ) -> None:
        from empathy_judge.data.judgments import parse_scale
        from empathy_judge.data.rating_files.sheet import SheetOptions, parse_stated

        reading = SheetOptions(
            scale=parse_scale(scale) if scale is not None else None,
            cut=tuple(part.strip() for part in cut.split(",")) if cut is not None else None,
            columns=parse_stated(columns),
            ai_raters=tuple(name.strip() for name in (ai_raters or "").split(",") if name.strip()),
            skip_invalid=skip_invalid,
        )
        command(*args, reading=reading, **rest)

    return gathered
