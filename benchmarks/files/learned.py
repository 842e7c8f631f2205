"""Files of scikit-learn (by `skl2onnx`), LightGBM and XGBoost (by `onnxmltools`), with and without maps as answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from benchmarks.files.row import File

__all__ = ["BOOSTED", "LEARNED"]

ROWS, FEATURES, CLASSES, BATCH = 2000, 30, 4, 100


def _data(targets: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, and what to learn: a class of so many, or with none of them a number."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.5 * x[:, 3]
    if not targets:
        return x, y.astype(np.float32)
    return x, np.digitize(y, np.quantile(y, np.linspace(0, 1, targets + 1)[1:-1])).astype(np.int64)


def _estimators() -> Mapping[str, tuple[Callable[[], Any], int]]:
    """How to make each of scikit-learn's, and the classes that it learns."""
    from sklearn import ensemble, gaussian_process, linear_model, naive_bayes, neighbors, neural_network, svm, tree
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler

    return {
        "forest": (lambda: ensemble.RandomForestClassifier(50, random_state=0), CLASSES),
        "forest_regressor": (lambda: ensemble.RandomForestRegressor(50, random_state=0), 0),
        "extra_trees": (lambda: ensemble.ExtraTreesClassifier(30, random_state=0), 2),
        "decision_tree": (lambda: tree.DecisionTreeClassifier(random_state=0), CLASSES),
        "gradient_boosting": (lambda: ensemble.GradientBoostingClassifier(random_state=0), 2),
        "bagging": (lambda: ensemble.BaggingClassifier(n_estimators=10, random_state=0), CLASSES),
        "elastic_net": (lambda: linear_model.ElasticNet(alpha=0.01), 0),
        "ada_boost": (lambda: ensemble.AdaBoostClassifier(n_estimators=20, random_state=0), CLASSES),
        "logistic_regression": (lambda: linear_model.LogisticRegression(max_iter=500), CLASSES),
        "logistic_binary": (lambda: linear_model.LogisticRegression(max_iter=500), 2),
        "ridge": (linear_model.Ridge, 0),
        "svm": (lambda: svm.SVC(probability=True), CLASSES),
        "svm_linear": (svm.LinearSVC, CLASSES),
        "svm_regressor": (svm.SVR, 0),
        "neighbours": (lambda: neighbors.KNeighborsClassifier(5), CLASSES),
        "gaussian_process": (lambda: gaussian_process.GaussianProcessRegressor(alpha=1e-2), 0),
        "naive_bayes": (naive_bayes.GaussianNB, CLASSES),
        "perceptron": (lambda: neural_network.MLPClassifier((64, 64), max_iter=20, random_state=0), CLASSES),
        "scaled_pca": (lambda: make_pipeline(StandardScaler(), PCA(10), linear_model.LogisticRegression()), 2),
        "scaled_polynomial": (lambda: make_pipeline(MinMaxScaler(), PolynomialFeatures(2), linear_model.Ridge()), 0),
        "normalized": (lambda: make_pipeline(Normalizer(), linear_model.LogisticRegression()), CLASSES),
    }


def _learned(name: str, maps: bool, words: bool, folder: Path) -> None:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    make, targets = _estimators()[name]
    x, y = _data(targets)
    if words:
        y = np.array(["red", "green", "blue", "white"], object)[y]
    rows = 300 if name in ("gaussian_process", "neighbours", "svm", "svm_regressor") else ROWS
    estimator = make().fit(x[:rows], y[:rows])
    kinds: dict[str, Any] = (
        {} if not hasattr(estimator, "predict_proba") else {"options": {id(estimator): {"zipmap": maps}}}
    )
    if name == "gaussian_process":
        x = x.astype(np.float64)
    model = skl2onnx.convert_sklearn(estimator, initial_types=[("x", FloatTensorType([None, FEATURES]))], **kinds)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def _table(folder: Path) -> None:
    """Columns of numbers, some of them missing, and of words: imputed, scaled, one-hot."""
    import pandas as pd
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    x, y = _data(2)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"size": x[:, 0], "weight": x[:, 1], "colour": rng.choice(["red", "green", "blue"], ROWS)})
    frame.loc[::7, "size"] = np.nan
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = ColumnTransformer([("numbers", numbers, ["size", "weight"]), ("words", OneHotEncoder(), ["colour"])])
    estimator = make_pipeline(columns, LogisticRegression()).fit(frame, y)
    kinds = [(name, FloatTensorType([None, 1])) for name in ("size", "weight")] + [
        ("colour", StringTensorType([None, 1]))
    ]
    model = skl2onnx.convert_sklearn(estimator, initial_types=kinds, options={id(estimator): {"zipmap": False}})
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def _boosted(library: str, targets: int, maps: bool, trees: int, folder: Path) -> None:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = _data(targets)
    given = [("x", FloatTensorType([None, FEATURES]))]
    if library == "lightgbm":
        import lightgbm

        kind = lightgbm.LGBMClassifier if targets else lightgbm.LGBMRegressor
        model = kind(n_estimators=trees, num_leaves=63, verbose=-1, n_jobs=1, min_child_samples=5).fit(x, y)
        zipped = {"zipmap": maps} if targets else {}
        made = onnxmltools.convert_lightgbm(model, initial_types=given, **zipped)
    else:
        import xgboost

        kind = xgboost.XGBClassifier if targets else xgboost.XGBRegressor
        model = kind(n_estimators=trees, max_depth=6, n_jobs=1).fit(x, y)
        made = onnxmltools.convert_xgboost(model, initial_types=given)
    (folder / "model.onnx").write_bytes(made.SerializeToString())


_NAMES = (
    *("forest", "forest_regressor", "extra_trees", "decision_tree", "gradient_boosting", "bagging"),
    *("elastic_net", "ada_boost", "logistic_regression", "logistic_binary", "ridge", "svm", "svm_linear"),
    *("svm_regressor", "neighbours", "gaussian_process", "naive_bayes", "perceptron", "scaled_pca"),
    *("scaled_polynomial", "normalized"),
)
_SIZES: Mapping[str, int] = MappingProxyType({"unk": BATCH, "None": BATCH, "N": BATCH})


def _row(name: str, maps: bool = False, words: bool = False) -> File:
    make = partial(_learned, name, maps, words)
    return File(f"sklearn_{name}{'_maps' * maps}{'_words' * words}", "sklearn", make, _SIZES)


LEARNED: tuple[File, ...] = (
    *map(_row, _NAMES),
    *(_row(name, maps=True) for name in ("forest", "logistic_regression", "gradient_boosting")),
    *(_row(name, words=True) for name in ("forest", "logistic_regression", "svm_linear")),
    _row("forest", maps=True, words=True),
    File("sklearn_table", "sklearn", _table, _SIZES, {"colour": "words"}),
)


def _boosted_row(library: str, kind: str, targets: int, maps: bool = False, trees: int = 100) -> File:
    make = partial(_boosted, library, targets, maps, trees)
    return File(f"{library}_{kind}{'_maps' * maps}", library, make, _SIZES)


BOOSTED: tuple[File, ...] = (
    _boosted_row("lightgbm", "regressor", 0),
    _boosted_row("lightgbm", "classifier", 2),
    _boosted_row("lightgbm", "classifier", 2, maps=True),
    _boosted_row("lightgbm", "multiclass", CLASSES),
    _boosted_row("lightgbm", "multiclass", CLASSES, maps=True),
    _boosted_row("lightgbm", "large", 2, trees=500),
    _boosted_row("xgboost", "regressor", 0),
    _boosted_row("xgboost", "classifier", 2),
    _boosted_row("xgboost", "multiclass", CLASSES),
)
