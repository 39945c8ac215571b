"""The hook's cost on a real vLLM is measured and reported; nothing is asserted of the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from real_vllm.costs import COSTS, first_bytes, measure, report, report_first_bytes, some
from real_vllm.server import Vllm

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS, ANSWERS, CLIENTS = 4, 60, 8
FIRST_BYTES = 200


def test_cost_is_measured_in_pairs(tmp_path: Path) -> None:
    with Vllm(tmp_path / "hooked") as hooked, Vllm(tmp_path / "bare", hooked=False) as bare:
        for form in ("schema", "schema streamed"):
            for server in (hooked, bare):
                measure(server, some(0, form, 20), CLIENTS)
            figures = {hooked.port: [], bare.port: []}
            for number in range(1, ROUNDS + 1):
                order = (hooked, bare) if number % 2 else (bare, hooked)
                for server in order:
                    figures[server.port].append(measure(server, some(number, form, ANSWERS), CLIENTS))
            COSTS.append(report(form, figures[hooked.port], figures[bare.port]))
        records = hooked.reader().offsets().lanes["0000"].next
        assert records == 2 * (20 + ROUNDS * ANSWERS)


def test_the_first_byte_is_timed_beside_servers_without_the_hook(tmp_path: Path) -> None:
    with (
        Vllm(tmp_path / "hooked", settings={"DSPARK_DURABILITY": "async"}) as hooked,
        Vllm(tmp_path / "bare", hooked=False) as bare,
        Vllm(tmp_path / "control", hooked=False) as control,
    ):
        servers = {"without the hook": bare, "with it": hooked, "another without it": control}
        for form, more in (("one token", {"max_tokens": 1}), ("streamed", {"max_tokens": 3, "stream": True})):
            request = {"messages": [{"role": "user", "content": "give me one order"}], **more}
            first_bytes(servers, request, 10)
            COSTS.append(report_first_bytes(form, first_bytes(servers, request, FIRST_BYTES), "without the hook"))
        hooked.stop()
        assert hooked.reader().offsets().lanes["0000"].next == 2 * (10 + FIRST_BYTES)
