"""What domain generalization and re-identification share: pixels, settings, the step, runs and model files."""
