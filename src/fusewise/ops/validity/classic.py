"""What the operators of classical machine learning (`ai.onnx.ml`) ask: lists that belong together have one length."""

from __future__ import annotations

from fusewise.ops.validity.forests import lists_of_nodes, roots_and_leaves
from fusewise.ops.validity.rules import at_least, between, counted, flag, one_of
from fusewise.ops.validity.use import Rule, Use, ValidityRow

__all__ = ["CLASSIC"]

_DOMAIN = "ai.onnx.ml"
_POST = one_of("post_transform", "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_KERNEL = (
    one_of("kernel_type", "LINEAR", "POLY", "RBF", "SIGMOID"),
    counted("kernel_params", lambda use: 3, "gamma, coef0, degree"),
)
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF", "BRANCH_MEMBER")


def _together(*prefixes: str, but: tuple[str, ...] = ()) -> Rule:
    """All lists whose names begin alike have one length, those of names that contain one of `but` aside."""

    def rule(use: Use) -> str:
        for prefix in prefixes:
            lists = [
                (name, value)
                for name, value in use.node.attributes
                if name.startswith(prefix)
                and isinstance(value, tuple)
                and value
                and not any(part in name for part in but)
            ]
            for name, value in lists[1:]:
                if len(value) != len(lists[0][1]):
                    return f"its attribute {name} has {len(value)} items, but {lists[0][0]} has {len(lists[0][1])}"
        return ""

    return rule


def _keys_and_values(use: Use) -> str:
    """As many values as keys."""
    found = [
        (name, len(value))
        for name, value in use.node.attributes
        if name.startswith(("keys_", "values_")) and isinstance(value, tuple)
    ]
    if len({count for _, count in found}) <= 1:
        return ""
    return f"its attributes {found[0][0]} and {found[-1][0]} have {found[0][1]} and {found[-1][1]} items; each key has one value"


def _for_features(*names: str) -> Rule:
    """Lists with one item, or with one for each feature."""

    def rule(use: Use) -> str:
        features = use.extent(0, -1)
        for name in names:
            value = use.attribute(name)
            if value and features is not None and len(value) not in (1, features):
                return (
                    f"its attribute {name} has {len(value)} items; it must have 1, or {features}, one for each feature"
                )
        return ""

    return rule


def _coefficients(use: Use) -> str:
    """Every class or target has a coefficient for each feature, and an intercept."""
    features, found = use.extent(0, -1), len(use.attribute("coefficients") or ())
    if features and found % features:
        return f"its attribute coefficients has {found} items, which is no multiple of its {features} features"
    targets, intercepts = use.attribute("targets"), len(use.attribute("intercepts") or ())
    if features and targets is not None and found != targets * features:
        return f"its attribute coefficients has {found} items; {targets} targets of {features} features need {targets * features}"
    if features and intercepts and intercepts != found // features:
        return f"its attribute intercepts has {intercepts} items; it must have {found // features}"
    return ""


def _row(op: str, *rules: Rule) -> ValidityRow:
    return ValidityRow(op, rules=rules, domain=_DOMAIN)


CLASSIC: tuple[ValidityRow, ...] = (
    _row("LabelEncoder", _keys_and_values),
    _row("CategoryMapper", _together("cats_")),
    _row("Normalizer", one_of("norm", "MAX", "L1", "L2")),
    _row("Scaler", _for_features("offset", "scale")),
    _row("Imputer", _for_features("imputed_value_floats", "imputed_value_int64s")),
    _row("OneHotEncoder", flag("zeros")),
    _row("FeatureVectorizer", at_least(0, "inputdimensions")),
    _row("LinearClassifier", _POST, flag("multi_class"), _coefficients),
    _row("LinearRegressor", _POST, between("targets", 1), _coefficients),
    _row("SVMClassifier", _POST, *_KERNEL),
    _row("SVMRegressor", _POST, *_KERNEL, flag("one_class")),
    *(
        _row(
            op,
            *(_POST, one_of("nodes_modes", *_MODES), _together("nodes_", "class_", "target_", but=("as_tensor",))),
            *(one_of("aggregate_function", "AVERAGE", "SUM", "MIN", "MAX"), lists_of_nodes),
        )
        for op in ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
    ),
    _row("TreeEnsemble", between("n_targets", 1), roots_and_leaves),
)
