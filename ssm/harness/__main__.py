"""`python -m ssm.harness`: lm_eval with the additional model `ssm`."""

from __future__ import annotations

import sys

from ssm.base.errors import UserError, first_line
from ssm.harness.names import unknown_name


def main() -> int:
    """Run lm_eval's own command line with our arguments.

    Returns:
        The exit code. 2: an error that the user can correct, described by one line on stderr.
    """
    try:
        try:
            import lm_eval.__main__ as harness
        except ImportError as error:
            reason = f"lm_eval cannot be imported ({first_line(error)})"
            raise UserError(f"{reason}: pip install 'ssm-length[harness]'") from error
        import ssm.harness.adapter  # noqa: F401  (it registers the model)

        try:
            harness.cli_evaluate()
        except ValueError as error:
            unknown = unknown_name(error)
            if unknown is None:
                raise
            raise unknown from error
    except UserError as error:
        print(f"ssm.harness: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
