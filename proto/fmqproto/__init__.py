"""Wire messages of FMQ, generated from the `.proto` files beside them (`make proto`)."""
