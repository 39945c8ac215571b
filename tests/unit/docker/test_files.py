"""``docker/`` is valid where its forms can be checked without Docker, a cluster or a GPU, and names what exists."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from unit.docker.files import DOCKER, ROOT, copied, document, documents, instructions

from dspark_json.capture.metrics import metrics_text
from dspark_json.capture.settings import HookSettings
from dspark_json.cli.main import parser
from dspark_json.monitor.counters import ACCEPTED, DRAFTED, DRAFTS
from dspark_json.monitor.exporter import exported
from dspark_json.monitor.figures import METRICS
from dspark_json.options import hook_values
from dspark_json.spool.access import LaneExtent

COMPOSE = document("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
KUBERNETES = ("kubernetes/server.yaml", "kubernetes/reader.yaml")
# Beside its counters of drafts, which the monitor reads: vllm/v1/metrics/loggers.py.
VLLM_METRICS = {ACCEPTED, DRAFTED, DRAFTS, "vllm:e2e_request_latency_seconds_bucket"}
GIB = {"gb": 1, "g": 1, "Gi": 1}


def pods() -> dict[str, dict[str, Any]]:
    """The pods that the manifests make, by the name of what makes them."""
    made = [one for path in KUBERNETES for one in documents(path) if one["kind"] in {"Deployment", "StatefulSet"}]
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in made}


def gibibytes(text: str) -> float:
    match = re.fullmatch(r"(\d+)([A-Za-z]+)", text)
    assert match is not None
    return int(match[1]) * GIB[match[2]]


def test_the_compose_file_is_one_by_the_compose_specification() -> None:
    schema = json.loads((files("check_jsonschema.builtin_schemas") / "vendor/compose-spec.json").read_text("utf-8"))
    jsonschema.validators.validator_for(schema)(schema).validate(COMPOSE)


@pytest.mark.parametrize("path", KUBERNETES)
def test_the_manifests_are_ones_by_kubernetes_schemas(path: str) -> None:
    for one in documents(path):
        kubernetes_validate.validate(one, "1.34", strict=True)


def test_server_and_spark_share_one_gpu_and_what_cuda_ipc_needs() -> None:
    server, spark = SERVICES["vllm"], SERVICES["spark"]
    devices = [s["deploy"]["resources"]["reservations"]["devices"] for s in (server, spark)]
    assert devices[0] == devices[1]
    assert (server["ipc"], spark["ipc"], spark["pid"]) == ("shareable", "service:vllm", "service:vllm")
    assert gibibytes(server["shm_size"]) >= 2
    (pod,) = (pod for name, pod in pods().items() if name == "vllm")
    assert pod["shareProcessNamespace"] is True
    memory = {v["name"]: v["emptyDir"] for v in pod["volumes"]}
    assert {m["medium"] for m in memory.values()} == {"Memory"}
    for container in pod["containers"]:
        mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        assert (mounts["spool"], mounts["shm"]) == ("/spool", "/dev/shm")
    assert gibibytes(memory["shm"]["sizeLimit"]) >= 2
    assert [c["resources"]["limits"].get("nvidia.com/gpu") for c in pod["containers"]] == [1, None]


def test_whoever_writes_or_reads_the_spool_has_the_one_volume_of_it() -> None:
    for name in ("vllm", "spark", "replay", "spark-cpu", "monitor"):
        assert "spool:/spool" in SERVICES[name]["volumes"], name
    assert {name for name, s in SERVICES.items() if "spool:/spool" in s.get("volumes", [])} == {
        "vllm",
        "spark",
        "replay",
        "spark-cpu",
        "monitor",
    }


def test_every_profile_is_whole() -> None:
    for name, service in SERVICES.items():
        assert service["profiles"], name
        for needed in service.get("depends_on", {}):
            assert SERVICES[needed]["profiles"] == service["profiles"], name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DOCKER / source).exists(), volume
    assert {p for s in SERVICES.values() for p in s["profiles"]} == {"gpu", "cpu", "metrics"}


def test_images_are_built_from_targets_that_exist() -> None:
    stages = {stage for stage, _, _ in instructions() if stage}
    targets = {s["build"]["target"] for s in SERVICES.values() if "build" in s}
    assert targets == {"vllm", "spark", "replay"}
    assert targets < stages
    built = {s["image"] for s in SERVICES.values() if "build" in s}
    assert built == {f"dspark-json/{target}" for target in targets}
    used = {c["image"] for pod in pods().values() for c in pod["containers"]}
    assert used <= built


def test_what_is_copied_into_images_exists_and_is_in_the_context() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text("utf-8").split()
    for stage in ("wheel", "vllm", "spark", "replay"):
        for place, source in copied(stage).items():
            assert source.exists(), place
            assert f"!{source.relative_to(ROOT).parts[0]}" in ignored, source


def test_scripts_that_commands_name_are_in_their_images() -> None:
    def named(command: list[str]) -> list[str]:
        return [word for word in command if word.startswith("/usr/local/bin/")]

    for name, service in SERVICES.items():
        if "image" in service and service["image"].startswith("dspark-json/"):
            stage = service["image"].split("/")[1]
            for command in (service.get("healthcheck", {}).get("test", []), service.get("entrypoint", [])):
                assert set(named(command)) <= copied(stage).keys(), name
    for pod in pods().values():
        for container in pod["containers"]:
            stage = container["image"].split("/")[1]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                command = container.get(probe, {}).get("exec", {}).get("command", [])
                assert set(named(command)) <= copied(stage).keys(), probe
    for stage, word, rest in instructions():
        if word == "ENTRYPOINT":
            assert set(named(json.loads(rest))) <= copied(stage).keys()


def test_containers_that_stay_have_a_health_check() -> None:
    for name in ("vllm", "spark", "replay", "spark-cpu"):
        check = SERVICES[name]["healthcheck"]
        assert check["test"][0] == "CMD", name
        assert {"interval", "timeout", "retries", "start_period"} <= check.keys(), name
    for pod in pods().values():
        for container in pod["containers"]:
            assert {"startupProbe", "livenessProbe"} <= container.keys(), container["name"]
            assert "memory" in container["resources"]["limits"]


def test_the_settings_of_the_hook_are_ones() -> None:
    given = [{n: "" for n in s.get("environment", {}) if n.startswith("DSPARK_")} for s in SERVICES.values()]
    given += [
        {e["name"]: e.get("value", "") for e in c.get("env", []) if e["name"].startswith("DSPARK_")}
        for pod in pods().values()
        for c in pod["containers"]
    ]
    for environment in given:
        assert hook_values(environment)[1] == []
    assert HookSettings.from_environment({"DSPARK_API_KEY": "", "DSPARK_DEVICE_RING": "off"}).api_key is None


def test_the_pods_of_the_headless_service_are_the_servers_and_the_reader_asks_them() -> None:
    made = {one["kind"]: one for one in documents("kubernetes/server.yaml")}
    service, servers = made["Service"], made["StatefulSet"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= servers["spec"]["template"]["metadata"]["labels"].items()
    assert servers["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = pods()["answers"]["containers"]
    source = {e["name"]: e.get("value") for e in container["env"]}["SOURCE"]
    (port,) = service["spec"]["ports"]
    assert source == f"dns+http://{service['metadata']['name']}:{port['port']}"
    secret = made["Secret"]["metadata"]["name"]
    for pod in pods().values():
        for one in pod["containers"]:
            for variable in one.get("env", []):
                if "valueFrom" in variable:
                    assert variable["valueFrom"]["secretKeyRef"]["name"] == secret
    claims = {one["metadata"]["name"] for one in servers["spec"]["volumeClaimTemplates"]}
    for pod, more in ((pods()["vllm"], claims), (pods()["answers"], set())):
        known = {v["name"] for v in pod["volumes"]} | more
        assert {m["name"] for c in pod["containers"] for m in c["volumeMounts"]} <= known


def test_everything_runs_as_one_user_that_the_images_have() -> None:
    users = {
        match[1]
        for _, word, rest in instructions()
        if word == "RUN" and (match := re.search(r"useradd --uid (\d+)", rest)) is not None
    }
    assert users == {str(pod["securityContext"]["runAsUser"]) for pod in pods().values()}
    for stage in ("vllm", "spark", "replay"):
        assert [rest for where, word, rest in instructions() if (where, word) == (stage, "USER")] == ["dspark"]


def known_metrics() -> set[str]:
    """The metrics of the hook and of the monitor, as they export them, and those of vLLM that are used."""
    text = metrics_text({}, {"0000": LaneExtent(0, 1, 1)})
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} | set(exported()) | VLLM_METRICS


def used_metrics(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:dspark_|vllm:)\w+", expression))


def is_balanced(expression: str) -> bool:
    inside = re.sub(r'"[^"]*"', "", expression)
    for _ in range(len(inside)):
        inside = re.sub(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", "", inside)
    return not re.search(r"[()\[\]{}]", inside)


def test_alerts_are_about_metrics_that_the_hook_has() -> None:
    (group,) = document("prometheus/rules.yml")["groups"]
    recorded = {rule["record"] for rule in group["rules"] if "record" in rule}
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in group["rules"]:
        assert used_metrics(rule["expr"]) <= known_metrics(), rule
        assert set(re.findall(r"\bdspark:\w+:\w+", rule["expr"])) <= recorded, rule
        assert is_balanced(rule["expr"]), rule
    for rule in alerts:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    losses = {
        name for name in known_metrics() if re.search("dropped_rec|unrecorded|exceptions|overflow|oversize_r", name)
    }
    assert losses <= {name for rule in alerts for name in used_metrics(rule["expr"])}


def test_each_figure_that_the_monitor_has_an_alert_for_has_a_rule() -> None:
    (group,) = document("prometheus/rules.yml")["groups"]
    figures = [rule["labels"]["figure"] for rule in group["rules"] if "figure" in rule.get("labels", {})]
    assert sorted(figures) == sorted(metric.name for metric in METRICS)


def test_the_monitor_listens_where_prometheus_asks() -> None:
    words = SERVICES["monitor"]["entrypoint"]
    options = parser().parse_args(words[1:])
    jobs = {job["job_name"]: job for job in document("prometheus/prometheus.yml")["scrape_configs"]}
    assert options.command == "monitor"
    assert jobs["dspark-json-monitor"]["static_configs"] == [{"targets": [f"monitor:{options.listen[1]}"]}]


def test_prometheus_loads_the_rules_and_asks_the_servers_for_metrics() -> None:
    config = document("prometheus/prometheus.yml")
    assert config["rule_files"] == ["/etc/prometheus/rules.yml"]
    job = config["scrape_configs"][0]
    assert job["metrics_path"] == "/dspark/metrics"
    for one in config["scrape_configs"]:
        (static,) = one["static_configs"]
        assert {target.split(":")[0] for target in static["targets"]} <= SERVICES.keys()
    (down,) = re.findall(r'up{job=~"(.*)"} == 0', (DOCKER / "prometheus/rules.yml").read_text("utf-8"))
    ours = {one["job_name"] for one in config["scrape_configs"]} - {"vllm"}
    assert all(re.fullmatch(down, name) for name in ours), "the monitor's own absence is told too"


def test_the_dashboard_shows_metrics_that_the_hook_has() -> None:
    dashboard = json.loads((DOCKER / "grafana/dspark-json.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in expressions:
        assert used_metrics(expression), expression
        assert used_metrics(expression) <= known_metrics(), expression
        assert is_balanced(expression), expression
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    asked = {name for text in expressions for name in re.findall(r"\$(\w+)", text) if not name.startswith("__")}
    assert asked <= variables
    places = [
        (panel["gridPos"]["x"] + i, panel["gridPos"]["y"] + j)
        for panel in panels
        for i in range(panel["gridPos"]["w"])
        for j in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    (provider,) = document("grafana/dashboards.yaml")["providers"]
    mounts = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert any(mount.startswith(provider["options"]["path"]) for mount in mounts)
