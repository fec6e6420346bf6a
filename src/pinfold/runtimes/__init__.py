"""What runs containers: each runtime learns what runs and makes it run on its CPUs; none decides anything."""
