"""The program for the least largest load."""
