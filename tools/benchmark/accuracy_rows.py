"""What accuracy.py measures: one row a conversion, with the tool that makes it and the words that it is given."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    tool: str
    is_calibrated: bool
    words: tuple = ()


def with_and_without(name, tool, *words, calibrated="calibrated"):
    return [Row(name, tool, False, words), Row(f"{name}, {calibrated}", tool, True, words)]


HALFBYTE_SCHEMES = {
    "sym_int4 g64": [],
    "sym_int4 g32": ["--group-size", "32"],
    "asym_int4 g64": ["--scheme", "asym_int4"],
    "nf4 g64": ["--scheme", "nf4"],
    "hb4 g64": ["--scheme", "hb4", "--group-size", "64", "--halfbyte-only"],
    "hb4 g32": ["--scheme", "hb4", "--halfbyte-only"],
    "hb4_fine g16": ["--scheme", "hb4_fine", "--halfbyte-only"],
}
HALFBYTE_BUDGETS = {"4.13": ["--halfbyte-only"], "5": ["--halfbyte-only"]}
LLAMA_TYPES = ["Q4_0", "IQ4_XS", "Q4_K_S", "Q4_K_M"]
IK_TYPES = ["IQ4_KS", "IQ4_K"]

ROWS = [
    *(row for name, words in HALFBYTE_SCHEMES.items() for row in with_and_without(f"halfbyte {name}", "halfbyte", *words)),
    *(Row(f"halfbyte --target-bpw {bits}, calibrated", "halfbyte", True, ("--target-bpw", bits, *words)) for bits, words in HALFBYTE_BUDGETS.items()),
    *(row for kind in LLAMA_TYPES for row in with_and_without(f"llama.cpp {kind}", "llama.cpp", kind, calibrated="importance matrix")),
    *(row for kind in IK_TYPES for row in with_and_without(f"ik_llama.cpp {kind}", "ik_llama.cpp", kind, calibrated="importance matrix")),
    Row("bitsandbytes nf4 g64", "bitsandbytes", False),
    Row("AutoRound g64, calibrated", "AutoRound", True, ("64",)),
    Row("AutoRound g32, calibrated", "AutoRound", True, ("32",)),
]
