"""The programs of the recorded topology vectors, each written once with this library."""

from tests.conformance.programs import joins, topologies, windows
from tests.conformance.programs.registry import APPLICATION_ID, Program, all_programs, build_program, program_of

__all__ = ["APPLICATION_ID", "Program", "all_programs", "build_program", "joins", "program_of", "topologies", "windows"]
