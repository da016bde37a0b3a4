"""Requests and checks on a connection that neither client library offers."""
