"""What is on the disk, and when: the State, files that are saved later, `pinfold state`. It decides nothing."""
