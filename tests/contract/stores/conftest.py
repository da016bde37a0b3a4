"""What tests of stores share."""

from tests.support.contract.store_kit import make_kit as make_kit
