"""A judge fitted to one's own ratings, on a CPU: a new output layer on the features of the default judge."""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.artifact import CALIBRATION_FILE, write_calibration
from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.fit import CalibrationReport, calibrate
from empathy_judge.data.errors import UserError, install_hint
from empathy_judge.data.files import disk_errors
from empathy_judge.data.judgments import Judged
from empathy_judge.data.rated_range import rated_range_of
from empathy_judge.data.rating_files.rated_inputs import join_ratings
from empathy_judge.data.records import LABELS, Exchange, Rating, judgment_of, reply_features, to_plain
from empathy_judge.data.runs import OnProgress
from empathy_judge.data.storage import digest_file
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.preprocessing import PreparedReply, prepare
from empathy_judge.judge.onnx_model import CARD, MODEL, open_session

INVERSE_PENALTIES: Final = (0.0001, 0.0003, 0.001, 0.003)
LOGIT_SCALE: Final = 10.0  # so large that weights of the default judge's own logits are hardly penalized
FOLDS: Final = 5
FEWEST: Final = 10  # ratings of each label, and prompts
FEATURES, HEAD = "features", ("head.weight", "head.bias")  # names in the network


def fit_layer(inputs: Floats, labels: np.ndarray, prompts: np.ndarray) -> Any:
    """Fit a logistic regression, with the penalty of the lowest log loss on left-out prompts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold

    search = GridSearchCV(
        LogisticRegression(max_iter=1000, tol=1e-3),
        {"C": INVERSE_PENALTIES},
        scoring="neg_log_loss",
        cv=StratifiedGroupKFold(FOLDS),
    )
    return search.fit(inputs, labels, groups=prompts).best_estimator_


def cross_predict(inputs: Floats, labels: np.ndarray, prompts: np.ndarray) -> Floats:
    """Predict the labels under every prompt by a regression that was fitted without its ratings."""
    from sklearn.model_selection import StratifiedGroupKFold

    predicted = np.empty((len(labels), len(LABELS)))
    for rest, left_out in StratifiedGroupKFold(FOLDS).split(inputs, labels, prompts):
        model = fit_layer(inputs[rest], labels[rest], prompts[rest])
        predicted[left_out] = model.predict_proba(inputs[left_out])
    return predicted


def fit_judge(
    replies: Sequence[Exchange], ratings: Sequence[Rating], folder: Path, *, on_progress: OnProgress
) -> CalibrationReport:
    """Write a judge fitted to ratings, with its calibration, and compare it with the default judge.

    Figures and calibration are of predictions for prompts that were left out of a fit.
    """
    try:
        import onnx
        import sklearn  # noqa: F401
    except ImportError as error:
        raise UserError(f"fitting a judge needs {error.name}: {install_hint('head')}") from error
    base, rated = ClassifierJudge(device="cpu"), join_ratings(replies, ratings)
    exchanges = list({item.exchange.id: item.exchange for item in rated}.values())
    labels, prompts = (np.array([np.argmax(item.target) for item in rated]), {item.group for item in rated})
    if min(*np.bincount(labels, minlength=len(LABELS)), len(prompts)) < FEWEST:
        raise UserError(f"too few ratings: a fit needs {FEWEST} or more of each label, and {FEWEST} prompts")
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
    base.session = open_session(folder / MODEL)
    by_id = _read_features(base, exchanges, on_progress)
    features = np.array([by_id[item.exchange.id] for item in rated], dtype=float)
    held = {item.name: item for item in network.graph.initializer if item.name in HEAD}
    weight, bias = (onnx.numpy_helper.to_array(held[name]).astype(float) for name in HEAD)
    logits = features @ weight.T + bias
    center, spread = features.mean(axis=0), features.std(axis=0) + 1e-6
    inputs = np.hstack([(features - center) / spread, LOGIT_SCALE * logits])
    groups = np.array([item.group for item in rated])
    left_out = cross_predict(inputs, labels, groups)
    fitted = fit_layer(inputs, labels, groups)
    change, own = fitted.coef_[:, :-3] / spread, LOGIT_SCALE * fitted.coef_[:, -3:]
    layer = own @ weight + change, fitted.intercept_ + own @ bias - change @ center
    for name, value in zip(HEAD, layer, strict=True):
        held[name].CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(network, folder / MODEL)
    raters = len({item.rater for item in rated})
    card = {key: base.card[key] for key in ("licence", "config") if key in base.card} | {
        "name": folder.resolve().name,
        "files": {name: digest_file(folder / name) for name in base.card["files"]},
        "caveat": f"Fitted to {len(rated):,} ratings by {raters:,} raters. Its error on a model without "
        "ratings was not measured.",
        "base": {"judge": base.name, "version": base.version},
        "rated": to_plain(rated_range_of(map(reply_features, exchanges))),
    }
    with disk_errors(folder):
        (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    shipped = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    judged, rubric = [], base.rubric.digest
    for judge, table in ((ClassifierJudge(weights=str(folder)), left_out), (base, shipped)):
        rows = {
            item.exchange.id: (item.exchange, row) for item, row in zip(rated, table.tolist(), strict=True)
        }
        judgments = tuple(
            judgment_of(item, dict(zip(LABELS, row, strict=True))) for item, row in rows.values()
        )
        name, version = judge.name, judge.version
        judged.append(Judged(name=name, source=name, version=version, rubric=rubric, judgments=judgments))
    report = calibrate(judged, ratings, exchanges={item.id: item for item in exchanges})
    write_calibration(folder / CALIBRATION_FILE, report.calibration)
    return report


def _read_features(
    judge: ClassifierJudge, exchanges: Sequence[Exchange], on_progress: OnProgress
) -> dict[str, Floats]:
    """Return what the output layer reads of each reply, by id."""

    def read(reply: PreparedReply) -> Floats:
        ids, before = reply.ids, reply.tokens.before if reply.tokens else 0
        inputs = {"ids": np.array([ids[before:]], dtype=np.int64), "past": judge.read_context(ids[:before])}
        return np.asarray(judge.session.run([FEATURES], inputs)[0][0])

    prepared = prepare(exchanges, judge.tokenizer)
    for exchange, reply in zip(exchanges, prepared, strict=True):
        if reply.reason:
            raise UserError(f"{exchange.id}: cannot be judged ({reply.reason}); leave out its ratings")
    features: dict[str, Floats] = {}
    with ThreadPoolExecutor(judge.concurrency) as pool:
        for exchange, row in zip(exchanges, pool.map(read, prepared), strict=True):
            features[exchange.id] = row
            on_progress(len(features), len(exchanges))
    return features
