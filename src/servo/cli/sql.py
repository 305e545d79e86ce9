"""`servo sql`: questions to the tables, in SQL. It only reads."""

import asyncio
import sys

import click

from servo.cli.asking import check_text, project_option
from servo.cli.output import output_option, print_rows, say, table
from servo.cli.reading import look, say_as_of, say_newer
from servo.errors import Invalid
from servo.fold.tables import TABLES
from servo.ledger.snapshot import Result


@click.command("sql")
@click.argument("query", required=False)
@output_option
@click.option("--tables", is_flag=True, help="List the tables, their columns and what they mean.")
@project_option
def command(query: str | None, form: str, tables: bool, project: str) -> None:
    """Ask the tables of the state in SQL, as DuckDB speaks it. QUERY is one SELECT; - reads it from
    standard input.

    The answer is as of the newest revision. Nothing can be changed this way.
    """
    if tables:
        _list_tables(form)
        return
    if query is None:
        raise click.UsageError("there is no query; write one, or list the tables with --tables")
    if query == "-":
        query = sys.stdin.read()
    check_text(query)
    result = asyncio.run(_ask(project, query))
    print_rows(form, result.columns, result.rows)


async def _ask(project: str, query: str) -> Result:
    seen = await look(project)
    if not seen.snapshot.revision:
        say_as_of(seen)
    else:
        say_newer(seen)
    try:
        return await seen.snapshot.sql(query)
    except Invalid as error:
        raise Invalid(f"{error}{_hint(error)}") from None


def _hint(error: Invalid) -> str:
    """What DuckDB said below its first line, if it names candidates or the like. What shows the place
    in the query is left out: it is of a query that DuckDB has rewritten."""
    if not str(error).startswith("the query cannot be answered"):
        return ""
    lines = str(error.__context__ or "").strip().splitlines()[1:]
    told = [line.strip() for line in lines]
    kept = [line for line in told if line.strip("^~") and not line.startswith("LINE ")]
    return f"; {' '.join(kept)}" if kept else ""


def _list_tables(form: str) -> None:
    columns = ["table", "column", "type", "null", "meaning"]
    if form != "table":
        rows = [
            (each.name, column.name, column.kind.value, column.nullable, column.about)
            for each in TABLES
            for column in each.columns
        ]
        print_rows(form, columns, rows)
        return
    for number, each in enumerate(TABLES):
        key = f"  key: {', '.join(each.key)}"
        say(("\n" if number else "") + click.style(each.name, bold=True) + f"  {each.about}{key}")
        listed = [
            (f"  {c.name}", c.kind.value + (" or null" if c.nullable else ""), c.about)
            for c in each.columns
        ]
        say(table(["  column", "type", "meaning"], listed))
