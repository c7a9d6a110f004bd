"""Models of streams: windows that slide, exponential forgetting, and banks of lengthscales that follow a drift."""

from .bank import LengthscaleBank
from .forgetting import Forgetting
from .window import Drift, SlidingWindow

__all__ = ["Drift", "Forgetting", "LengthscaleBank", "SlidingWindow"]
