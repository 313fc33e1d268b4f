"""What real brokers and earlier versions of ourselves said, kept as files."""
