"""What tests of stores share."""

from tests.contract.stores.store_kit import make_kit as make_kit
