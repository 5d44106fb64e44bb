"""Our own statistics against libraries that only the slow tests install."""

import numpy as np
import pytest
from simulated_ratings import World, draw_models

from calibration.shares.ppi import ppi_estimate

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
