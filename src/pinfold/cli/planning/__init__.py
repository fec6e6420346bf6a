"""What `pinfold plan` and `pinfold fleet` need beside the verb itself: inputs and arguments."""
