"""The wire protocol: its table of methods, read from the generated protobuf descriptors."""
