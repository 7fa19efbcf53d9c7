"""Spiking networks as scikit-learn estimators, for pipelines, cross-validation and hyperparameter search.

It needs scikit-learn, `pip install "snncell[sklearn]"`. `import snncell` does not load this module, so import it by
name: `from snncell.sklearn import SNNClassifier`.
"""

from snncell.base.arguments.guard import plain_signature as _plain_signature
from snncell.base.arguments.names import list_public as _list_public, missing_from as _missing_from
from snncell.base.signals import import_once as _imported
from snncell.errors import PackageError

try:
    _imported("sklearn")
except ImportError as _error:
    raise PackageError(
        f'snncell.sklearn: needs the package scikit-learn. Install it with pip install "snncell[sklearn]" ({_error}).'
    ) from None

from snncell.sklearn.estimators import SNNClassifier as SNNClassifier, SNNRegressor as SNNRegressor

__all__ = ["SNNClassifier", "SNNRegressor"]

# No `guard`, because scikit-learn requires that `__init__` stores arguments unchanged and `fit` checks them.
_list_public(globals())
for _kind in (SNNClassifier, SNNRegressor):
    _kind.__init__.__signature__ = _plain_signature(_kind.__init__)  # type: ignore[attr-defined]
__getattr__ = _missing_from(__name__)
