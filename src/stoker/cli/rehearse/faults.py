"""`stoker rehearse faults`: what can go wrong on command, and what a platform should do about it."""

from stoker.cli import output


def faults() -> None:
    """List the faults of the rehearsal engine: the members of a fault file, and what each asks of a platform."""
    from stoker.rehearse.faults import FAULTS

    output.table(
        ("FAULT", "IN THE FILE", "WHAT A PLATFORM SHOULD DO"), [(each.name, each.members, each.duty) for each in FAULTS]
    )
