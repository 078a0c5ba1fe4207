"""The scaling law: windows over what engines report, models learnt of them, and the control loops that decide. Pure."""
