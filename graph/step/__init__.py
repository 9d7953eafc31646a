"""One step at work: rounds with a model, the calls of each, and the proof that the step is done."""
