"""Which selection finds the tool that a query needs, among 500, in four languages."""
