"""The networks that export_models.py writes, and the builder that they are written with."""
