"""`gitmem maintain` and `doctor`."""

from __future__ import annotations

import click

from gitmem.cli import run


@run.command("maintain")
def maintain_command() -> None:
    """Pack closed epochs and refs. Safe at any time, and twice at once."""
    from gitmem.maintain import maintain

    with run.open_home() as home, run.progress("Packing") as progress:
        personas = home.personas()
        done = []
        for number, persona in enumerate(personas):
            progress(number, len(personas))
            done.append(maintain(home.persona(persona)))
    value = {"entries": [each.as_dict() for each in done], "next": None}

    def text() -> None:
        for each in done:
            if each.waiting:
                run.say(f"{each.persona}: left alone while {each.waiting} is running")
            else:
                packed = f"{each.epochs} epochs into {each.packs} packs"
                run.say(f"{each.persona}: {packed}, {each.swept} leavings swept")

    run.answer(value, text)


@run.command("doctor")
@click.option("--fix", is_flag=True, help="Repair what is safe to repair.")
@click.option("--loop", is_flag=True, help="Also write, archive, remember and release in a scratch persona.")
def doctor_command(fix: bool, loop: bool) -> None:
    """Check every repository of the home. Exit code 5 where something is wrong."""
    from gitmem import doctor, sync

    with run.open_home() as home:
        findings = doctor.check_home(home, fix=fix)
        steps = doctor.prove_loop(home) if loop else []
        readable = not any(f.check in ("home", "git") for f in findings)
        count = len(home.personas()) if not any(f.check == "home" for f in findings) else 0
        waiting = [each for each in sync.status(home) if each.commits] if readable else []
    fine = all(f.fixed for f in findings) and all(ok for _, ok in steps)
    value = {
        "ok": fine,
        "personas": count,
        "findings": [finding.as_dict() for finding in findings],
        "loop": [{"step": step, "ok": ok} for step, ok in steps],
        "waiting": [each.as_dict() for each in waiting],
    }

    def text() -> None:
        for finding in findings:
            run.say(f"{'fixed' if finding.fixed else 'wrong'}: {finding.where}: {finding.what}")
            if finding.remedy and not finding.fixed:
                run.say(f"  {finding.remedy}")
        for step, ok in steps:
            run.say(f"{'ok' if ok else 'FAILED'}: {step}")
        for each in waiting:
            run.say(f"waiting: {each.persona}: {each.commits} commits for {each.remote} (gitmem sync)")
        run.say(f"{count} personas checked: {'all is well' if fine else 'something is wrong'}.")

    run.answer(value, text)
    if not fine:
        click.get_current_context().exit(5)
