"""What containers print: the files, and the program beside the daemon that writes them."""
