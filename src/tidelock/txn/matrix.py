"""The conflict matrix as a page of the documentation. Pure."""

from __future__ import annotations

from typing import Final

from tidelock.txn.conflict import RULES, Then, rules_for
from tidelock.txn.footprint import Deed

_HEAD: Final = """# Which commits get in each other's way

Generated from the rules in the code by `make docs`. A row is the operation that wants to commit, a
column one that was committed since the row's writer read the table. An empty cell: nothing is
looked at, both stand. Otherwise the cell names what is looked for; nothing found, and both stand.

"""

_THEN: Final = {
    Then.REBASE: "the file groups are written again on top of the other commit",
    Then.RERUN: "the statement runs again on the table as it is",
    Then.REPLAN: "the list of replaced file groups is made again; the data stands",
    Then.YIELD: "the table service gives way",
    Then.REFUSE: "refused",
}


def matrix_page() -> str:
    """Return the matrix and what its words mean."""
    deeds = tuple(Deed)
    lines = [_HEAD]
    lines.append("| commits \\ committed | " + " | ".join(deeds) + " |\n")
    lines.append("|---" * (len(deeds) + 1) + "|\n")
    for mine in deeds:
        cells = (" ".join(f"`{rule.word}`" for rule in rules_for(mine, other)) for other in deeds)
        lines.append(f"| {mine} | " + " | ".join(cells) + " |\n")
    lines.append("\n| word | what is looked for | what follows |\n|---|---|---|\n")
    lines += [f"| `{rule.word}` | {rule.sentence} | {_THEN[rule.then]} |\n" for rule in RULES]
    lines.append(
        "\nWhere `key` finds that both inserted rows into one partition and the ledger does not"
        " name the keys, they are compared in the files, and only a common one leads to a rebase.\n"
    )
    return "".join(lines)
