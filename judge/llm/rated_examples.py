"""Rated replies in a judge's prompt: of all levels, of ordinary length, never of the judged prompt."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from statistics import fmean, median
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.rating_files.rated_inputs import RatedExchange, join_ratings
from empathy_judge.data.rating_files.sheet import Replies, SheetOptions, read_sheet
from empathy_judge.data.readers.file_formats import OnBad
from empathy_judge.data.readers.table_rows import stop_at_bad_row
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.data.tables import read_responses
from empathy_judge.judge.llm.judge_prompt import PromptForm
from empathy_judge.judge.llm.prompt_injection import delimit_exchange

MOST: Final = 8
FEWEST: Final = 6
INTRODUCTION: Final = "Examples, with the ratings that people gave:"


def read_examples(paths: Sequence[str], *, unit: str) -> list[RatedExchange]:
    """Return the ratings in a file of rated replies, or in a second file of ratings."""
    texts, ratings = Path(paths[0]), Path(paths[-1])
    # In a file of ratings each rater of a reply has a row.
    on_bad: OnBad = stop_at_bad_row if len(paths) > 1 else lambda bad: None
    rows = read_responses([texts], unit=unit, on_bad=on_bad)
    replies = {item.content_digest: item for item in rows}.values()
    sheet = read_sheet(ratings, SheetOptions(), replies=Replies(exchanges=replies))
    return join_ratings(replies, sheet.ratings)


class RatedExamples:
    """Rated replies, each of another prompt, of which `FEWEST` to `MOST` are shown."""

    def __init__(self, rated: Sequence[RatedExchange], *, is_whole: bool) -> None:
        exchanges = {item.exchange.content_digest: item.exchange for item in rated}
        ratings: dict[str, list[int]] = {digest: [] for digest in exchanges}
        for item in rated:
            ratings[item.exchange.content_digest].append(1 + item.target.index(max(item.target)))
        usual = median(len(exchange.response) for exchange in exchanges.values())
        levels: list[list[str]] = [[] for _ in LABELS]
        for digest in sorted(exchanges, key=lambda key: (abs(len(exchanges[key].response) - usual), key)):
            levels[round(fmean(ratings[digest])) - 1].append(digest)
        self.texts: dict[str, str] = {}  # by prompt
        for digest in filter(None, chain.from_iterable(zip_longest(*levels))):
            counts = Counter(LABELS[level - 1] for level in ratings[digest])
            given = ", ".join(f"{counts[label]} {label}" for label in LABELS if label in counts)
            text = delimit_exchange(exchanges[digest], whole=is_whole).text
            if len(self.texts) <= MOST:  # one more, as one may be of the judged prompt
                self.texts.setdefault(exchanges[digest].prompt_digest, f"{text}\nRatings: {given}")
        if len(self.texts) <= FEWEST:
            needed = f"replies to {FEWEST + 1} prompts are needed, not to {len(self.texts)}"
            raise UserError(f"examples: rated {needed}")
        self.digest = digest_json(list(self.texts.values()))

    def add_to(self, form: PromptForm, exchange: Exchange | None = None) -> PromptForm:
        """Return the messages with the examples that are not of the exchange's prompt."""
        judged = exchange.prompt_digest if exchange else ""
        texts = [text for prompt, text in self.texts.items() if prompt != judged][:MOST]
        first, *others = form.template
        content = "\n\n".join([first["content"], INTRODUCTION, *texts])
        return replace(form, template=({**first, "content": content}, *others))
