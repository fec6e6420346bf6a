"""gRPC on h2, for both ends of a unix socket: requests and answers are bytes; knows no protobuf and no CPUs."""
