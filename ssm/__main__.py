"""`python -m ssm` is `ssm`: what `torchrun -m ssm` starts."""

import sys

from ssm.cli.main import main

sys.exit(main())
