"""Small descriptions of machines, one for each oddity, and what builds the same machine in every format from them."""
