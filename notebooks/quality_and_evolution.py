# Databricks notebook source
# MAGIC %md
# MAGIC # Quality, and schemas that change
# MAGIC
# MAGIC How well do two models keep to a schema, what is wrong where they don't, and what happens when the schema
# MAGIC grows while a stream is running?
# MAGIC
# MAGIC The answers are made up (`orders.py`, beside this notebook), with the faults that models make; they go through
# MAGIC the hook, so what Spark reads is what a server would have kept. `shop-8b` is held to its schema by the server,
# MAGIC `shop-1b` was asked for JSON and left alone.

# COMMAND ----------

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from orders import MODELS, exchanges, record

folder = Path(tempfile.mkdtemp())
spool = folder / "spool"

if "spark" not in globals():  # Databricks has one
    from pyspark.sql import SparkSession

    from dspark_json import configure_spark

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "tables"))
    spark = configure_spark(builder, delta=True).getOrCreate()
    spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")  # display() shows rows
    spark.conf.set("spark.sql.repl.eagerEval.truncate", "100")

record(exchanges(1000), spool)
answers = spark.read.format("dspark-json").option("responseSchema", "order").load(str(spool))
choices = answers.where("error IS NULL").selectExpr("model", "_rescued_data", "inline(choices)").cache()

# COMMAND ----------

# MAGIC %md
# MAGIC ## How each answer went
# MAGIC
# MAGIC `parse_status` is `ok`, names what was repaired (the value is there), or says why there is none. One content
# MAGIC of each kind:

# COMMAND ----------

display(
    choices.groupBy("parse_status")
    .agg({"*": "count", "message.content": "max"})
    .selectExpr("parse_status", "`count(1)` AS answers", "left(`max(message.content AS content)`, 70) AS one_of_them")
    .orderBy("answers", ascending=False)
)

# COMMAND ----------

counts = {(row[0], row[1]): row[2] for row in choices.groupBy("model", "parse_status").count().collect()}
totals = {model: sum(count for (of, _), count in counts.items() if of == model) for model in MODELS}
statuses = ["ok", "fenced", "leading_text", "trailing_text", "mismatch", "truncated", "invalid"]
colours = ["#2a7f4f", "#7fb77e", "#a9d18e", "#c9e4b4", "#f2c14e", "#d1495b", "#8d0801"]

figure, axes = plt.subplots(figsize=(8, 2.6))
left = dict.fromkeys(MODELS, 0.0)
for status, colour in zip(statuses, colours, strict=True):
    shares = [100 * counts.get((model, status), 0) / totals[model] for model in MODELS]
    axes.barh(MODELS, shares, left=list(left.values()), color=colour, label=status)
    left = {model: left[model] + share for model, share in zip(MODELS, shares, strict=True)}
axes.set(xlabel="% of the model's answers", title="green: a whole value, yellow: single fields are null, red: none")
axes.legend(ncols=4, bbox_to_anchor=(0.5, -0.3), loc="upper center")
plt.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the repairs are worth
# MAGIC
# MAGIC Fences, thinking and text after the value are taken off before an answer is called bad. `contentRepair=strict`
# MAGIC does without; the difference is answers that a plain `from_json` would have lost.

# COMMAND ----------

strict = (
    spark.read.format("dspark-json")
    .options(responseSchema="order", contentRepair="strict")
    .load(str(spool))
    .where("error IS NULL")
    .selectExpr("model", "inline(choices)")
)
shares = [frame.groupBy("model").agg({"parsed": "count", "*": "count"}) for frame in (choices, strict)]
repaired, plain = ({row["model"]: 100 * row["count(parsed)"] / row["count(1)"] for row in f.collect()} for f in shares)
for model in MODELS:
    print(f"{model}: {plain[model]:.1f} % of the answers are usable as they are, {repaired[model]:.1f} % with repairs")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What does not fit is kept, not guessed
# MAGIC
# MAGIC A value of another type than its column is null there, and stands as it was written in `_rescued_data`; so do
# MAGIC fields that the schema does not have. Grouped by path that is a list of what to fix in prompt or schema.

# COMMAND ----------

rescued = choices.where("_rescued_data IS NOT NULL").selectExpr(
    "model", "parse_status", "explode(from_json(_rescued_data, 'map<string,string>')) AS (path, value)"
)
display(
    rescued.groupBy("path", "parse_status")
    .agg({"*": "count", "value": "min"})
    .selectExpr("path", "parse_status", "`count(1)` AS answers", "`min(value)` AS one_of_them")
    .orderBy("answers", ascending=False)
)

# COMMAND ----------

# MAGIC %md
# MAGIC Requests that failed are rows too, with `error` set:

# COMMAND ----------

display(answers.where("error IS NOT NULL").groupBy("_dspark.model", "error.message").count())

# COMMAND ----------

# MAGIC %md
# MAGIC ## The schema grows
# MAGIC
# MAGIC A stream writes typed orders to a Delta table. `schemaLocation` keeps its types; `addNewColumns` says that it
# MAGIC wants new ones.

# COMMAND ----------

table = str(folder / "typed")


def run() -> None:
    """Read what is there into the table, with the columns known when this run began."""
    rows = (
        spark.readStream.format("dspark-json")
        .options(responseSchema="order", schemaEvolutionMode="addNewColumns")
        .option("schemaLocation", f"{table}_checkpoint/types")
        .load(str(spool))
    )
    typed = rows.selectExpr("id", "created", "inline(choices)").select("id", "created", "parse_status", "parsed.*")
    query = typed.writeStream.format("delta").option("checkpointLocation", f"{table}_checkpoint")
    query.option("mergeSchema", "true").trigger(availableNow=True).start(table).awaitTermination()


run()
before = spark.read.format("delta").load(table)
print(f"{before.count()} rows with the columns {', '.join(before.columns)}")

# COMMAND ----------

# MAGIC %md
# MAGIC Now the application is released again, and its requests ask for two more fields, `discount` and `channel`. The
# MAGIC stream ends before the first answer of the new form, so that no row is written without the columns:

# COMMAND ----------

record(exchanges(600, version=2, first=1000), spool)
try:
    run()
except Exception as error:
    reason = str(error)
    print(reason[reason.index("DSPARK_JSON_") :].splitlines()[0].partition(". ")[0])

# COMMAND ----------

# MAGIC %md
# MAGIC Started again, as a job with retries does by itself, it has them. (The default, `rescue`, would have gone on
# MAGIC with the old columns, and the new fields in `_rescued_data`.)

# COMMAND ----------

run()
after = spark.read.format("delta").load(table)
print(f"{after.count()} rows, none twice: {after.count() == after.select('id').distinct().count()}")
print(f"new columns: {', '.join(name for name in after.columns if name not in before.columns)}")

# COMMAND ----------

parts = after.where("discount IS NOT NULL").groupBy("channel", "discount").count().orderBy("channel", "discount")
bars = [(row[0], f"{row[1]:.0%}", row[2]) for row in parts.collect()]
figure, axes = plt.subplots(figsize=(8, 3))
for channel, shift in (("app", -0.2), ("web", 0.2)):
    some = [(discount, count) for of, discount, count in bars if of == channel]
    axes.bar([place + shift for place in range(len(some))], [count for _, count in some], 0.4, label=channel)
axes.set_xticks(range(len(some)), [discount for discount, _ in some])
axes.set(xlabel="discount", ylabel="orders", title="The new columns, in the table that was there")
axes.legend()
plt.show()
