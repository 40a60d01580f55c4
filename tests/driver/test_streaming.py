"""A model that does not fit is compiled as streams: exact, within its limit, or refused with what would do."""

from __future__ import annotations

import re

import pytest
from conftest import NETS

MODEL = f"{NETS}:tall"


@pytest.fixture(scope="module")
def streamed(succeed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streamed")
    records = folder / "records.db"
    whole = succeed("compile", MODEL, "--records", records, "-o", folder / "whole")
    limit = whole["arena_bytes"] * 2 // 3
    return whole, succeed("compile", MODEL, "--records", records, "--arena-size", limit, "-o", folder / "small"), limit


def test_streams_fit_into_the_limit_and_are_exact(streamed, succeed):
    _, small, limit = streamed
    assert small["arena_bytes"] <= limit
    assert any("stream" in kernel["name"] for kernel in small["kernels"])
    report = succeed("run", small["build"], "--random", 2)
    assert report["exact"]


def test_every_op_of_a_stream_is_in_the_report(streamed):
    whole, small, _ = streamed
    assert sorted(op["op"] for op in small["ops"]) == sorted(op["op"] for op in whole["ops"])


def test_streams_are_verified_call_by_call(streamed, succeed):
    _, small, _ = streamed
    assert succeed("verify", small["build"], "--inputs", 1)["exact"]


def test_the_front_trades_memory_for_speed(streamed, succeed):
    _, small, limit = streamed
    points = succeed("fit", MODEL, "--records", f"{small['build']}/../records.db")["points"]
    sizes = [point["arena"] for point in points]
    assert sizes[-1] <= limit
    assert sizes == sorted(sizes, reverse=True)
    assert any(len(stream) > 1 for stream in points[-1]["streams"])


def test_a_limit_that_nothing_meets_is_an_error_that_names_the_least(refused, tmp_path):
    message = refused("compile", MODEL, "--arena-size", 1000, "-o", tmp_path / "build")
    assert "the model needs more memory than `cortex-m55` has for its arena" in message
    assert re.search(r"strip by strip, \d+ B do", message)
