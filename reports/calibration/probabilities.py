"""The report section on the reliability of probabilities."""

from calibration.fit import CalibrationReport
from data.records import NOUNS
from data.text import number
from reports.charts import reliability
from reports.page import Figure, Section, Table, row


def reliability_section(report: CalibrationReport) -> Section | None:
    """Return whether the judge's probabilities match observed frequencies; None where it gives none."""
    found = report.reliability
    if found is None:
        return None
    label = found.label
    return Section(
        name="reliability",
        title="Reliability of the probabilities",
        short="Reliability",
        is_beside=True,
        text=(
            f"Among {NOUNS[report.judge.unit]} with a probability of 60% for {label}, people should rate 60% "
            f"as {label}: points on the dashed diagonal.",
        ),
        key=(("judge", "the judge, 95% CI"), ("reference", "perfect calibration")),
        figures=(
            Figure(
                caption=f"Probability of {label}",
                svg=reliability(
                    [(item.predicted, item.observed) for item in found.curve],
                    name="reliability-figure",
                    title=f"Reliability of the probability of {label}",
                    description="; ".join(
                        f"predicted {100 * item.predicted:.0f}%, observed {100 * item.observed.value:.0f}%"
                        for item in found.curve
                    ),
                ),
            ),
        ),
        tables=(
            Table(
                caption="Errors of the probabilities; smaller is better",
                head=("error", "value"),
                rows=(
                    row("expected calibration error", number(found.ece, 4)),
                    row("log-loss", number(found.log_loss, 4)),
                ),
            ),
        ),
    )
