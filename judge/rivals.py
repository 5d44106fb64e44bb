"""What a judge must beat, fitted on the same training part: the trivial, the old-fashioned and the oracle."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.records import LABELS
from judge.examples import Example

Predict = Callable[[Sequence[Example], Sequence[Example]], np.ndarray]


def predict_rival(name: str, train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    """Probabilities of Bad, Okay and Good for the test part: [test, 3]."""
    return RIVALS[name](train, test)


def _predict_majority(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    return np.tile(_shares(train), (len(test), 1))


def _predict_length(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(train))) == 1:
        return _predict_majority(train, test)
    model = LogisticRegression(max_iter=1000).fit(count_words(train), _ratings(train))
    return _by_label(model, count_words(test))


def _predict_words(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if len(set(_ratings(train))) == 1:
        return _predict_majority(train, test)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=min(3, len(train)), sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=0.3, max_iter=1000))
    try:
        model.fit([example.exchange.response for example in train], _ratings(train))
    except ValueError:  # no word stands in three replies
        return _predict_majority(train, test)
    return _by_label(model, [example.exchange.response for example in test])


def _predict_arm(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    """Each model's own frequencies; of a model left out it knows no more than the majority does."""
    known = {
        model: _shares([example for example in train if example.exchange.model == model])
        for model in {example.exchange.model for example in train}
    }
    overall = _shares(train)
    return np.array([known.get(example.exchange.model, overall) for example in test])


# The oracle is what no judge may be: it is told whose reply it sees.
RIVALS: dict[str, Predict] = {
    "majority": _predict_majority,
    "length": _predict_length,
    "TF-IDF": _predict_words,
    "arm oracle": _predict_arm,
}


def count_words(examples: Sequence[Example]) -> np.ndarray:
    """The logarithm of each reply's word count, as the `length` judge counts: [examples, 1]."""
    return np.log([[max(1, len(example.exchange.response.split()))] for example in examples])


def fit_length(examples: Sequence[Example]) -> dict[str, list[float]]:
    """The coefficients of the `length` judge; none where a label was never given."""
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(examples))) < len(LABELS):
        return {}
    model = LogisticRegression(max_iter=1000).fit(count_words(examples), _ratings(examples))
    return {
        "bias": [round(float(value), 6) for value in model.intercept_],
        "slope": [round(float(value), 6) for value in model.coef_[:, 0]],
    }


def _by_label(model: Any, inputs: Any) -> np.ndarray:
    """A column for every label, those too that the training part never had: [inputs, 3]."""
    found = np.asarray(model.predict_proba(inputs))
    answer = np.zeros((len(found), len(LABELS)))
    answer[:, model.classes_] = found
    return answer


def _ratings(examples: Sequence[Example]) -> np.ndarray:
    return np.array([int(np.argmax(example.target)) for example in examples])


def _shares(examples: Sequence[Example]) -> np.ndarray:
    return np.asarray(np.mean([example.target for example in examples], axis=0))
