"""Figures of plans for papers: SVG and PNG of a column's width, drawn by matplotlib."""
