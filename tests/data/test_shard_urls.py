"""Shards behind URLs: real file systems of fsspec and a real web server, which may fail."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import fsspec
import pytest
import torch
from shard_tools import number, numbered_shards, png, tar

import wessl
from wessl.data.decoding.bad_pictures import ShardLost
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.data.sources.shards import files as shard_files
from wessl.data.workers.many import decode_many
from wessl.errors import Failure, UserError

COUNTS = (7, 10, 5)
N = sum(COUNTS)


class Server(ThreadingHTTPServer):
    """Serves a folder with byte ranges; `trouble[name]` says what to do instead, and how often."""

    daemon_threads = True

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.asked = folder, Counter[str]()
        self.trouble: dict[str, list[str]] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.strip("/")
        path = self.server.folder / name
        ranged = self.headers.get("Range")
        if ranged and self.command == "GET":
            self.server.asked[name] += 1
            if self.server.trouble.get(name):
                trouble = self.server.trouble[name].pop(0)
                if trouble == "slow":
                    time.sleep(1.5)
                elif trouble == "short":
                    return self.answer(206, path.read_bytes()[:10])
                else:
                    return self.answer(500, b"")
        if not path.is_file():
            return self.answer(404, b"")
        content = path.read_bytes()
        if ranged:
            first, last = ranged.removeprefix("bytes=").split("-")
            content = content[int(first) : int(last) + 1 if last else None]
        return self.answer(206 if ranged else 200, content)

    def answer(self, code: int, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    served = Server(numbered_shards(tmp_path / "shards", COUNTS))
    thread = threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(shard_files, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(shard_files, "SLOW", 0.5)


def shards(server: Server, tmp_path: Path):
    pytest.importorskip("aiohttp", reason="fsspec reads http through it")
    return open_source(f"{server.url}/shard-{{0..2}}.tar", directory=tmp_path / "keep")


def test_a_web_server_gives_what_the_disk_gives(server, tmp_path):
    source = shards(server, tmp_path)
    assert [number(source.read(i)) for i in range(N)] == list(range(N))
    assert source.labels.tolist() == [i % 3 for i in range(N)]
    assert source.location == f"{server.url}/shard-{{0..2}}.tar"
    found = list(decode_many(source, [21, 3, 8, 9, 10], None, workers=2))
    assert [number(pixels) for _, pixels in found] == [21, 3, 8, 9, 10]


def test_neighbours_come_with_one_request(server, tmp_path):
    source = shards(server, tmp_path)
    assert source.channels == 3
    server.asked.clear()
    source.prefetch([7, 8, 9, 10, 11, 12, 13, 14])
    assert [number(source.read(i)) for i in range(7, 15)] == list(range(7, 15))
    assert server.asked == {"shard-1.tar": 1}


def test_the_index_of_a_server_is_kept(server, tmp_path):
    before = shards(server, tmp_path)
    server.asked.clear()
    assert shards(server, tmp_path).fingerprint == before.fingerprint
    assert not server.asked


@pytest.mark.parametrize("trouble", ["error", "short", "slow"])
def test_what_fails_for_a_while_is_tried_again(server, tmp_path, trouble, impatient):
    source = shards(server, tmp_path)
    assert source.channels == 3
    server.trouble["shard-1.tar"] = [trouble] * 2
    assert number(source.read(8)) == 8
    assert not server.trouble["shard-1.tar"]


def test_a_shard_that_stays_away_is_named_and_left_alone(server, tmp_path, impatient):
    source = shards(server, tmp_path)
    assert source.channels == 3
    server.trouble["shard-1.tar"] = ["error"] * 100
    server.asked.clear()
    with pytest.raises(ShardLost, match=r"shard-1.tar cannot be read, tried 6 times .*500"):
        source.read(8)
    assert server.asked["shard-1.tar"] == shard_files.TRIES
    with pytest.raises(ShardLost):
        source.read(9)
    assert server.asked["shard-1.tar"] == shard_files.TRIES
    assert number(source.read(3)) == 3


def test_a_lost_shard_comes_back_after_a_rest(server, tmp_path, impatient, monkeypatch):
    source = shards(server, tmp_path)
    assert source.channels == 3
    monkeypatch.setattr(shard_files, "REST", 0.2)
    server.trouble["shard-1.tar"] = ["error"] * shard_files.TRIES
    with pytest.raises(ShardLost):
        source.read(8)
    time.sleep(0.3)
    assert number(source.read(8)) == 8


def test_the_loader_goes_on_without_a_lost_shard_and_names_its_pictures(
    server, tmp_path, impatient
):
    source = shards(server, tmp_path)
    assert source.channels == 3
    server.trouble["shard-1.tar"] = ["error"] * 1000
    loader = Loader(source, N, workers=0, short_side=None)
    with closing(loader.batches()) as batches:
        indices, batch = next(batches)
    lost = set(range(7, 17))
    good = sorted(set(range(N)) - lost)
    assert set(indices.tolist()) == set(good)
    # The same place in the next shard stands in: five pictures, twice each.
    assert Counter(indices.tolist())[17] == 1 + 2
    assert [number(pixels.numpy()) for pixels in batch.pixels] == indices.tolist()
    assert {name for name, _ in loader.skipped} == {source.name(i) for i in lost}
    assert all("shard-1.tar cannot be read" in reason for _, reason in loader.skipped)
    strict = Loader(source, N, workers=0, max_bad=3).batches()
    with closing(strict), pytest.raises(UserError, match="more than --max-bad 3"):
        next(strict)


def test_a_server_that_is_gone_ends_the_training_in_words(server, tmp_path, impatient):
    source = shards(server, tmp_path)
    assert source.channels == 3
    for shard in range(3):
        server.trouble[f"shard-{shard}.tar"] = ["error"] * 1000
    batches = Loader(source, N, workers=0, max_bad=1.0).batches()
    with closing(batches), pytest.raises(Failure, match="4 shards in a row do not answer"):
        next(batches)


def test_a_missing_shard_and_an_unknown_server_are_named(server, tmp_path):
    pytest.importorskip("aiohttp")
    with pytest.raises(UserError, match=r"shard-7.tar cannot be read"):
        open_source(f"{server.url}/shard-7.tar")
    with pytest.raises(UserError, match=r"gopher"):
        open_source("gopher://host/shard-0.tar")


def test_a_protocol_whose_package_is_absent_names_it():
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r"s3://bucket/a.tar: Install s3fs.*wessl\[url\]"):
            open_source("s3://bucket/a.tar")


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_other_file_systems_of_fsspec_do_as_well(protocol, tmp_path):
    folder = numbered_shards(tmp_path / "shards", COUNTS)
    root = f"file://{folder}" if protocol == "file" else "memory://wessl-tests"
    if protocol == "memory":
        for path in folder.iterdir():
            fsspec.filesystem("memory").pipe_file(f"/wessl-tests/{path.name}", path.read_bytes())
    source = open_source(f"{root}/shard-*.tar", directory=tmp_path / "keep")
    assert [number(source.read(i)) for i in range(N)] == list(range(N))
    loader = Loader(source, 5, short_side=None, workers=2)
    with closing(loader.batches()) as batches:
        seen = torch.cat([indices for indices, _ in islice(batches, 4)])
    assert len(set(seen.tolist())) == 20


def test_packed_shards_open_by_their_url_without_being_read_through(server, tmp_path):
    pytest.importorskip("aiohttp")
    packed = wessl.pack(server.folder, tmp_path / "packed", per_shard=9, workers=0)
    server.folder, keep = packed.path, tmp_path / "keep"
    source = open_source(f"{server.url}/shard-{{000000..000002}}.tar", directory=keep)
    assert not server.asked
    assert not keep.exists()
    names = {source.name(i): number(source.read(i)) for i in range(N)}
    assert sorted(names.values()) == list(range(N))
    assert all(int(name[-9:-4]) == shown for name, shown in names.items())


def test_a_shard_replaced_on_a_server_that_tells_no_dates_is_noticed(server, tmp_path):
    source = shards(server, tmp_path)
    assert number(source.read(8)) == 8
    size = (server.folder / "shard-1.tar").stat().st_size
    others = [(f"{i:05}.png", png(i + 20)) for i in range(7, 17)]
    labels = [(f"{i:05}.cls", b"1") for i in range(7, 17)]
    members = [member for pair in zip(others, labels, strict=True) for member in pair]
    assert tar(server.folder / "shard-1.tar", members).stat().st_size == size
    for opened in (source, shards(server, tmp_path)):
        with pytest.raises(ShardLost, match=r"changed since it was indexed; remove .*\.npz"):
            opened.read(9)
        assert number(opened.read(3)) == 3
