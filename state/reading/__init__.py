"""Reading decisions out of what models write."""
