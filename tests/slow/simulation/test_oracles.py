"""Our own statistics against libraries that only the slow tests install."""

import numpy as np
import pytest
from rated_worlds import World, draw_models

from calibration.agreement.metrics import icc_one, icc_sums, icc_two, one_way_sums
from calibration.shares.ppi import ppi_estimate

pingouin = pytest.importorskip("pingouin")
ppi_py = pytest.importorskip("ppi_py")


def test_the_point_estimate_is_ppi_python_s() -> None:
    rng = np.random.default_rng(0)
    for ratings in (20, 100, 200):
        models, _ = draw_models(World(models=4), ratings, 1, rng)
        for sample in models.values():
            found = ppi_estimate(sample)
            rest = np.delete(sample.judged, sample.item, axis=0)
            theirs = ppi_py.ppi_mean_pointestimate(sample.value, sample.judged[sample.item], rest)
            if found.weight:
                assert found.value == pytest.approx(theirs, abs=1e-12)


@pytest.mark.filterwarnings("ignore")  # of pandas, about how pingouin uses it
def test_intraclass_correlations_are_pingouin_s() -> None:
    import pandas

    rng = np.random.default_rng(1)
    for raters in (2, 4):
        table = np.clip(np.rint(3 + rng.normal(size=30) + rng.normal(size=(raters, 30))), 1, 5)
        rater, item = np.indices(table.shape)
        frame = pandas.DataFrame({"rater": rater.ravel(), "item": item.ravel(), "rating": table.ravel()})
        rows = pingouin.intraclass_corr(frame, targets="item", raters="rater", ratings="rating")
        theirs = dict(zip(rows["Type"], rows["ICC"], strict=True))
        one_way = float(icc_one(one_way_sums(table).sum(axis=0)[None])[0])
        assert one_way == pytest.approx(next(theirs[name] for name in ("ICC1", "ICC(1,1)") if name in theirs))
        if raters == 2:
            two_way = float(icc_two(icc_sums(table[0], table[1], 3.0).sum(axis=0)[None])[0])
            assert two_way == pytest.approx(
                next(theirs[name] for name in ("ICC2", "ICC(A,1)") if name in theirs)
            )
