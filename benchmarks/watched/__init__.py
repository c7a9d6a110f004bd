"""What ``asv`` measures for every commit: ratios to what work cannot do without, and seconds of steps of users."""

import torch

torch.set_num_threads(1)
