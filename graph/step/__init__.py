"""The work on one step: rounds with a model, their calls, and the proof that the step is done."""
