"""One request to a model: brief, history, tools and client on the way in; reply, speech and cost on the way out."""
