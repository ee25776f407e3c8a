"""Facts: shapes of models, accelerators, published measurements and reports, each a row of a text table with its source."""
