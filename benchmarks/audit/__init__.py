"""The audit held against completions that strangers wrote, false and honest ones, with recorded replies of judges."""
