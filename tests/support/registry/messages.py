"""Protobuf classes as ``protoc`` makes them of a file with two messages, the second with one nested in it, and of a
file that imports it."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_INT32, _STRING, _MESSAGE, _OPTIONAL = 5, 9, 11, 1

_FILE = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
_order = _FILE.message_type.add(name="Order")
_order.field.add(name="id", number=1, type=_INT32, label=_OPTIONAL)
_order.field.add(name="item", number=2, type=_STRING, label=_OPTIONAL)
_basket = _FILE.message_type.add(name="Basket")
_basket.nested_type.add(name="Owner")
_line = _basket.nested_type.add(name="Line")
_line.field.add(name="amount", number=1, type=_INT32, label=_OPTIONAL)

_DEPENDENT = descriptor_pb2.FileDescriptorProto(name="shop/shipments.proto", package="shop", syntax="proto3")
_DEPENDENT.dependency.append(_FILE.name)
_shipment = _DEPENDENT.message_type.add(name="Shipment")
_shipment.field.add(name="order", number=1, type=_MESSAGE, type_name=".shop.Order", label=_OPTIONAL)

_pool = descriptor_pool.DescriptorPool()
_pool.Add(_FILE)
_pool.Add(_DEPENDENT)

Order: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("shop.Order"))
Line: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("shop.Basket.Line"))
Shipment: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("shop.Shipment"))
