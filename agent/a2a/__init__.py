"""Remote agents as executors, over the A2A protocol."""
