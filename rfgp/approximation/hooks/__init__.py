"""What GPyTorch calls: kernel matrices of features as linear operators, their predictions, and their densities."""
