"""How far results with simulated speakers agree with those of scripted ones: same models, same situations."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from calibration.agreement.metrics import spearman_of
from calibration.bootstrap import Statistic, ratio, replicate_clusters, sample
from calibration.estimate import Estimate, Floats
from data.errors import UserError
from data.records import LABELS, SCRIPTED, SIMULATED, Judgment

LOWEST, HIGHEST = 1.0, float(len(LABELS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenLevel:
    """A model's mean score with either kind of speaker, over the situations that it met with both."""

    model: str
    situations: int
    scripted: float
    simulated: float
    difference: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerAgreement:
    """What changes when `speaker`, a model, plays the speakers whom scripts play otherwise.

    `difference` is simulated less scripted over all models, `spearman` of the two scores of the same model in
    the same situation, `within` the same once each model's own level is taken off, each with an interval over
    situations. `same_order` of `pairs` of models stand in the same order by both.
    """

    speaker: str
    situations: int
    conversations: int
    models: tuple[SpokenLevel, ...]
    difference: Estimate
    spearman: Estimate
    within: Estimate
    same_order: int
    pairs: int


def speaker_agreement(judgments: Iterable[Judgment], *, seed: int = 0) -> SpeakerAgreement:
    """Measure it on judged conversations; those with a person or without a score are left out."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    speakers: set[str] = set()
    for item in judgments:
        if item.speaker is None or item.score is None:
            continue
        kind = SCRIPTED if item.speaker == SCRIPTED else SIMULATED
        speakers |= {item.speaker.removeprefix(SIMULATED)} if kind == SIMULATED else set()
        scores[item.model, item.prompt_digest][kind].append(item.score)
    if len(speakers) > 1:
        raise UserError(f"more than one model played the speakers ({', '.join(sorted(speakers))}); give one")
    both = {key: said for key, said in sorted(scores.items()) if SCRIPTED in said and SIMULATED in said}
    if len({situation for _, situation in both}) < 2:
        raise UserError(
            "fewer than two situations that a model met with both kinds of speaker; hold the same ones with "
            "respond --turns N, and with --speaker too"
        )
    scripted = np.array([fmean(said[SCRIPTED]) for said in both.values()])
    simulated = np.array([fmean(said[SIMULATED]) for said in both.values()])
    models = np.array([model for model, _ in both])
    situations, clusters = np.unique([situation for _, situation in both], return_inverse=True)
    names = sorted(set(models))
    statistics: dict[str, Statistic] = {name: _mean(simulated - scripted, models == name) for name in names}
    statistics["\0all"] = _mean(simulated - scripted, np.ones(len(models), bool))
    statistics["\0spearman"] = spearman_of(scripted, simulated)
    own = [models == name for name in models]
    one, other = (values - [values[taken].mean() for taken in own] for values in (scripted, simulated))
    statistics["\0within"] = spearman_of(one, other)
    drawn = replicate_clusters(len(situations), rng=np.random.default_rng(seed))
    sampled = sample(statistics, clusters, drawn)
    wide = HIGHEST - LOWEST
    levels = tuple(
        SpokenLevel(
            model=name,
            situations=int((models == name).sum()),
            scripted=float(scripted[models == name].mean()),
            simulated=float(simulated[models == name].mean()),
            difference=sampled[name].estimate(low=-wide, high=wide),
        )
        for name in names
    )
    pairs = list(combinations(levels, 2))
    return SpeakerAgreement(
        speaker=next(iter(speakers)),
        situations=len(situations),
        conversations=2 * len(both),
        models=levels,
        difference=sampled["\0all"].estimate(low=-wide, high=wide),
        spearman=sampled["\0spearman"].estimate(low=-1, high=1),
        within=sampled["\0within"].estimate(low=-1, high=1),
        same_order=sum(
            (one.scripted - other.scripted) * (one.simulated - other.simulated) > 0 for one, other in pairs
        ),
        pairs=len(pairs),
    )


def _mean(values: Floats, taken: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Statistic:
    """The mean over the rows that are taken."""
    return lambda counts: ratio(counts[:, taken] @ values[taken], counts[:, taken].sum(axis=1))
