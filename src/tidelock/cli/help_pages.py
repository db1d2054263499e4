"""The layout of `--help`: arguments are named once, and commands are listed in sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

# `Any` stands for the context and formatter of click: some releases of typer contain a click of
# their own, without public names.


class HelpCommand(TyperCommand):
    """A command whose help shows an argument by its metavar only, not by its type as well."""

    def collect_usage_pieces(self, _ctx: Any) -> list[str]:
        """Return the parts of the usage line."""
        arguments = [usage(param) for param in self.params if is_argument(param)]
        return [self.options_metavar or "", *arguments]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        arguments: list[tuple[str, str]] = []
        options: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if is_argument(param):
                arguments.append((str(param.metavar), record[1]))
            else:
                options.append(record)
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class HelpGroup(TyperGroup):
    """A group whose help lists its commands in sections."""

    sections: ClassVar[Mapping[str, Sequence[str]]]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each section, in the same columns."""
        del ctx
        width = max(map(len, self.commands))
        for title, names in self.sections.items():
            rows = [
                (f"{name:{width}}", self.commands[name].get_short_help_str(formatter.width))
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


def is_argument(param: Any) -> bool:
    """Return whether a parameter of a command is an argument."""
    return str(param.param_type_name) == "argument"


def usage(param: Any) -> str:
    """Return an argument as the usage line shows it: `[INSTANT]` if it is optional."""
    name = str(param.metavar)
    if not param.required:
        return f"[{name}]"
    return f"{{{name}}}" if "|" in name else name
