# Databricks notebook source
# MAGIC %md
# MAGIC # Quick start
# MAGIC
# MAGIC A vLLM server with the hook answers requests; Spark has each answer as a typed row. On the way: a batch read,
# MAGIC typed JSON, a stream into a Delta table, and what the answers took.
# MAGIC
# MAGIC Set `VLLM_ENDPOINT` and `DSPARK_API_KEY` (the hook's key) to read from a server of yours. Without them the
# MAGIC notebook starts a small one that replays recorded answers of a real vLLM; the model behind those was tiny and
# MAGIC random, hence the odd words. On Databricks that one wants a single-node cluster, with the package and the
# MAGIC connector's jar as libraries.

# COMMAND ----------

import os
import secrets
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import matplotlib.pyplot as plt

from dspark_json.replay import RunningServer

folder = Path(tempfile.mkdtemp())

if "spark" not in globals():  # Databricks has one
    from pyspark.sql import SparkSession

    from dspark_json import configure_spark

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "tables"))
    spark = configure_spark(builder, delta=True).getOrCreate()
    spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")  # display() shows rows
    spark.conf.set("spark.sql.repl.eagerEval.truncate", "100")

endpoint, key = os.environ.get("VLLM_ENDPOINT"), os.environ.get("DSPARK_API_KEY", secrets.token_hex())
if endpoint is None:
    settings = {"DSPARK_SPOOL": str(folder / "spool"), "DSPARK_API_KEY": key, "DSPARK_DURABILITY": "write"}
    server = RunningServer(settings=settings, log=folder / "server.log")
    endpoint = server.address

# COMMAND ----------

# MAGIC %md
# MAGIC ## Ask
# MAGIC
# MAGIC Sixty requests, eight at a time: orders by a JSON Schema, streamed and not, and some plain chat. Nothing in
# MAGIC them is special: the hook keeps what any client is sent.

# COMMAND ----------

order = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "maxLength": 12},
        "amount": {"type": "number"},
        "paid": {"type": "boolean"},
        "currency": {"enum": ["CNY", "USD", "EUR"]},
    },
    "required": ["order_id", "amount", "paid", "currency"],
}
json_schema = {"type": "json_schema", "json_schema": {"name": "order", "schema": order}}
model = httpx.get(f"{endpoint}/v1/models", trust_env=False).json()["data"][0]["id"]


def ask(number: int) -> None:
    request = {"model": model, "messages": [{"role": "user", "content": "Give me one order."}], "max_tokens": 256}
    if number % 4:
        request |= {"response_format": json_schema, "stream": number % 4 == 1}
    httpx.post(f"{endpoint}/v1/chat/completions", json=request, timeout=120, trust_env=False).raise_for_status()


with ThreadPoolExecutor(8) as clients:
    list(clients.map(ask, range(60)))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read
# MAGIC
# MAGIC `spark.read` has what the server keeps now. The columns are declared, never inferred from the answers, so they
# MAGIC are the same tomorrow.

# COMMAND ----------

source = {"vllm_endpoint": endpoint, "vllm_api_key": key}
answers = spark.read.format("dspark-json").options(**source).load()
display(
    answers.selectExpr(
        "created",
        "_dspark.stream AS streamed",
        "left(choices[0].message.content, 60) AS content",
        "choices[0].finish_reason",
        "usage.total_tokens",
    ).limit(6)
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The JSON inside, typed
# MAGIC
# MAGIC The requests named their schema `order`, and the hook has kept it. `responseSchema` takes the answers that
# MAGIC were asked for with it, and `parsed` is a struct. `parse_status` says how each went.

# COMMAND ----------

orders = spark.read.format("dspark-json").options(**source).option("responseSchema", "order").load()
typed = orders.selectExpr("_dspark.stream AS streamed", "inline(choices)").select(
    "streamed", "parse_status", "parsed.*"
)
display(typed.orderBy("parse_status").limit(6))

# COMMAND ----------

display(typed.groupBy("streamed", "parse_status").count().orderBy("streamed", "parse_status"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Into a Delta table, each answer once
# MAGIC
# MAGIC The same source as a stream. `availableNow` reads what is there and ends; leave it out and the query goes on.
# MAGIC The checkpoint knows what has been read: a second run takes only what came since.

# COMMAND ----------

table = str(folder / "answers")


def bring_up_to_date() -> int:
    """Run the query; how many rows the table has now."""
    rows = spark.readStream.format("dspark-json").options(**source).load()
    query = rows.writeStream.format("delta").option("checkpointLocation", f"{table}_checkpoint")
    query.trigger(availableNow=True).start(table).awaitTermination()
    return spark.read.format("delta").load(table).count()


first = bring_up_to_date()
list(map(ask, range(5)))
print(f"{first} rows, five requests later {bring_up_to_date()}, and with nothing new {bring_up_to_date()}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the answers took
# MAGIC
# MAGIC `_dspark` holds what the hook saw of each response: when its first byte went out and when it was done. A
# MAGIC streamed answer shows its first byte early; one that is not streamed shows all of it at the end.

# COMMAND ----------

times = (
    spark.read.format("delta")
    .load(table)
    .selectExpr("_dspark.stream", "_dspark.first_byte_ms", "_dspark.duration_ms", "length(choices[0].message.content)")
    .collect()
)
figure, axes = plt.subplots(figsize=(8, 4))
series = (
    (False, 2, "s", "#7f8c8d", "not streamed"),
    (True, 2, "o", "#2a7f4f", "streamed: whole answer"),
    (True, 1, "^", "#d1495b", "streamed: first byte"),
)
for streamed, column, mark, colour, name in series:
    some = [row for row in times if row[0] is streamed]
    axes.scatter(
        [row[3] for row in some], [row[column] for row in some], marker=mark, color=colour, label=name, alpha=0.8
    )
axes.set(xlabel="characters of the answer", ylabel="ms", title=f"{len(times)} answers of one server")
axes.legend()
plt.show()

# COMMAND ----------

if "server" in globals():
    server.stop()
