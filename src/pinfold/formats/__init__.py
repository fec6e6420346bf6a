"""Text or bytes to values and back; knows no files and no sockets."""
