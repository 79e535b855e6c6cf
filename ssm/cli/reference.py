"""`ssm reference`: the committed reference results, and the pages that are written from them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssm.cli import add_config, add_results, path, reference_of

HELP = "take finished figures as the committed reference results"
EPILOG = """\
For every finished figure of RESULTS, the command writes its picture, and a
file with one line for each claim, into the folder --out. The reference of an
unfinished figure stays as it was. If a result of a figure is out of date, the
command says so, and the exit code is 2.

Then, and also without RESULTS, it writes parts of three files from all
reference results, those of other scales beside --out included. The table in
README.md counts the statements by verdict, each at the largest scale at which
it was judged. The table in the README.md next to --out lists every statement at
every scale. docs/findings.md has the sentences of synthesis.yaml in the config
folder. A sentence needs certain verdicts of registered claims. If they differ,
the page says that it is not supported, and the exit code is 2.

Use --wording after you reworded statements in figure files. It needs no
results, and changes no number and no verdict. A figure whose file has other
claims than its reference keeps its statements, and the exit code is 2.

examples:
  ssm reference results/smoke  take the finished figures, and write all files
  ssm reference --wording      take the statements of config/figures again
  ssm reference --check        write nothing; is every file up to date?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser, nargs="?")
    parser.add_argument(
        "--out",
        type=path,
        metavar="DIR",
        help="the folder of reference results (default: reports/NAME, with the name of RESULTS; else reports/smoke)",
    )
    parser.add_argument(
        "--readme",
        type=path,
        default=Path("README.md"),
        metavar="FILE",
        help="the project's README (default: README.md)",
    )
    add_config(parser)
    parser.add_argument("--wording", action="store_true", help="take the statements from the figure files again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 2 if a file is out of date")


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import ConfigError
    from ssm.base.files import write_text
    from ssm.claims.preregistration import read_preregistrations
    from ssm.claims.synthesis import read_synthesis
    from ssm.report.findings import unsupported_in
    from ssm.report.reference import write_reference
    from ssm.report.verdict_tables import written_pages

    if bool(args.results) + args.wording + args.check > 1:
        raise ConfigError("give only one of RESULTS, --wording and --check")
    synthesis = read_synthesis(args.config)
    out = args.out or reference_of(args.results or Path("smoke"))
    problems: list[str] = []
    if args.results:
        targets, problems = write_reference(args.results, out)
        print(f"wrote {out}: {', '.join(targets)}")
    if args.wording:
        targets, problems = _reword(out, args.config)
        print(f"{out}: new wording in {', '.join(targets) or 'no file'}")
    pages = written_pages(out, args.readme, read_preregistrations(args.config), synthesis)
    for file, (before, text) in pages.items():
        if text == before:
            continue
        if args.check:
            problems.append(f"{file}: does not agree with {out}; `ssm reference` writes it")
        else:
            write_text(file, text)
            print(f"wrote {file}")
    if synthesis is not None:
        problems += unsupported_in(synthesis, out)
    if args.check and not problems:
        print(f"{', '.join(map(str, pages))}: all agree with the reference results")
    for problem in problems:
        print(f"ssm reference: {problem}", file=sys.stderr)
    return 2 if problems else 0


def _reword(folder: Path, config: Path) -> tuple[list[str], list[str]]:
    """Rewrite the statements of all references from the figure files.

    Returns:
        The targets whose file changed, and why others keep theirs: their figure file has other claims.
    """
    from ssm.base.errors import ConfigError
    from ssm.plan.library import load_config
    from ssm.plan.plan import make_plan
    from ssm.report.reference import read_references, reworded, save_reference

    changed: list[str] = []
    problems: list[str] = []
    references = read_references(folder)
    for scale in sorted({reference.scale for reference in references.values()}):
        targets = [target for target, reference in references.items() if reference.scale == scale]
        plan = make_plan(load_config(config, scale, targets, {"dry_run": None}))
        for target in targets:
            try:
                new = reworded(references[target], plan.figures[target])
            except ConfigError as error:
                problems.append(str(error))
                continue
            if new != references[target]:
                save_reference(new, folder)
                changed.append(target)
    return changed, problems
