"""What an analysis is: the types that reports read and that JSON documents are made of."""
