"""Many candidates from a file or a folder, judged once each, into a folder that survives being killed.

`read_items` reads what is to be judged and names what cannot be; `judge_all` has an executor judge it, and `Results` is
where each verdict is on disk before it counts. `dojo evaluate` is these three with a progress bar.
"""

from kerneldojo.evaluate.items import BadEntry, Item, read_items
from kerneldojo.evaluate.results import Record, Results, Settings, read_records
from kerneldojo.evaluate.running import judge_all, settle_device
from kerneldojo.evaluate.summary import Summary, summarise
from kerneldojo.evaluate.table import can_write_table, write_table

__all__ = [
    "BadEntry",
    "Item",
    "Record",
    "Results",
    "Settings",
    "Summary",
    "can_write_table",
    "judge_all",
    "read_items",
    "read_records",
    "settle_device",
    "summarise",
    "write_table",
]
