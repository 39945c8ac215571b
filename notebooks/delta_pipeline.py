# Databricks notebook source
# MAGIC %md
# MAGIC # A Delta pipeline: answers, orders, revenue
# MAGIC
# MAGIC - **bronze**: every answer of the server, once, as the stream gives it;
# MAGIC - **silver**: orders that meet the expectations, by `MERGE` on the answers' unique key; the others in
# MAGIC   quarantine, with the reason;
# MAGIC - **gold**: revenue by day and country.
# MAGIC
# MAGIC Then one expectation turns out to be wrong, and a batch read of the server's answers fills in what it kept
# MAGIC out.
# MAGIC
# MAGIC The answers are made up (`orders.py`, beside this notebook) and go through the hook into a spool. On
# MAGIC Databricks run it on a single-node cluster with the package and the connector's jar as libraries; with a
# MAGIC server of yours the source is `.option("vllm_endpoint", …)` in place of the folder.
# MAGIC
# MAGIC The tables are in a schema of their own, `dspark_shop`. **The next cell drops the schema of that name, with
# MAGIC all of its tables**, so that the notebook can be run again: if you have such a schema, change the name first.

# COMMAND ----------

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from orders import COUNTRIES, exchanges, record
from pyspark.sql import DataFrame

folder = Path(tempfile.mkdtemp())
spool = folder / "spool"

if "spark" not in globals():  # Databricks has one
    from pyspark.sql import SparkSession

    from dspark_json import configure_spark

    builder = SparkSession.builder.master("local[2]").config("spark.sql.warehouse.dir", str(folder / "tables"))
    spark = configure_spark(builder, delta=True).getOrCreate()
    spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")  # display() shows rows
    spark.conf.set("spark.sql.repl.eagerEval.truncate", "100")

spark.sql("DROP SCHEMA IF EXISTS dspark_shop CASCADE")
spark.sql("CREATE SCHEMA dspark_shop")
spark.sql("USE dspark_shop")
record(exchanges(800), spool)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Bronze
# MAGIC
# MAGIC Everything, failed requests too, already typed: `choices[].parsed` is the struct that the requests' schema
# MAGIC `order` gives. Nothing is judged here, so nothing can be lost by a wrong rule.

# COMMAND ----------


def ingest() -> None:
    """Bring bronze up to date; the checkpoint knows what it has."""
    rows = spark.readStream.format("dspark-json").option("responseSchema", "order")
    rows = rows.option("schemaLocation", str(folder / "bronze_checkpoint" / "types")).load(str(spool))
    query = rows.writeStream.format("delta").option("checkpointLocation", str(folder / "bronze_checkpoint"))
    query.trigger(availableNow=True).toTable("bronze_answers").awaitTermination()


ingest()
display(
    spark.sql("""
        SELECT parse_status, count_if(model = 'shop-8b') AS shop_8b, count_if(model = 'shop-1b') AS shop_1b
        FROM (SELECT explode(choices.parse_status) AS parse_status, model FROM bronze_answers)
        GROUP BY parse_status ORDER BY shop_8b DESC, shop_1b DESC""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Expectations
# MAGIC
# MAGIC SQL conditions by name, as in Lakeflow (Delta Live Tables) `expect_all_or_drop`; here in plain Spark, so that
# MAGIC what fails is kept beside its reasons.

# COMMAND ----------

expectations = {
    "has_value": "parse_status NOT IN ('truncated', 'invalid', 'empty', 'missing')",
    "has_order_id": "order_id <> ''",
    "positive_amount": "amount > 0",
    "known_currency": "currency IN ('EUR', 'USD')",
}
KEY = ("spool_id", "lane", "seq", "choice")


def checked(answers: DataFrame) -> DataFrame:
    """One row a choice: key, order, and the names of the expectations that it does not meet."""
    choices = answers.where("error IS NULL").selectExpr("_dspark.*", "created", "model AS asked", "inline(choices)")
    orders = choices.selectExpr(
        "spool_id", "lane", "seq", "index AS choice", "created", "asked", "parse_status", "parsed.*"
    )
    # A condition that is null is not met either.
    failed = ", ".join(f"IF(coalesce({rule}, false), null, '{name}')" for name, rule in expectations.items())
    return orders.selectExpr("*", f"array_compact(array({failed})) AS failed")


def merge(orders: DataFrame) -> None:
    """Put orders into silver or quarantine, each once, whatever was there of them before."""
    session = orders.sparkSession
    orders.createOrReplaceTempView("checked_orders")
    for table, wanted in (("silver_orders", "size(failed) = 0"), ("quarantine", "size(failed) > 0")):
        session.sql(f"CREATE TABLE IF NOT EXISTS {table} USING delta AS SELECT * FROM checked_orders WHERE false")
        session.sql(f"""
            MERGE INTO {table} AS t USING checked_orders AS n ON {" AND ".join(f"t.{k} = n.{k}" for k in KEY)}
            WHEN MATCHED AND NOT ({wanted.replace("failed", "n.failed")}) THEN DELETE
            WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED AND {wanted.replace("failed", "n.failed")} THEN INSERT *""")


def refine() -> None:
    """Bring silver and quarantine up to date with bronze."""
    query = spark.readStream.table("bronze_answers").writeStream.foreachBatch(lambda rows, _: merge(checked(rows)))
    query = query.option("checkpointLocation", str(folder / "silver_checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


refine()

# COMMAND ----------

# MAGIC %md
# MAGIC How many orders meet each expectation, by model. Of what has no value, only that is counted.

# COMMAND ----------

display(
    spark.sql("""
        SELECT expectation, count_if(asked = 'shop-8b') AS shop_8b, count_if(asked = 'shop-1b') AS shop_1b
        FROM (SELECT asked, explode(IF(array_contains(failed, 'has_value'), array('has_value'), failed)) AS expectation
              FROM quarantine)
        GROUP BY expectation ORDER BY expectation""")
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Gold, and more answers
# MAGIC
# MAGIC More answers come, and the same three steps take up only those.

# COMMAND ----------


def publish() -> None:
    """Make gold anew from silver."""
    spark.sql("""
        CREATE OR REPLACE TABLE gold_revenue USING delta AS
        SELECT date(created) AS day, country, currency, count(*) AS orders, round(sum(amount), 2) AS revenue
        FROM silver_orders GROUP BY ALL""")


record(exchanges(400, first=800), spool)
ingest()
refine()
publish()
sizes = {name: spark.table(name).count() for name in ("bronze_answers", "silver_orders", "quarantine")}
print(sizes)
display(spark.table("gold_revenue").orderBy("day", "country"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## A rule was wrong: back-fill
# MAGIC
# MAGIC No orders from Switzerland: the shop sells there in CHF, and nobody told the expectation. The streams have
# MAGIC gone on, so changing the rule mends only what is to come. A batch read of the answers that the server still
# MAGIC keeps goes through the same `merge`: what is there by its key stays, what was kept out moves over. (What
# MAGIC retention has deleted at the server is still in bronze: `spark.table("bronze_answers")` serves as well.)

# COMMAND ----------

old_gold = spark.table("gold_revenue").collect()
expectations["known_currency"] = "currency IN ('EUR', 'USD', 'CHF')"


def backfill() -> None:
    """Judge all that the server keeps once more."""
    answers = spark.read.format("dspark-json").option("responseSchema", "order").load(str(spool))
    merge(checked(answers))


for attempt in ("back-fill", "the same again"):
    backfill()
    now = {name: spark.table(name).count() for name in ("silver_orders", "quarantine")}
    print(f"{attempt}: silver {sizes['silver_orders']} → {now['silver_orders']}, quarantine {now['quarantine']}")
    sizes |= now

keys = spark.table("silver_orders").select(*KEY)
print(f"orders in silver twice: {keys.count() - keys.distinct().count()}")

# COMMAND ----------

publish()
new_gold = spark.table("gold_revenue").collect()
figure, axes = plt.subplots(figsize=(8, 3.2))
for rows, shift, name in ((old_gold, -0.2, "before the back-fill"), (new_gold, 0.2, "after it")):
    orders = [sum(row["orders"] for row in rows if row["country"] == country) for country in COUNTRIES]
    bars = axes.bar([place + shift for place in range(len(COUNTRIES))], orders, 0.4, label=name)
    axes.bar_label(bars)
axes.set_xticks(range(len(COUNTRIES)), list(COUNTRIES))
axes.margins(y=0.12)
axes.set(ylabel="orders in gold", title="What the wrong expectation kept out")
axes.legend()
plt.show()
