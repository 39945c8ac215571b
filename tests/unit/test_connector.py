"""The connector's jar and the Python package say the same where both have to."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import dspark_json
from dspark_json import errors
from dspark_json.source.worker_protocol import MAX_FRAME_BYTES, PROTOCOL, READ_METRICS

BRIDGE = Path(__file__).resolve().parents[2] / "jvm-bridge"
SOURCES = {path.stem: path.read_text() for path in BRIDGE.glob("src/main/java/io/dspark/json/*.java")}


def test_the_jar_has_the_version_of_the_package() -> None:
    version = ET.parse(BRIDGE / "pom.xml").getroot().find("{http://maven.apache.org/POM/4.0.0}version")
    assert version is not None
    assert version.text == dspark_json.__version__


def test_both_sides_speak_one_protocol() -> None:
    assert f"PROTOCOL = {PROTOCOL};" in SOURCES["Version"]
    assert f"MOST_BYTES = {MAX_FRAME_BYTES >> 20} << 20;" in SOURCES["WorkerConnection"]


def test_errors_of_the_connector_have_codes_that_are_documented() -> None:
    known = {error.code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "code")}
    named = {code for text in SOURCES.values() for code in re.findall(r'"(DSPARK_JSON_\w+)"', text)}
    assert len(named) >= 4
    assert {code for code in named if not any(one.startswith(code) for one in known)} == set()


def test_every_count_of_a_read_is_shown() -> None:
    assert [name for name in READ_METRICS if f'"{name}"' not in SOURCES["ReadMetric"]] == []
