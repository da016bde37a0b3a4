"""The group members of an instance, on record in its directory, so that the group need not wait for them after a crash.

The record counts as a proof only if all of this holds. Otherwise it is ignored, and the group removes the members after
their session timeout, as without a record:

* The reader holds the directory's lock, or knows that its last holder has ended.
* The file belongs to this user and is private (mode 0600). It is bounded and well-formed.
* It was written for the same group of the same cluster.
* Its process has ended: either it has noted that it stopped its members (``stopped``), or it is gone by the rules of
  :mod:`streams_py.system.process_proof`. If the process ran in another pid namespace, the released lock is the proof.
  The lock file must then be the one that the process had locked: a copy of the directory has another one.

Static members (``group.instance.id``) are on record, too, but are never removed: their restart moves no tasks.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, replace
from typing import Any, Final

from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import named
from streams_py.system.private_files import UntrustedPathError, open_file, replace_file
from streams_py.system.process_proof import Life, ProcessIdentity, has_reliable_locks

RECORD_FILE: Final = "group-members.json"
_VERSION: Final = 1
_BYTES_MAX: Final = 256 << 10
_MEMBERS_MAX: Final = 1024
_TEXT_MAX: Final = 1024
_INT_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RecordedMember:
    """The group member of one stream thread. ``instance_id`` is None unless the member is static."""

    thread: int
    member_id: str
    generation: int = -1
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LockIdentity:
    """Identity of a lock file: device and inode number."""

    device: int
    inode: int

    @classmethod
    def of(cls, file: int) -> LockIdentity:
        """Return the identity of an open file."""
        status = os.fstat(file)
        return cls(status.st_dev, status.st_ino)


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The content of a record.

    Attributes:
        group: ``application.id``, the id of the group.
        process: The process that wrote it; None if the system does not identify processes.
        lock: The lock file that the process held.
        former: Ids of dynamic members of earlier processes that have ended, not removed from the group yet.
        stopped: Whether the process has stopped all of these members itself.
    """

    group: str
    cluster_id: str
    process: ProcessIdentity | None
    lock: LockIdentity
    members: tuple[RecordedMember, ...] = ()
    former: tuple[str, ...] = ()
    stopped: bool = False

    def dynamic_ids(self) -> tuple[str, ...]:
        """Return the ids of all members that may be removed once the process has ended, without duplicates."""
        of_process = (member.member_id for member in self.members if member.instance_id is None and member.member_id)
        return tuple(dict.fromkeys((*self.former, *of_process)))[-_MEMBERS_MAX:]

    def has_ended(self, lock_file: int) -> bool:
        """Whether the process of this record has certainly stopped its members.

        Args:
            lock_file: Descriptor of the directory's lock file. The caller holds this lock, or has just seen that no
                process holds it.
        """
        if self.stopped:
            return True
        if self.process is None:
            return False
        match self.process.life():
            case Life.ENDED:
                return True
            case Life.INVISIBLE:
                return LockIdentity.of(lock_file) == self.lock and has_reliable_locks(lock_file)
            case _:
                return False


def read_record(directory: str) -> MemberRecord | None:
    """Read the record in a directory. None if the file does not exist.

    Raises:
        OSError: The file cannot be read, or is not a private file of this user.
        ValueError: The file is malformed.
    """
    path = os.path.join(directory, RECORD_FILE)
    try:
        with open(path, "rb", opener=open_file) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise UntrustedPathError(path, "is not a private file (mode 0600) of this user")
            content = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > _BYTES_MAX:
        raise ValueError(f"more than {_BYTES_MAX >> 10} KiB")
    found = loads_foreign(content)
    try:
        return _parsed(found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(named(error)) from None


def write_record(directory: str, record: MemberRecord) -> None:
    """Replace the record in a directory, durably, with mode 0600. OSError if that fails."""
    process, lock = record.process, record.lock
    content = {
        "version": _VERSION,
        "group": record.group,
        "clusterId": record.cluster_id,
        "process": process
        and {
            "pid": process.pid,
            "startTicks": process.start_ticks,
            "bootId": process.boot_id,
            "pidNamespace": process.pid_namespace,
        },
        "lock": {"device": lock.device, "inode": lock.inode},
        "members": [
            {
                "thread": member.thread,
                "memberId": member.member_id,
                "generation": member.generation,
                "instanceId": member.instance_id,
            }
            for member in record.members
        ],
        "former": list(record.former),
        "stopped": record.stopped,
    }
    replace_file(os.path.join(directory, RECORD_FILE), json.dumps(content).encode())


def mark_stopped(directory: str, record: MemberRecord) -> None:
    """Note that the process has stopped all members of its record. OSError if that fails."""
    write_record(directory, replace(record, stopped=True))


def _parsed(found: Any) -> MemberRecord:
    if not isinstance(found, dict) or _number(found["version"]) != _VERSION:
        raise ValueError("unknown version")
    process, lock = found["process"], found["lock"]
    members, former = found["members"], found["former"]
    if not isinstance(members, list) or not isinstance(former, list) or len(members) + len(former) > _MEMBERS_MAX:
        raise ValueError("members are not a list, or too many")
    if not isinstance(found["stopped"], bool):
        raise ValueError("stopped must be true or false")
    return MemberRecord(
        _text(found["group"]),
        _text(found["clusterId"]),
        None
        if process is None
        else ProcessIdentity(
            _number(process["pid"], minimum=1),
            _number(process["startTicks"]),
            _text(process["bootId"]),
            _number(process["pidNamespace"]),
        ),
        LockIdentity(_number(lock["device"]), _number(lock["inode"])),
        tuple(
            RecordedMember(
                _number(member["thread"]),
                _text(member["memberId"]),
                _number(member["generation"], minimum=-1),
                None if member["instanceId"] is None else _text(member["instanceId"]),
            )
            for member in members
        ),
        tuple(map(_text, former)),
        found["stopped"],
    )


def _number(found: object, *, minimum: int = 0) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not minimum <= found <= _INT_MAX:
        raise ValueError("a number is missing or out of range")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str) or len(found) > _TEXT_MAX or not found.isprintable():
        raise ValueError("a text is missing, too long or not printable")
    return found
