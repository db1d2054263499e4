"""Tables whose files Java readers list from Hudi's metadata table.

A commit that does not update it is invisible to them. Writing it is not supported, so such a table
is refused, or its metadata table is disabled the way a Java writer does that has it switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelock.base.errors import Unsupported
from tidelock.store.contract import ObjectStore
from tidelock.store.readback import Patience
from tidelock.table.properties import METADATA_INFLIGHT, METADATA_PARTITIONS, TableProperties
from tidelock.table.properties_file import update_properties
from tidelock.txn.config import METADATA_POLICY, MetadataPolicy

if TYPE_CHECKING:
    from tidelock.txn.transactions import Transactions

METADATA_FOLDER: Final = ".hoodie/metadata/"


def check_metadata_table(home: Transactions) -> TableProperties:
    """Return the table's properties, without a metadata table.

    Raises: `Unsupported` if it has one and is not to be changed.
    """
    check_not_refused(home)
    if not home.properties.has_metadata_table:
        return home.properties
    return disable_metadata_table(home.store, Patience(clock=home.clock, ids=home.ids))


def check_not_refused(home: Transactions) -> None:
    """Raise `Unsupported` if the table has a metadata table that is not to be disabled."""
    properties = home.properties
    refuses = home.settings.metadata_policy is MetadataPolicy.REFUSE
    if properties.has_metadata_table and refuses:
        raise Unsupported(
            f"{home.store.uri} has a metadata table ({METADATA_PARTITIONS} ="
            f" {','.join(properties.metadata_partitions)}), which is not updated here, so Java"
            " readers would not see this write",
            hint=f"set {METADATA_POLICY.key}=disable to remove it: readers then list the files",
        )


def disable_metadata_table(store: ObjectStore, patience: Patience) -> TableProperties:
    """Tell readers to list files themselves, and then delete the metadata table."""
    # The properties come first: a reader in between must not look for what is half deleted.
    changes: dict[str, str | None] = {METADATA_PARTITIONS: None, METADATA_INFLIGHT: None}
    properties = update_properties(store, changes, patience=patience)
    for meta in tuple(store.list(METADATA_FOLDER)):
        store.delete(meta.key)
    return properties
