"""Spiking networks as estimators of scikit-learn's: in pipelines, cross-validation and searches for settings.

SNNClassifier    classes from a table of numbers
SNNRegressor     numbers from a table of numbers

Needs scikit-learn, `pip install "snncell[sklearn]"`, and is imported by its name alone: `import snncell` brings in
neither.
"""

from snncell.base.arguments.names import missing_from as _missing_from
from snncell.base.signals import import_once as _imported
from snncell.errors import PackageError

try:
    _imported("sklearn")
except ImportError as _error:
    raise PackageError(
        f'snncell.sklearn: needs the package scikit-learn: pip install "snncell[sklearn]" brings it ({_error}).'
    ) from None

from snncell.sklearn.estimators import SNNClassifier as SNNClassifier, SNNRegressor as SNNRegressor

__all__ = ["SNNClassifier", "SNNRegressor"]

# No `guard`: scikit-learn wants arguments kept as they are given, and refused by `fit`.
__getattr__ = _missing_from(__name__)
