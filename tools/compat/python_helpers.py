"""What the checks of the package for Python share. Import this before halfbyte: it skips where there is no wheel."""
import sys
import time
import traceback

import packages

try:
    import torch

    import halfbyte
except ImportError as failure:
    packages.skip(failure)

SCHEMES = ("sym_int4", "sym_int8", "asym_int4", "nf4", "fp4", "affine_int4", "hb4", "hb4_fine", "iq4_nl", "fp4_e2m1")


def taken(kind, call, *words, **options):
    """The exception of this kind that the call raises."""
    try:
        call(*words, **options)
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def difference(found, wanted):
    """The largest, relative to the largest magnitude."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return ((found - wanted).abs().max() / wanted.abs().max()).item()


def assert_near(found, wanted, bound, *what):
    assert found.shape == wanted.shape, (*what, found.shape, wanted.shape)
    off = difference(found, wanted)
    assert off <= bound, (*what, off, bound)


def assert_equal(found, wanted, *what):
    assert found.dtype == wanted.dtype and torch.equal(found, wanted), (*what, difference(found, wanted))


def run(checks):
    """What each of these returned, by its name; one that fails is printed and does not keep the others from running."""
    said, failed = {}, []
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            said[name] = check()
        except Exception:
            failed.append(name)
            traceback.print_exc()
        print(f"{name}: {'FAILED' if name in failed else 'pass'}, {time.perf_counter() - began:.1f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
        sys.exit(1)
    return said
