"""What planners and bounds ask of a problem: its modules, orders, devices that are alike."""
