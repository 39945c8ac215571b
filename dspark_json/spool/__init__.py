"""The storage contract between the hook that writes answers and the readers that stream them (DESIGN §3)."""
