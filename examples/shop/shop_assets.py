"""A small shop: orders and customers by day, cleaned, then summed up by week and by region."""

from servo import asset
from servo.types import DailyPartition, LastN, StaticPartition, WeeklyPartition

days = DailyPartition("date", start="2024-01-01")
weeks = WeeklyPartition("week", start="2024-01-01")
regions = StaticPartition("region", ["eu", "us", "apac"])


@asset(namespace="raw", partitions=days, tags={"tier": "bronze"})
def orders() -> None:
    """Orders as the shop's system exports them, one file a day."""


@asset(namespace="raw", tags={"tier": "bronze"})
def customers() -> None:
    """All customers, as they are now."""


@asset(deps=["raw.orders"], partitions=days, tags={"tier": "silver"})
def clean_orders() -> None:
    """Orders without duplicates and test purchases."""


@asset(
    deps=[clean_orders, "raw.customers"],
    partitions=[days, regions],
    owners=["sales@example.com"],
    tags={"tier": "gold"},
)
def daily_revenue() -> None:
    """Revenue of a day in a region."""


@asset(deps={clean_orders: LastN(7)}, partitions=days, tags={"tier": "gold"})
def returning_customers() -> None:
    """Customers of a day who also bought in the week before."""


@asset(deps=[daily_revenue], partitions=weeks, owners=["sales@example.com"], tags={"tier": "gold"})
def weekly_revenue() -> None:
    """Revenue of a week, all regions together."""
