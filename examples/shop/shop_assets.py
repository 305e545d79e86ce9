"""A small shop: orders and customers by day, cleaned, then summed up by week and by region.

The functions invent what a real shop would read, so that the example runs anywhere and always does
the same. They do not read each other's results yet: passing data on is *planned*.
"""

import random

from servo import asset
from servo.types import DailyPartition, LastN, StaticPartition, WeeklyPartition

days = DailyPartition("date", start="2024-01-01")
weeks = WeeklyPartition("week", start="2024-01-01")
regions = StaticPartition("region", ["eu", "us", "apac"])

Order = tuple[int, int, float]
"""Number, customer and amount."""


def invent(count: int) -> list[Order]:
    """The same orders each time; every tenth is there twice, as exports do."""
    chance = random.Random(count)
    orders = [(n, chance.randrange(200), chance.uniform(5, 250)) for n in range(count)]
    return orders + orders[::10]


def clean(orders: list[Order]) -> list[Order]:
    return sorted(set(orders))


@asset(namespace="raw", partitions=days, tags={"tier": "bronze"})
def orders() -> int:
    """Orders as the shop's system exports them, one file a day."""
    return len(invent(2_000))


@asset(namespace="raw", tags={"tier": "bronze"})
def customers() -> int:
    """All customers, as they are now."""
    return len({customer for _, customer, _ in invent(2_000)})


@asset(deps=["raw.orders"], partitions=days, tags={"tier": "silver"})
def clean_orders() -> int:
    """Orders without duplicates and test purchases."""
    return len(clean(invent(2_000)))


@asset(
    deps=[clean_orders, "raw.customers"],
    partitions=[days, regions],
    owners=["sales@example.com"],
    tags={"tier": "gold"},
)
def daily_revenue() -> float:
    """Revenue of a day in a region."""
    return sum(amount for _, _, amount in clean(invent(700)))


@asset(deps={clean_orders: LastN(7)}, partitions=days, tags={"tier": "gold"})
def returning_customers() -> int:
    """Customers of a day who also bought in the week before."""
    today, before = (
        {customer for _, customer, _ in clean(invent(count))} for count in (500, 3_500)
    )
    return len(today & before)


@asset(deps=[daily_revenue], partitions=weeks, owners=["sales@example.com"], tags={"tier": "gold"})
def weekly_revenue() -> float:
    """Revenue of a week, all regions together."""
    return sum(amount for _, _, amount in clean(invent(5_000)))
