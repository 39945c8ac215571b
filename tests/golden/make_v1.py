"""Make the golden files of format 1 by hand: from the text of the design, never from the code they test.

Run as ``python tests/golden/make_v1.py FOLDER``. Only the standard library, literal values, and ``answers.ndjson``
beside this file (answers that a vLLM server gave, one a line) go in, so the bytes are the same for ever.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
import zlib
from pathlib import Path

ANSWERS = Path(__file__).with_name("answers.ndjson").read_text(encoding="utf-8").splitlines()
ORDER, TOOL_CALL, THREE, LOGPROBS, BAD_SCHEMA, RISK, LEFT_STREAM, NON_ASCII = ANSWERS

SPOOL_ID = "0b7f6a52-3c1e-4d89-9f60-5a2b8c4d7e01"
OTHER_SPOOL_ID = "99999999-3c1e-4d89-9f60-5a2b8c4d7e01"
BOOT_ID = "5d0c4a7e-1f2b-4c3d-8e9f-a0b1c2d3e4f5"
ENDPOINT = "http://127.0.0.1:8000"
CHAT = "/v1/chat/completions"
T = 1_795_970_578_000_000  # µs; the second in which these answers were made

SPOOL_JSON = f'{{"format":1,"spool_id":"{SPOOL_ID}","created":{T},"boot_id":"{BOOT_ID}"}}\n'

ORDER_SCHEMA = {"name": "order", "hash": "3f6c1d0a9be24785"}
RISK_SCHEMA = {"name": "risk", "hash": "a41c77e5d2036b98"}


def dspark(
    seq: int,
    lane: str,
    request_id: str | None,
    status: int,
    received_at: int,
    *,
    stream: bool = False,
    first_byte_ms: float | None,
    duration_ms: float,
    completed: bool = True,
    disconnected: bool = False,
    error: object = None,
    schema: object = None,
    request: object,
    body: str | None = None,
) -> str:
    """The object in front of a record, its members in the order of the design."""
    members = {
        "seq": seq,
        "lane": lane,
        "request_id": request_id,
        "path": CHAT,
        "model": "tiny",
        "status": status,
        "stream": stream,
        "received_at": received_at,
        "first_byte_ms": first_byte_ms,
        "duration_ms": duration_ms,
        "completed": completed,
        "disconnected": disconnected,
        "error": error,
        "schema": schema,
        "request": request,
        "body": body,
    }
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def line(head: str, answer: str | None) -> bytes:
    """A record: the answer with one object spliced in front; a body that is no JSON object is in that object."""
    if answer is None:
        return ('{"_dspark":' + head + "}\n").encode()
    return ('{"_dspark":' + head + "," + answer[1:-1] + "}\n").encode()


# Lane 0000: four records, then the segment was full; two records and a torn tail in the next.
LANE_0_FIRST = [
    (
        T + 640_000,
        line(
            dspark(
                0,
                "0000",
                "req-0001",
                200,
                T + 10_000,
                first_byte_ms=623.5,
                duration_ms=624.25,
                schema=ORDER_SCHEMA,
                request={"max_tokens": 256, "seed": 1},
            ),
            ORDER,
        ),
    ),
    (
        T + 1_720_000,
        line(
            dspark(
                1,
                "0000",
                "req-0002",
                200,
                T + 20_000,
                first_byte_ms=1690.125,
                duration_ms=1690.5,
                request={"max_tokens": 256, "seed": 6, "tool_choice": "required"},
            ),
            TOOL_CALL,
        ),
    ),
    (
        T + 1_720_000,  # stored together with the record before
        line(
            dspark(
                2,
                "0000",
                "req-0003",
                200,
                T + 30_000,
                first_byte_ms=1680.0,
                duration_ms=1680.75,
                schema=RISK_SCHEMA,
                request={"max_tokens": 256, "n": 3, "temperature": 1.0, "seed": 3},
            ),
            THREE,
        ),
    ),
    (
        T + 2_000_000,
        line(
            dspark(
                3,
                "0000",
                "req-0004",
                200,
                T + 1_900_000,
                first_byte_ms=98.0,
                duration_ms=98.5,
                request={"max_tokens": 5, "logprobs": True, "top_logprobs": 3},
            ),
            LOGPROBS,
        ),
    ),
]
LANE_0_SECOND = [
    (
        T + 2_100_000,
        line(
            dspark(
                4,
                "0000",
                "req-0005",
                400,
                T + 2_090_000,
                first_byte_ms=8.5,
                duration_ms=8.75,
                completed=False,
                error={"message": "Grammar error: Invalid type: nonsense", "type": "BadRequestError", "code": "400"},
                request={"max_tokens": 256},
            ),
            BAD_SCHEMA,
        ),
    ),
    (
        T + 2_300_000,
        line(
            dspark(
                5,
                "0000",
                "req-0006",
                502,
                T + 2_200_000,
                first_byte_ms=99.0,
                duration_ms=99.0,
                completed=False,
                request={"max_tokens": 256, "seed": 2},
                body="<html>\r\n<body>502 Bad Gateway – “upstream” \\ gone</body>\n</html>\n",
            ),
            None,
        ),
    ),
]
# The process was killed as it wrote the index entry of this one: all of its line is there, ten bytes of its entry.
LANE_0_TORN = (
    T + 2_400_000,
    line(
        dspark(
            6,
            "0000",
            "req-0007",
            200,
            T + 2_350_000,
            first_byte_ms=210.0,
            duration_ms=210.5,
            schema=RISK_SCHEMA,
            request={"max_tokens": 256, "seed": 2},
        ),
        RISK,
    ),
)
TORN_ENTRY_BYTES = 10

# Lane 0001: records 0 to 9 are gone by retention; three records, then a new segment was begun by age.
LANE_1_FIRST_SEQ = 10
LANE_1 = [
    (
        T + 3_000_000,
        line(
            dspark(
                10,
                "0001",
                "req-0101",
                200,
                T + 2_950_000,
                stream=True,
                first_byte_ms=12.5,
                duration_ms=48.0,
                completed=False,
                disconnected=True,
                request={"max_tokens": 400, "stream_options": {"include_usage": True}, "ignore_eos": True},
            ),
            LEFT_STREAM,
        ),
    ),
    (
        T + 3_200_000,
        line(
            dspark(
                11,
                "0001",
                None,
                200,
                T + 3_050_000,
                first_byte_ms=None,
                duration_ms=140.0,
                completed=False,
                disconnected=True,
                request=None,
                body="null",
            ),
            None,
        ),
    ),
    (
        T + 3_200_000,  # the clock was set back before this one: times never go down within a lane
        line(
            dspark(
                12,
                "0001",
                "req-0103",
                200,
                T + 3_100_000,
                first_byte_ms=80.5,
                duration_ms=80.75,
                request={"max_tokens": 24},
            ),
            NON_ASCII,
        ),
    ),
]
LANE_1_ROLLED_AT = T + 3_700_000


def index_header(first_seq: int, created: int) -> bytes:
    return b"DSPKIDX1" + struct.pack("<QQQ", first_seq, created, 0)


def index_entries(records: list[tuple[int, bytes]]) -> bytes:
    out, end = b"", 0
    for appended_at, text in records:
        end += len(text)
        out += struct.pack("<QQII", end, appended_at, zlib.crc32(text), 0)
    return out


def data(records: list[tuple[int, bytes]]) -> bytes:
    return b"".join(text for _, text in records)


def spool_files() -> dict[str, bytes]:
    torn = index_entries([*LANE_0_SECOND, LANE_0_TORN])[-24:][:TORN_ENTRY_BYTES]
    return {
        "spool/spool.json": SPOOL_JSON.encode(),
        "spool/lanes/0000/00000000000000000000.ndjson": data(LANE_0_FIRST),
        "spool/lanes/0000/00000000000000000000.index": index_header(0, T) + index_entries(LANE_0_FIRST),
        "spool/lanes/0000/00000000000000000004.ndjson": data([*LANE_0_SECOND, LANE_0_TORN]),
        "spool/lanes/0000/00000000000000000004.index": index_header(4, T + 2_100_000)
        + index_entries(LANE_0_SECOND)
        + torn,
        "spool/lanes/0001/00000000000000000010.ndjson": data(LANE_1),
        "spool/lanes/0001/00000000000000000010.index": index_header(10, T + 2_900_000) + index_entries(LANE_1),
        "spool/lanes/0001/00000000000000000013.ndjson": b"",
        "spool/lanes/0001/00000000000000000013.index": index_header(13, LANE_1_ROLLED_AT),
    }


def exchange(route: str, status: int, headers: dict[str, str], body: bytes, *, binary: bool = False) -> bytes:
    """One exchange as a JSON file; Content-Length is of the body."""
    shown: dict[str, object] = {
        "request": f"GET {route}",
        "status": status,
        "headers": {**headers, "content-length": str(len(body))},
    }
    if binary:
        shown["body_base64"] = base64.b64encode(body).decode()
    else:
        shown["body"] = body.decode()
    return (json.dumps(shown, indent=2, ensure_ascii=False) + "\n").encode()


def records_answer(lane: str, query: str, following: int, records: list[tuple[int, bytes]]) -> bytes:
    return exchange(
        f"/dspark/v1/spools/{SPOOL_ID}/lanes/{lane}/records?{query}",
        200,
        {"content-type": "application/x-ndjson", "x-dspark-next": str(following)},
        data(records),
    )


def index_answer(lane: str, query: str, following: int, records: list[tuple[int, bytes]]) -> bytes:
    return exchange(
        f"/dspark/v1/spools/{SPOOL_ID}/lanes/{lane}/index?{query}",
        200,
        {"content-type": "application/octet-stream", "x-dspark-next": str(following)},
        index_entries(records),
        binary=True,
    )


def error_answer(route: str, status: int, code: str, message: str, **facts: object) -> bytes:
    error = {"error": {"code": code, "message": message, **facts}}
    body = json.dumps(error, separators=(",", ":"), ensure_ascii=False).encode()
    return exchange(route, status, {"content-type": "application/json"}, body)


def http_files() -> dict[str, bytes]:
    here = f"/dspark/v1/spools/{SPOOL_ID}/lanes"
    offsets = {
        "v": 1,
        "spool_id": SPOOL_ID,
        "lanes": {
            "0000": {"first": 0, "next": 6, "bytes": len(data(LANE_0_FIRST)) + len(data(LANE_0_SECOND))},
            "0001": {"first": 10, "next": 13, "bytes": len(data(LANE_1))},
        },
    }
    no_lane = "the spool has no lane 0007"
    expired = "record 3 of lane 0001 is no longer kept, the oldest one is 10"
    beyond = "record 6 of lane 0000 is not written yet, the next one is 6"
    replaced = f"this server has the spool {SPOOL_ID}"
    return {
        "http/offsets.json": exchange(
            "/dspark/v1/offsets",
            200,
            {"content-type": "application/json"},
            json.dumps(offsets, separators=(",", ":")).encode(),
        ),
        "http/records-whole-segment.json": records_answer("0000", "from=0&to=4", 4, LANE_0_FIRST),
        "http/records-middle.json": records_answer("0000", "from=1&to=3", 3, LANE_0_FIRST[1:3]),
        "http/records-end-at-segment.json": records_answer("0000", "from=2&to=6", 4, LANE_0_FIRST[2:]),
        "http/records-max-bytes.json": records_answer("0000", "from=0&to=4&max_bytes=1", 1, LANE_0_FIRST[:1]),
        "http/records-before-torn-tail.json": records_answer("0000", "from=4&to=6", 6, LANE_0_SECOND),
        "http/records-to-beyond-end.json": records_answer("0000", "from=5&to=100", 6, LANE_0_SECOND[1:]),
        "http/records-after-retention.json": records_answer("0001", "from=10&to=13", 13, LANE_1),
        "http/index-two-segments.json": index_answer("0000", "from=2&to=6", 6, [*LANE_0_FIRST[2:], *LANE_0_SECOND]),
        "http/index-one-record.json": index_answer("0001", "from=11&to=12", 12, LANE_1[1:2]),
        "http/records-unknown-lane.json": error_answer(
            f"{here}/0007/records?from=0&to=1", 404, "DSPARK_JSON_LANE_NOT_FOUND", no_lane
        ),
        "http/index-unknown-lane.json": error_answer(
            f"{here}/0007/index?from=0&to=1", 404, "DSPARK_JSON_LANE_NOT_FOUND", no_lane
        ),
        "http/records-expired.json": error_answer(
            f"{here}/0001/records?from=3&to=11", 410, "DSPARK_JSON_RECORDS_EXPIRED", expired, first=10
        ),
        "http/records-other-spool.json": error_answer(
            f"/dspark/v1/spools/{OTHER_SPOOL_ID}/lanes/0000/records?from=0&to=1",
            412,
            "DSPARK_JSON_SPOOL_REPLACED",
            replaced,
            spool_id=SPOOL_ID,
        ),
        "http/records-beyond-end.json": error_answer(
            f"{here}/0000/records?from=6&to=7", 416, "DSPARK_JSON_BEYOND_END", beyond, next=6
        ),
    }


def offset_file() -> dict[str, bytes]:
    """The offset of a stream that read all of this spool, as text without a line end."""
    lanes = {"0000": {"next": 6, "seen": 6}, "0001": {"next": 13, "seen": 13}}
    offset = {"v": 1, "spools": {SPOOL_ID: {"endpoint": ENDPOINT, "lanes": lanes}}}
    return {"offset.json": json.dumps(offset, sort_keys=True).encode()}


def main(folder: Path) -> None:
    files = {**spool_files(), **http_files(), **offset_file()}
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    for name, raw in {**files, "SHA256SUMS": sums.encode()}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
