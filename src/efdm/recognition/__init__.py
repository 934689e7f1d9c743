"""Code shared by domain generalization and re-identification: pixels, settings, training steps, runs and model files."""
