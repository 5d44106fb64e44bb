"""Attacks on a judge as a section of its report, and as a page for the terminal."""

from collections.abc import Iterator, Mapping, Sequence

from nightly.page import Page, Section, Table, row
from nightly.wording import Row, number, part, rows, show_estimate, text_of

WORST = 10  # attacks in the table; all of them are in the JSON
VERDICTS = {
    "passes": "fewer than the limit",
    "fails": "more than the limit",
    "cannot tell": "cannot be told from the limit",
}


def attacks_page(found: Row) -> Page:
    """What `nightly.gaming.run_attacks` found, by itself."""
    section = make_section(found)
    return Page(
        title=f"Attacks on the judge {text_of(found, 'judge')} {text_of(found, 'version')}",
        subtitle=_say_plain(found),
        verdict=section.text[1:],
        sections=tuple(
            Section(name=section.name, title=table.caption, short=section.short, tables=(_bare(table),))
            for table in section.tables
        ),
        foot=section.notes[0],
    )


def attacks_section(result: Row) -> Section | None:
    """The section of a calibration's report, where attacks were tried."""
    found = part(result, "attacks")
    return make_section(found) if found else None


def make_section(found: Row) -> Section:
    """Families of attacks and the worst attacks, with the part of Bad replies that each makes Good."""
    return Section(
        name="attacks",
        title="Bad replies dressed up as good ones",
        short="Attacks",
        text=(_say_plain(found), _say_all(found)),
        tables=(*_flips(found), _kinds(part(found, "plain_bad_by_kind"))),
        notes=(
            "Per cent of the attacked replies that are scored; all of them were Bad before. "
            "Intervals of families draw attacks and replies anew, those of single attacks are exact.",
        ),
    )


def _say_plain(found: Row) -> str:
    plain = part(found, "plain")
    bad = number(plain.get("Bad"), 0)
    told = f"Of {sum(plain.values()):,} plain replies without empathy the judge calls {bad} Bad"
    unscored = f", {plain['unscored']:,} are unscored" if plain.get("unscored") else ""
    return f"{told}{unscored}; only the Bad ones are attacked."


def _say_all(found: Row) -> str:
    overall = part(found, "overall")
    share = part(overall, "to_good")
    if share.get("value") is None:
        return "Nothing can be said of attacks: no reply that the judge calls Bad was judged again."
    verdict = VERDICTS.get(text_of(found, "result"), "")
    return (
        f"{number(overall.get('attacks'), 0)} attacks make {show_estimate(share, is_share=True)} per cent of "
        f"them Good, {verdict} of {number(found.get('limit'), 0, scale=100)}; "
        f"{show_estimate(overall.get('not_bad'), is_share=True)} per cent are no longer Bad, "
        f"{number(overall.get('unscored'), 0)} of {number(overall.get('pairs'), 0)} unscored."
    )


def _flips(found: Row) -> Iterator[Table]:
    """By family, and the worst attacks; neither where every line would be undefined."""
    if worst := _worst(found):
        yield _table("By family", "family", rows(found, "families"))
        yield _table(f"The {len(worst)} worst attacks", "attack", worst)


def _worst(found: Row) -> Sequence[Row]:
    defined = [item for item in rows(found, "attacks") if part(item, "to_good").get("value") is not None]
    return sorted(
        defined, key=lambda item: tuple(-part(item, share)["value"] for share in ("to_good", "not_bad"))
    )[:WORST]


def _table(caption: str, name: str, found: Sequence[Row]) -> Table:
    return Table(
        caption=caption,
        head=(name, "Good, %", "not Bad, %", "suspected, %", "unscored"),
        rows=tuple(
            row(
                text_of(item, "name"),
                show_estimate(item.get("to_good"), is_share=True),
                number(part(item, "not_bad").get("value"), 1, scale=100),
                number(item["suspected"] / item["pairs"], 0, scale=100) if item.get("pairs") else None,
                item.get("unscored"),
            )
            for item in found
        ),
    )


def _kinds(kinds: Mapping[str, Row]) -> Table:
    return Table(
        caption="Plain replies the judge calls Bad",
        head=("kind of reply", "called Bad", "of"),
        rows=tuple(row(kind, counts.get("bad"), counts.get("replies")) for kind, counts in kinds.items()),
    )


def _bare(table: Table) -> Table:
    """Without its caption, which is the section's title."""
    return Table(caption="", head=table.head, rows=table.rows)
