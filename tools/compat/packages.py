"""Other people's packages: offline and without progress bars (so import this first), and how a check ends that lacks one."""
import os
import sys

SKIPPED = 77  # exit status
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TQDM_DISABLE", "1")


def skip(error):
    print(f"skipped: {error}")
    sys.exit(SKIPPED)
