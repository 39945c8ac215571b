"""Deployments of a model with the hook, for services that run model servers."""
