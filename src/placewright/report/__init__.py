"""Plans as people read them: records for JSON, tables for the terminal."""
