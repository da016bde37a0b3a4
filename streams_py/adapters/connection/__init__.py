"""Requests and connection checks that neither client library offers."""
