"""What ``dspark-json monitor`` watches: figures of a server's answers over a window of time, and alerts on them."""
