"""`ssm reference`: the committed reference results, and their tables in two README files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ssm.cli import path

HELP = "take finished figures as the committed reference results, or check the tables in README files"
EPILOG = """\
Reads a results folder. For every finished figure, it writes the picture and a JSON file into the folder of reference
results. The JSON file has one line for each claim. Figures that are not finished keep their reference.

Then it writes two tables of all reference results, also without RESULTS. README.md shows how many statements held. The
README.md next to the folder of reference results lists every verdict.

Use --wording after you reworded statements in figure files. It needs no results, and changes no number and no verdict.

examples:
  ssm reference results/smoke    the finished figures of results/smoke into reports/smoke, and both tables
  ssm reference --wording        the statements of config/figures into reports/smoke, and both tables
  ssm reference --check          writes nothing: do the tables agree with the reference results?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="?", type=path, metavar="RESULTS", help="a scale's results (default: none)")
    parser.add_argument(
        "--out", type=path, default=Path("reports/smoke"), metavar="DIR", help="the folder (default: reports/smoke)"
    )
    parser.add_argument(
        "--readme", type=path, default=Path("README.md"), metavar="FILE", help="the project's (default: README.md)"
    )
    parser.add_argument(
        "--config", type=path, default=Path("config"), metavar="DIR", help="for --wording (default: config)"
    )
    parser.add_argument("--wording", action="store_true", help="take the statements from the figure files again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 2 if a table is out of date")


def run(args: argparse.Namespace) -> int:
    from ssm.base.errors import ConfigError
    from ssm.base.files import write_text
    from ssm.report.reference import write_reference
    from ssm.report.verdict_tables import readmes

    if bool(args.results) + args.wording + args.check > 1:
        raise ConfigError("give only one of RESULTS, --wording and --check")
    if args.results:
        targets = write_reference(args.results, args.out)
        print(f"wrote {args.out}: {', '.join(targets)}")
    if args.wording:
        targets = _reword(args.out, args.config)
        print(f"{args.out}: new wording in {', '.join(targets) or 'no file'}")
    stale = {file: text for file, (before, text) in readmes(args.out, args.readme).items() if text != before}
    for file, text in stale.items():
        if args.check:
            problem = f"{file}: its table does not agree with {args.out}; `ssm reference` writes it"
            print(f"ssm reference: {problem}", file=sys.stderr)
        else:
            write_text(file, text)
            print(f"wrote the table in {file}")
    if args.check and not stale:
        print("the tables agree with the reference results")
    return 2 if args.check and stale else 0


def _reword(folder: Path, config: Path) -> list[str]:
    """Rewrite the statements of all references from the figure files.

    Returns:
        The targets whose file changed. No file changes if one of them has other claims than its figure file.
    """
    from ssm.plan.library import load_config
    from ssm.plan.plan import make_plan
    from ssm.report.reference import read_references, reworded, save_reference

    changed = []
    references = read_references(folder)
    for scale in {reference.scale for reference in references.values()}:
        targets = [target for target, reference in references.items() if reference.scale == scale]
        plan = make_plan(load_config(config, scale, targets, {"dry_run": None}))
        new = {target: reworded(references[target], plan.figures[target]) for target in targets}
        changed += [reference for target, reference in new.items() if reference != references[target]]
    for reference in changed:
        save_reference(reference, folder)
    return [reference.target for reference in changed]
