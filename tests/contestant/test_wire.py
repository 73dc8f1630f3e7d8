"""Frames from the other side are believed to be hostile."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from descriptors import open_files
from kerneldojo.contestant.wire import (
    MAX_FRAME_BYTES,
    Channel,
    ChannelClosed,
    DeadlinePassed,
    MalformedFrame,
    channel_pair,
)


def test_objects_and_descriptors_cross() -> None:
    ours, theirs = channel_pair()
    other = Channel(theirs)
    read_end, write_end = os.pipe()
    ours.send({"op": "hello", "text": "ä" * 1000}, fds=[write_end])
    assert other.receive(1)["text"] == "ä" * 1000
    (received,) = other.received_fds
    os.write(received, b"through")
    assert os.read(read_end, 7) == b"through"


def test_the_judge_is_given_no_descriptors() -> None:
    ours, theirs = channel_pair()
    before = open_files()
    body = b'{"hostile": true}'
    for byte in struct.pack("<I", len(body)) + body:
        socket.send_fds(theirs, [bytes([byte])], [0, 1, 2])
    assert ours.receive(1) == {"hostile": True}
    assert open_files() - before == set()
    assert not ours.received_fds


def test_a_large_object_crosses_while_both_sides_wait() -> None:
    import threading

    ours, theirs = channel_pair()
    other = Channel(theirs)
    sender = threading.Thread(target=ours.send, args=({"x": "y" * 2_000_000},))
    sender.start()
    assert len(other.receive(10)["x"]) == 2_000_000
    sender.join()


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<I", MAX_FRAME_BYTES + 1),
        struct.pack("<I", 4) + b"nope",
        struct.pack("<I", 2) + b"[]",
        struct.pack("<I", 200_000) + b"[" * 200_000,
        struct.pack("<I", 3) + b"\xff\xfe\xfd",
    ],
)
def test_malformed_frames_are_refused(raw: bytes) -> None:
    ours, theirs = channel_pair()
    theirs.sendall(raw)
    with pytest.raises(MalformedFrame):
        ours.receive(1)


def test_silence_and_a_closed_door_are_told_apart() -> None:
    ours, theirs = channel_pair()
    with pytest.raises(DeadlinePassed):
        ours.receive(0.05)
    theirs.sendall(struct.pack("<I", 100) + b"half")
    with pytest.raises(DeadlinePassed):
        ours.receive(0.05)
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.receive(1)


def test_a_reader_that_does_not_read_does_not_block_for_ever() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with pytest.raises(DeadlinePassed):
        channel.send({"x": "y" * 4_000_000}, timeout=0.1)
    theirs.close()


def test_unread_bytes_are_noticed() -> None:
    ours, theirs = channel_pair()
    assert not ours.has_unread()
    theirs.sendall(b"{")
    assert ours.has_unread()


def test_half_an_object_is_no_object() -> None:
    ours, theirs = channel_pair()
    assert not ours.has_frame(0.01)
    theirs.sendall(struct.pack("<I", 8) + b'{"a":')
    assert not ours.has_frame(0.01)
    assert ours.has_unread()
    theirs.sendall(b" 1}")
    assert ours.has_frame(1)
    assert ours.has_frame(0), "it is still there"
    assert ours.receive(0.01) == {"a": 1}
    theirs.close()
    assert ours.has_frame(1), "that it is closed will be seen at once"
    with pytest.raises(ChannelClosed):
        ours.receive(1)
    ours.close()
    with pytest.raises(ChannelClosed):
        ours.has_unread()


def test_descriptors_may_have_any_number() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1100:
        pytest.skip("this process may not have so many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
    many = [os.open("/dev/null", os.O_RDONLY) for _ in range(1030)]
    try:
        ours, theirs = channel_pair()
        other = Channel(theirs)
        assert ours.fileno() >= 1024
        other.send({"x": 1})
        assert ours.has_unread()
        assert ours.has_frame(1)
        assert ours.receive(1) == {"x": 1}
        ours.close()
        other.close()
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
