"""A run as one self-contained HTML page: text by a template, charts as inline SVG, power over time by uPlot."""
