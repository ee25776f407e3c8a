"""Times: seconds that follow from counts, rates and dependencies."""
