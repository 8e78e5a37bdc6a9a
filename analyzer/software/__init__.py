"""What is known of gRPC implementations, proxies and servers: their names, texts, timers and settings."""
