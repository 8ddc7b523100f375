"""Scripts that exports put beside what they write; they need no placewright."""
