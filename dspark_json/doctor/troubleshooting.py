"""What is behind each error code and each check, for ``docs/troubleshooting.md`` (made by ``make docs``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CHECKS", "SPARK_TROUBLES", "TROUBLES", "SparkTrouble", "Trouble"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error code: what is mostly behind it, what to do, and the checks of ``doctor`` that look at it."""

    code: str
    cause: str
    remedy: str
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SparkTrouble:
    """A message of Spark or Delta: what is mostly behind it, and what to do."""

    message: str
    cause: str
    remedy: str


TROUBLES: Final = (
    Trouble(
        "DSPARK_JSON_UNKNOWN_OPTION",
        "A name that is not in the table of options; one of another version, or a slip.",
        "Take the name that the message proposes; see options.md.",
    ),
    Trouble(
        "DSPARK_JSON_INVALID_OPTION",
        "A value that the option does not take, or two options that exclude one another.",
        "The message says what is allowed.",
    ),
    Trouble("DSPARK_JSON_MISSING_OPTION", "Neither `vllm_endpoint` nor a path.", "Give one of them."),
    Trouble(
        "DSPARK_JSON_SPOOL_NOT_FOUND",
        "The server has not started yet, writes elsewhere (`DSPARK_SPOOL`, another port), or runs in a container whose "
        "/dev/shm is its own.",
        "Start the server with the hook; in containers mount one /dev/shm or use `--ipc=host`; else read over HTTP.",
        ("spool", "hook"),
    ),
    Trouble(
        "DSPARK_JSON_SPOOL_PERMISSION",
        "Spool folders are for their owner alone (0700), and Spark runs as another user.",
        "Run both as one user, or read over HTTP with the hook's key.",
        ("spool",),
    ),
    Trouble(
        "DSPARK_JSON_SPOOL_FORMAT",
        "Another version wrote the spool, or something else is in the folder.",
        "Use one version on both sides. `import` and `replay` want the folder of a spool, or an empty one; a server "
        "takes one that holds other things too, with a warning.",
        ("spool",),
    ),
    Trouble(
        "DSPARK_JSON_SPOOL_CORRUPT",
        "A file was changed or cut by something else than the hook, or the disk fails.",
        "`failOnDataLoss=false` goes on behind the damage and counts what is lost; look after the disk.",
        ("spool",),
    ),
    Trouble(
        "DSPARK_JSON_SPOOL_WRITE",
        "In the server's log: the file system is read-only or has less than 10 % free, whoever fills it, or the folder "
        "was removed. The server serves on.",
        "Free space, whatever fills it, lower `DSPARK_RETENTION_MB` where that is the spool, or give it a file system "
        "of its own (`DSPARK_SPOOL`); a removed folder is made anew by itself.",
        ("spool_space", "spool_losses", "shared_memory"),
    ),
    Trouble(
        "DSPARK_JSON_SPOOL_ELSEWHERE",
        "Executors run on other machines than the driver: its folder, or `localhost`, is another one there.",
        "Mount the folder on all machines, or read over HTTP from an address that all of them reach (spark.md).",
    ),
    Trouble(
        "DSPARK_JSON_SPOOL_REPLACED",
        "The container or the machine was restarted and /dev/shm is new, or somebody removed the folder.",
        "Keep the spool on a disk (`DSPARK_SPOOL`) where answers must outlive a restart.",
        ("spool",),
    ),
    Trouble(
        "DSPARK_JSON_LANE_NOT_FOUND",
        "An offset that names a lane which this spool never had.",
        "Compare `startingOffsets` with what `dspark-json tail` shows.",
    ),
    Trouble(
        "DSPARK_JSON_RECORDS_EXPIRED",
        "Retention deleted the records before they were read.",
        "Raise `DSPARK_RETENTION_MB`, read sooner, or begin later.",
        ("spool_space",),
    ),
    Trouble(
        "DSPARK_JSON_BEYOND_END",
        "An offset ahead of the lane: of another spool, or a lane that was cut after a crash of its host.",
        "Correct `startingOffsets`; with a checkpoint, `failOnDataLoss=false` once.",
    ),
    Trouble(
        "DSPARK_JSON_ENDPOINT_UNREACHABLE",
        "The server is down or still loading its model, the address or port is wrong, or a firewall is between.",
        "`curl http://HOST:PORT/health/json-schema` from the driver's machine must answer.",
        ("server",),
    ),
    Trouble(
        "DSPARK_JSON_SERVER_ENDED",
        "The server that `bench spec-sweep` or the demo started has ended: a wrong argument, no memory, no GPU.",
        "Read the log that the message names, and run the command by itself.",
    ),
    Trouble(
        "DSPARK_JSON_LISTEN",
        "The address is in use, is not one of this machine's, or needs rights that the user lacks.",
        "Choose another port, or stop what listens there (`ss -ltnp`).",
    ),
    Trouble(
        "DSPARK_JSON_ENDPOINT_ANSWER",
        "Something answers that is not the hook: a server started without it, or a proxy's page.",
        "Start the server with `--middleware dspark_json.JsonOutputHook`.",
        ("hook",),
    ),
    Trouble(
        "DSPARK_JSON_ENDPOINT_KEY",
        "The hook's key is missing or wrong. It is not the key for asking the model.",
        "Set `DSPARK_API_KEY` for the server, and the same as `vllm_api_key` (or `vllm_api_key_file`) for Spark.",
        ("key",),
    ),
    Trouble(
        "DSPARK_JSON_LOAD_BALANCER",
        "One address stands for several servers, each with a spool of its own.",
        "List the replicas themselves in `vllm_endpoint`, separated by commas.",
        ("server",),
    ),
    Trouble(
        "DSPARK_JSON_OFFSET",
        "A checkpoint of another source, or `startingOffsets` that is not what this version writes.",
        "Use a checkpoint of its own for each query; the form is in options.md.",
    ),
    Trouble(
        "DSPARK_JSON_DATA_LOSS",
        "Records that were planned are gone: retention, a restart of the container, or damage.",
        "Raise `DSPARK_RETENTION_MB` or keep the spool on a disk; `failOnDataLoss=false` goes on and counts them.",
        ("spool_space", "spool_losses"),
    ),
    Trouble(
        "DSPARK_JSON_SOURCE_ONLY",
        '`df.write.format("dspark-json")`, or `writeStream`.',
        'Write to a table: `format("delta")`; `dspark-json import` puts answers from files into a spool.',
    ),
    Trouble(
        "DSPARK_JSON_SCHEMA", "`.schema(…)` names a column or type that the rows don't have.", "`df.printSchema()`."
    ),
    Trouble(
        "DSPARK_JSON_CONTENT_SCHEMA",
        "A schema that can't be a column's type, or a name that no request has used yet.",
        "`dspark-json schema` lists the names and their types.",
        ("schemas",),
    ),
    Trouble(
        "DSPARK_JSON_SCHEMA_LOCATION",
        "The folder can't be written, or belongs to another query.",
        "One local folder for each query.",
    ),
    Trouble(
        "DSPARK_JSON_SCHEMA_CHANGED",
        "The server has seen new fields, and `schemaEvolutionMode` asks to stop then.",
        "`addNewColumns`: start the query again, it has the columns then.",
        ("schemas",),
    ),
    Trouble(
        "DSPARK_JSON_MALFORMED_RECORD",
        "`mode` is FAILFAST, and an answer is cut off, no JSON, or of another type.",
        "`dspark-json parse` says why; PERMISSIVE keeps the row, DROPMALFORMED goes on without it.",
    ),
    Trouble(
        "DSPARK_JSON_ENGINE_UNAVAILABLE",
        "`parse_mode` is `gpu-accelerated` and a check of the GPU failed, or the native module is missing.",
        "The message names the check; `dspark-json doctor --gpu` on that machine shows all. `auto` takes the CPU.",
        ("native_engine", "gpu_driver", "gpu_device", "cudf_import", "cudf_reads"),
    ),
    Trouble(
        "DSPARK_JSON_ENGINE_FAILED",
        "A batch too large for a column or for the GPU's memory, or a defect.",
        "Smaller batches (`maxBytesPerTrigger`, `minPartitions`); please report it with the record it names.",
    ),
    Trouble(
        "DSPARK_JSON_DEVICE",
        "The device ring can't be allocated or opened: no GPU, no cupy, no memory left, MIG, or other namespaces.",
        "The spool is used instead; `dspark-json doctor --gpu` says which of these it is.",
        ("gpu_device", "gpu_mig", "gpu_ipc", "pid_namespace", "container"),
    ),
    Trouble(
        "DSPARK_JSON_CONNECTOR_MISSING",
        "A checkout, or a wheel that was built without `make jar`.",
        "`make jar`, or install a wheel; without the jar the Python source reads the same, more slowly.",
        ("jar",),
    ),
    Trouble(
        "DSPARK_JSON_WORKER_START",
        "The interpreter that the connector runs is missing, or has no dspark-json.",
        "Name the right one with `spark.dspark.python`; on a cluster it must be on every machine (spark.md).",
        ("python", "spark"),
    ),
    Trouble(
        "DSPARK_JSON_WORKER_VERSION",
        "The jar and the Python package were updated apart.",
        "Install one version of both, on the executors too.",
        ("jar",),
    ),
    Trouble(
        "DSPARK_JSON_WORKER_DIED",
        "The worker process was killed each time it was started anew; mostly for memory.",
        "Give executors more memory overhead, or read less at once (`maxBytesPerTrigger`, `minPartitions`).",
    ),
    Trouble(
        "DSPARK_JSON_STREAM_UNKNOWN",
        "The worker was started anew; the connector opens its stream again by itself.",
        "Nothing, unless it fails the query: then the log says why the worker ended.",
    ),
    Trouble(
        "DSPARK_JSON_INTERNAL",
        "A fault of this package.",
        "Please report it with the traceback in the log of `dspark_json`.",
    ),
    Trouble(
        "DSPARK_JSON_DEPLOYMENT",
        "GPUStack's key may not manage models, the name is taken, or the server that it started has ended.",
        "The message has GPUStack's own words; the log of the instance there says why a server ended (deploy.md).",
    ),
    Trouble(
        "DSPARK_JSON_RECORDED_LINE",
        "A line of a file given to `import` or `replay` is of no form that is known.",
        "The message names file and line; mend or remove it, or see the command's `--help` for the forms.",
    ),
    Trouble(
        "DSPARK_JSON_MISSING_PACKAGE",
        "A command needs an extra that is not installed.",
        "The message has the `pip install` line.",
        ("python", "java", "spark", "delta"),
    ),
)

_WITH_DELTA: Final = (
    "Make the session with `configure_spark(SparkSession.builder, delta=True)`, or with Delta's own "
    "`configure_spark_with_delta_pip(builder)` (`from delta import …`), before anything else starts Spark. "
)

SPARK_TROUBLES: Final = (
    SparkTrouble(
        "`[DATA_SOURCE_NOT_FOUND] … dspark-json`",
        "Spark runs another Python than the one with this package, and the connector's jar is not on its class path.",
        "Set `PYSPARK_PYTHON` to that Python, or add the jar ([spark.md](spark.md)).",
    ),
    SparkTrouble(
        "`[DATA_SOURCE_NOT_FOUND] … delta`",
        "Delta's jar is not in the session: `pip install delta-spark` brings the Python part alone.",
        _WITH_DELTA + "In a session that runs already: `--packages io.delta:delta-spark_4.2_2.13:4.4.0` at its start.",
    ),
    SparkTrouble(
        "`DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG`",
        "Delta's jar is there, its session extension and catalog are not set.",
        _WITH_DELTA,
    ),
    SparkTrouble(
        "`… does not support MERGE INTO TABLE`",
        "The table is none of Delta's: outside of Databricks `CREATE TABLE` makes a Parquet table.",
        '`CREATE TABLE … USING delta`, `.format("delta")`.',
    ),
    SparkTrouble(
        "`DELTA_STREAMING_SCHEMA_LOCATION_…`",
        "Delta's session extension wants every option `schemaLocation` inside the checkpoint folder.",
        '`.option("schemaLocation", "…/_checkpoint/types")`.',
    ),
)

CHECKS: Final = {
    "python": "Python 3.11 or newer; the version of this package",
    "native_engine": "the Rust module loads",
    "java": "Java 17 or newer, where Spark is installed",
    "spark": "the version of PySpark that this one is made for",
    "delta": "the version of Delta Lake that goes with it",
    "jar": "the jar of the JVM connector is in this installation",
    "target": "the command line can be understood",
    "server": "somebody answers at the address",
    "hook": "it is the hook",
    "key": "the hook's key is right, where the folder can't be opened",
    "spool": "the spool's path, id, lanes and records; that it is not open to everybody",
    "spool_losses": "counters of answers that did not reach the spool: those that the server tells, else those of its "
    "files, with a warning where a living server's are old or can't be read",
    "spool_space": "free space; below 10 % every answer is dropped, and without an inode no file can be made",
    "schemas": "the answer schemas that requests asked for",
    "shared_memory": "the file system of spools, /dev/shm, has 1 GiB at least",
    "gpu_driver": "the NVIDIA driver: 535 or newer for CUDA 12, 580 for CUDA 13",
    "gpu_device": "a GPU of compute capability 7.0 or newer that this process may see",
    "gpu_mig": "the GPU is not cut into MIG instances",
    "cudf_import": "pylibcudf is installed and loads",
    "cudf_reads": "the self-test: odd and plain records give the rows of the native engine",
    "gpu_ipc": "a second process opens a ring in the GPU's memory",
    "mps": "CUDA's multi-process service runs, so that `gpuShare` holds",
    "pid_namespace": "the writers of device rings are processes of the same PID namespace",
    "container": "what `--gpus`, `--ipc` and `--pid` of a container leave visible",
}
