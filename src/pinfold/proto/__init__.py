"""Messages of the protocols around pinfold, generated from the .proto files here by `tools/proto`; never edited.

Each .proto file holds only the fields that pinfold uses; what a peer sends beyond them is skipped.
"""
