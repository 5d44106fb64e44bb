"""Where a judge leans: sections on biases, each with what could have been found, and on rewritten replies."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from data.text import Row, estimate, listed, number, part, rows, show_estimate, text_of, total
from reports.charts import Line, Look, Mark, interval_dots, span
from reports.page import Figure, Page, Section, Table, row

CAPTIONS = {"model": "One model against all others", "emotion": "One emotion against all others"}
MOST_LINES = 20  # in one figure
RESULTS: dict[str, Look] = {"passes": "judge", "fails": "found", "cannot tell": "raw"}


def _findings(result: Row) -> Sequence[Row]:
    """The audits, whether they come as a list or under a name."""
    found = result.get("bias")
    if isinstance(found, Mapping):
        return rows(found, "findings") or rows(found, "audits")
    return rows(result, "bias")


def bias_section(result: Row) -> Section | None:
    """A forest plot: what each audit found, and what it could have found."""
    findings = _findings(result)
    if not findings:
        return None
    threshold = next((item.get("threshold") for item in findings if item.get("threshold") is not None), None)
    found = [item for item in findings if item.get("verdict") == "found"]
    blind = [item for item in findings if item.get("verdict") == "could not have been found"]
    return Section(
        name="bias",
        title="Biases, and what could have been found",
        short="Bias",
        text=(
            "Does the judge err more for some responses than for others? Each effect is in points of score. "
            "Where nothing was found, the grey band tells how large an effect would have been found with a "
            "power of 80 %: inside it, nobody can say."
            + (
                f" An effect of {number(threshold)} points is taken to matter."
                if threshold is not None
                else ""
            ),
            f"Found: {listed([_about(item) for item in found])}. "
            f"Could not have been found: {len(blind)} of {len(findings)}.",
        ),
        key=(("found", "found"), ("raw", "not found"), ("band", "too small to be found")),
        figures=tuple(_forests(findings)),
        tables=(_bias_table(findings),),
    )


def _about(finding: Row) -> str:
    return str(finding.get("about") or finding.get("audit"))


def _forests(findings: Sequence[Row]) -> Iterator[Figure]:
    """The single audits, the models, and the emotions in two halves of equal scale, the kindest first."""
    general = [item for item in findings if item.get("audit") not in CAPTIONS]
    if general:
        yield _forest(general, "general", "Of all responses")
    for audit, caption in CAPTIONS.items():
        items = sorted(
            (item for item in findings if item.get("audit") == audit),
            key=lambda item: -(part(item, "effect").get("value") or 0.0),
        )
        ends = [end for item in items for end in (*estimate(item.get("effect")).values(), *_blind(item))]
        half = (len(items) + 1) // 2 if len(items) > MOST_LINES else len(items)
        for start in range(0, len(items), half or 1):
            which = "" if half == len(items) else (", kinder" if not start else ", harsher")
            drawn = items[start : start + half]
            yield _forest(drawn, f"{audit}-{start}", f"{caption}{which}", domain=span(ends, least=0.05))


def _forest(
    findings: Sequence[Row], name: str, caption: str, domain: tuple[float, float] | None = None
) -> Figure:
    lines = [
        Line(
            name=_about(item),
            figure=number(part(item, "effect").get("value"), 2, sign=True),
            marks=(Mark(look=_look(item), **estimate(item.get("effect"))),),
            band=_blind(item) or None,
        )
        for item in findings
    ]
    said = [
        f"{_about(item)} {show_estimate(item.get('effect'))}, {text_of(item, 'verdict')}" for item in findings
    ]
    return Figure(
        caption=caption,
        svg=interval_dots(
            lines,
            name=f"bias-{name}",
            title=f"Effects on the judge's error: {caption}",
            description="; ".join(said),
            tick=lambda value: f"{value:+.2g}" if value else "0",
            reference=0.0,
            domain=domain,
        ),
    )


def _look(finding: Row) -> Look:
    return "found" if finding.get("verdict") == "found" else "raw"


def _blind(finding: Row) -> tuple[float, float] | tuple[()]:
    """Within these ends an effect would not have been found."""
    detectable = finding.get("detectable")
    return () if detectable is None else (-detectable, detectable)


def _bias_table(findings: Sequence[Row]) -> Table:
    return Table(
        caption="Every audit, in points of score",
        head=(
            "audit",
            "effect",
            "would have been found",
            "p, adjusted",
            "outcome",
            "ratings",
            "what it asks",
        ),
        rows=tuple(
            row(
                f"{item.get('audit')}: {item['about']}" if item.get("about") else text_of(item, "audit"),
                show_estimate(item.get("effect"), digits=3),
                number(item.get("detectable"), 3),
                number(item.get("p"), 3),
                _outcome(item),
                item.get("ratings"),
                str(item.get("what") or ""),
            )
            for item in findings
        ),
        words=frozenset({0, 4, 6}),
        is_folded=True,
    )


def _outcome(finding: Row) -> str:
    size = {"matters": ", large enough to matter", "small": ", too small to matter"}.get(
        text_of(finding, "size"), ""
    )
    verdict = text_of(finding, "verdict")
    note = f" ({finding['note']})" if finding.get("note") else ""
    return f"{verdict}{size if verdict == 'found' else ''}{note}"


def probes_section(result: Row) -> Section | None:
    """What rewriting replies on purpose does to the judge's scores."""
    found = (
        rows(result, "probes")
        or rows(part(result, "probes"), "results")
        or rows(part(result, "bias"), "probes")
    )
    if not found:
        return None
    failed = [text_of(item, "name") for item in found if item.get("result") == "fails"]
    unclear = [text_of(item, "name") for item in found if item.get("result") == "cannot tell"]
    lines = [
        Line(
            name=text_of(item, "name"),
            figure=f"{number(part(item, 'change').get('value'), 2, sign=True)}, {text_of(item, 'result')}",
            marks=(Mark(look=RESULTS.get(text_of(item, "result"), "raw"), **estimate(item.get("change"))),),
            band=_allowed(item),
        )
        for item in found
    ]
    return Section(
        name="probes",
        title="Replies rewritten on purpose",
        short="Probes",
        text=(
            "Each probe changes replies in one way and asks the judge again; the change of the mean score "
            "should fall into the grey band.",
            f"Failed: {listed(failed)}. Cannot be told: {listed(unclear)}.",
        ),
        key=(
            ("judge", "passes"),
            ("found", "fails"),
            ("raw", "cannot tell"),
            ("band", "where a good judge's change lies"),
        ),
        figures=(
            Figure(
                caption="Change of the mean score, in points",
                svg=interval_dots(
                    lines,
                    name="probes-figure",
                    title="Change of the judge's mean score under each rewriting",
                    description="; ".join(f"{line.name} {line.figure}" for line in lines),
                    tick=lambda value: f"{value:+.2g}" if value else "0",
                    reference=0.0,
                ),
            ),
        ),
        tables=(_probe_table(found),),
    )


def _allowed(item: Row) -> tuple[float, float] | None:
    """Where the change should lie; see `calibration.changes.ALLOWED`."""
    limit = item.get("limit")
    if limit is None:
        return None
    places = {
        "up": (limit, inf),
        "not up": (-inf, limit),
        "same": (-limit, limit),
        "not down": (-limit, inf),
        "down": (-inf, -limit),
    }
    return places.get(text_of(item, "should"))


def _probe_table(found: Sequence[Row]) -> Table:
    return Table(
        caption="Every probe: change of score, and per cent of labels that went to Good or away from it",
        head=(
            "probe",
            "change",
            "should go",
            "limit",
            "result",
            "to Good",
            "from Good",
            "pairs",
            "unscored",
            "why",
        ),
        rows=tuple(
            row(
                text_of(item, "name"),
                show_estimate(item.get("change")),
                text_of(item, "should"),
                number(item.get("limit")),
                text_of(item, "result"),
                show_estimate(item.get("to_good"), is_share=True),
                show_estimate(item.get("from_good"), is_share=True),
                item.get("pairs"),
                total(part(item, "unscored")),
                str(item.get("why") or ""),
            )
            for item in found
        ),
        words=frozenset({0, 2, 4, 9}),
        is_folded=True,
    )


# Attacks on a judge as a section of its report, and as a page for the terminal.

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
