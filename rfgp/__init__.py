from . import features, kernels
from .kernels import approximate
