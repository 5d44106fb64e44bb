"""A judge fitted to one's own ratings, on a CPU: a new output layer on the features of the default judge."""

import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from calibration.artifact import CALIBRATION_FILE, write_calibration
from calibration.estimate import Floats
from calibration.fit import CalibrationReport, calibrate_judged
from data.errors import UserError, install_hint
from data.files import disk_errors
from data.judgments import Judged
from data.rated_exchanges import join_ratings
from data.rated_range import rated_range_of
from data.records import LABELS, Exchange, Rating, judgment_of, shape_of, to_plain
from data.runs import OnProgress
from data.storage import digest_file
from judge.classifier.judge import ClassifierJudge
from judge.classifier.preprocessing import PreparedReply, prepare
from judge.onnx_model import CARD, MODEL, open_session

PENALTIES: Final = (np.inf, 10.0, 3.0, 1.0)  # on changes of weights; with the first only levels are fitted
FOLDS: Final = 5
FEWEST_RATINGS, FEWEST_PROMPTS = 50, 10
FEATURES, HEAD = "features", ("head.weight", "head.bias")  # names in the network


class Layer(NamedTuple):
    """The output layer of a classifier: [labels, features] and [labels]."""

    weight: Floats
    bias: Floats

    def logits(self, features: Floats) -> Floats:
        return features @ self.weight.T + self.bias


class RatedFeatures(NamedTuple):
    """A row for each rating: the features of the reply, the label as probabilities, and the prompt."""

    features: Floats
    target: Floats
    prompt: np.ndarray


def fit_layer(rows: RatedFeatures, start: Layer, penalty: float) -> Layer:
    """Fit a layer by logistic regression; the penalty is on changes of the scaled weights at the start."""
    center, spread = rows.features.mean(axis=0), rows.features.std(axis=0) + 1e-6
    inputs = (rows.features - center) / spread if np.isfinite(penalty) else rows.features[:, :0]
    logits, count, labels = start.logits(rows.features), len(rows.target), len(LABELS)

    def loss(values: Floats) -> tuple[float, Floats]:
        change = values[1 + labels :].reshape(labels, -1)
        scores = log_softmax(values[0] * logits + values[1 : 1 + labels] + inputs @ change.T, axis=1)
        error = (np.exp(scores) - rows.target) / count
        slopes = error.T @ inputs + (penalty * change if change.size else 0.0)
        size = penalty / 2 * (change**2).sum() if change.size else 0.0
        gradient = np.concatenate([[(error * logits).sum()], error.sum(axis=0), slopes.ravel()])
        return float(size - (rows.target * scores).sum() / count), gradient

    values = np.eye(1, 1 + labels + labels * inputs.shape[1])[0]  # the layer as it is
    values = minimize(loss, values, jac=True, method="L-BFGS-B", tol=1e-6).x
    weight, bias = values[0] * start.weight, values[0] * start.bias + values[1 : 1 + labels]
    if not inputs.size:
        return Layer(weight, bias)
    change = values[1 + labels :].reshape(labels, -1) / spread
    return Layer(weight + change, bias - change @ center)


def fit_best(rows: RatedFeatures, start: Layer) -> Layer:
    """Fit a layer with the penalty that predicts left-out prompts best."""

    def left_out_loss(penalty: float) -> float:
        predicted = cross_predict(rows, partial(fit_layer, start=start, penalty=penalty))
        return -float((rows.target * np.log(predicted)).sum())

    return fit_layer(rows, start, min(PENALTIES, key=left_out_loss))


def cross_predict(rows: RatedFeatures, fit: Callable[[RatedFeatures], Layer]) -> Floats:
    """Predict every rating by a layer that was fitted without the ratings of its prompt."""
    prompts, number = np.unique(rows.prompt, return_inverse=True)
    folds = (np.random.default_rng(0).permutation(len(prompts)) % FOLDS)[number]
    predicted = np.empty_like(rows.target)
    for fold in range(FOLDS):
        layer = fit(RatedFeatures(*(column[folds != fold] for column in rows)))
        predicted[folds == fold] = softmax(layer.logits(rows.features[folds == fold]), axis=1)
    return predicted


def fit_judge(
    replies: Sequence[Exchange], ratings: Sequence[Rating], folder: Path, *, on_progress: OnProgress
) -> CalibrationReport:
    """Write a judge fitted to ratings, with its calibration, and compare it with the default judge.

    Figures and calibration are of predictions for prompts that were left out of a fit.
    """
    try:
        import onnx
    except ImportError as error:
        raise UserError(f"fitting a judge needs onnx: {install_hint('head')}") from error
    base, rated = ClassifierJudge(device="cpu"), join_ratings(replies, ratings)
    exchanges = list({item.exchange.id: item.exchange for item in rated}.values())
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CARD).unlink(missing_ok=True)  # written last: without it this is no judge
        for name in base.card["files"]:
            shutil.copyfile(base.folder / name, folder / name)
    network = onnx.load(folder / MODEL, load_external_data=False)
    # The layer's input becomes one more output.
    source = next(node.input[0] for node in network.graph.node if HEAD[0] in node.input)
    network.graph.node.append(onnx.helper.make_node("Identity", [source], [FEATURES]))
    network.graph.output.append(onnx.helper.make_tensor_value_info(FEATURES, onnx.TensorProto.FLOAT, None))
    onnx.save(network, folder / MODEL)
    held = {item.name: item for item in network.graph.initializer if item.name in HEAD}
    start = Layer(*(onnx.numpy_helper.to_array(held[name]).astype(float) for name in HEAD))
    base.session = open_session(folder / MODEL)
    features = _read_features(base, exchanges, on_progress)
    rated = [item for item in rated if item.exchange.id in features]
    prompts = {item.group for item in rated}
    if len(rated) < FEWEST_RATINGS or len(prompts) < FEWEST_PROMPTS:
        raise UserError(
            f"{len(rated)} ratings of replies to {len(prompts)} prompts are too few; a fit needs "
            f"{FEWEST_RATINGS} ratings and {FEWEST_PROMPTS} prompts or more, and 300 ratings are better"
        )
    rows = RatedFeatures(
        np.array([features[item.exchange.id] for item in rated], dtype=float),
        np.array([item.target for item in rated]),
        np.array([item.group for item in rated]),
    )
    left_out = cross_predict(rows, partial(fit_best, start=start))
    for name, value in zip(HEAD, fit_best(rows, start), strict=True):
        held[name].CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(network, folder / MODEL)
    raters = len({item.rater for item in rated})
    card = {key: base.card[key] for key in ("licence", "config") if key in base.card} | {
        "name": folder.resolve().name,
        "files": {name: digest_file(folder / name) for name in base.card["files"]},
        "caveat": f"Fitted to {len(rated):,} ratings by {raters:,} raters. Its error on a model without "
        "ratings was not measured.",
        "base": {"judge": base.name, "version": base.version},
        "rated": to_plain(rated_range_of(shape_of(exchange) for exchange in exchanges)),
    }
    with disk_errors(folder):
        (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    judged = []
    for judge, table in (
        (ClassifierJudge(weights=str(folder)), left_out),
        (base, softmax(start.logits(rows.features), axis=1)),
    ):
        by_id = {item.exchange.id: (item.exchange, row) for item, row in zip(rated, table, strict=True)}
        judgments = tuple(
            judgment_of(exchange, dict(zip(LABELS, row.tolist(), strict=True)))
            for exchange, row in by_id.values()
        )
        name, version, rubric = judge.name, judge.version, judge.rubric.digest
        judged.append(Judged(name=name, version=version, rubric=rubric, source=name, judgments=judgments))
    report = calibrate_judged(judged, ratings, exchanges={item.id: item for item in exchanges})
    write_calibration(folder / CALIBRATION_FILE, report.calibration)
    return report


def _read_features(
    judge: ClassifierJudge, exchanges: Sequence[Exchange], on_progress: OnProgress
) -> dict[str, Floats]:
    """Return what the output layer reads, by the ids of the replies that can be judged."""

    def read(reply: PreparedReply) -> Floats:
        assert reply.tokens is not None
        before = reply.tokens.before
        ids, past = np.array([reply.ids[before:]], dtype=np.int64), judge.read_context(reply.ids[:before])
        return np.asarray(judge.session.run([FEATURES], {"ids": ids, "past": past})[0][0])

    prepared = zip(exchanges, prepare(exchanges, judge.tokenizer), strict=True)
    readable = {exchange.id: reply for exchange, reply in prepared if not reply.reason}
    features: dict[str, Floats] = {}
    with ThreadPoolExecutor(judge.concurrency) as pool:
        for identity, row in zip(readable, pool.map(read, readable.values()), strict=True):
            features[identity] = row
            on_progress(len(features), len(readable))
    return features
