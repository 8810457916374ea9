"""State hosts for tests: how to start them, and what they should hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import trustme
from until import until
from written_log import KEY, STATE, WrittenLog, hash_of, state_of

from ferryman._log.fold.advance import advance
from ferryman._serve import launch
from ferryman._serve.auth import Access
from ferryman._serve.state_host import Configuration
from ferryman._state import store as stores
from ferryman._state.store.contract import part_schema

TOKEN = "a-token-of-the-job"

ACCESS = Access(TOKEN)
GROUPS = 8
TABLES = {"Counts": "lmdb"}
SCHEMA = part_schema(KEY, STATE)
SCHEMAS = {"Counts": SCHEMA}


def start(tmp_path: Path, name: str, watched: subprocess.Popen[bytes], **more) -> str:
    home, checkpoint = str(tmp_path / name), str(tmp_path / "checkpoint")
    configuration = Configuration(
        address="127.0.0.1", home=home, checkpoint=checkpoint, token=TOKEN, watched=watched.pid, **more
    )
    log = tmp_path / name / "state-host.log"
    location = until(lambda: launch.begin(configuration), "no state host has come up", 60, log)
    assert location is not None
    return location


def held(tmp_path: Path, name: str) -> stores.Store:
    return stores.open("lmdb", tmp_path / name / "Counts", KEY, STATE, GROUPS)


def fill(tmp_path: Path, name: str, log: WrittenLog, to: int) -> stores.Store:
    store = held(tmp_path, name)
    advance(store, log.checkpoint, "Counts", np.arange(GROUPS), to, key=KEY, state=STATE, total=GROUPS)
    return store


def content(store: stores.Store, groups: list[int], epoch: int) -> dict[str, tuple[int, str]]:
    return state_of(pa.concat_tables([store.scan(group, epoch) for group in groups]))


def expected(log: WrittenLog, groups: list[int], epoch: int) -> dict[str, tuple[int, str]]:
    return {key: value for key, value in log.states[epoch]["Counts"].items() if hash_of(key) % GROUPS in groups}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def certificates(place: Path, authority: trustme.CA, *names: str) -> str:
    place.mkdir()
    issued = authority.issue_cert(*names)
    (place / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(place / "key.pem")
    authority.cert_pem.write_to_path(place / "ca.pem")
    return str(place)
