"""The wire: the table of methods, read from the generated protobuf descriptors."""
