# The user's files that data sets and imported runs are made from.

UNREADABLE = {}  # data set or imported run -> why the user's files cannot be read


def listed(job, find, what):
    """The user's files of a job; None: files are missing. Unreadable files stop only the targets that need the job."""
    try:
        return rule_inputs(find(what))
    except UserError as problem:
        UNREADABLE[job] = str(problem)
        return ()


def files_of_user(job, files):
    """The user's files that a data set or an imported run is made from."""
    if job in UNREADABLE:
        raise SystemExit(UNREADABLE[job])
    return files[job] or []
