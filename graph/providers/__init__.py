"""A provider's model: how it is asked, what its failures mean, and its chunks as one message."""
