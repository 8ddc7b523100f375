"""A page of HTML for plans: records here, what draws them in `page/`."""
