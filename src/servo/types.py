"""Partitions, mappings and policies: the public names for what an asset's declaration is made of."""

from servo.core.mappings import (
    AllPartitions,
    Dimensions,
    Follow,
    Identity,
    LatestPartition,
    TimeWindow,
)
from servo.core.policies import GatingPolicy, Resources, RetryPolicy, Severity, Timeouts
from servo.sdk.mappings import LastN, SpecificPartitions, StaticMap
from servo.sdk.partitions import (
    DailyPartition,
    DynamicPartition,
    HourlyPartition,
    MonthlyPartition,
    StaticPartition,
    TenantPartition,
    TimePartition,
    WeeklyPartition,
)

__all__ = (
    "AllPartitions",
    "DailyPartition",
    "Dimensions",
    "DynamicPartition",
    "Follow",
    "GatingPolicy",
    "HourlyPartition",
    "Identity",
    "LastN",
    "LatestPartition",
    "MonthlyPartition",
    "Resources",
    "RetryPolicy",
    "Severity",
    "SpecificPartitions",
    "StaticMap",
    "StaticPartition",
    "TenantPartition",
    "TimePartition",
    "TimeWindow",
    "Timeouts",
    "WeeklyPartition",
)
