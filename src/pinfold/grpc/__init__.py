"""gRPC on h2, client and server, on unix sockets: requests and answers are bytes; knows no protobuf and no CPUs."""
