"""The cores RIMs are compared with."""
