"""Every CP-SAT solver is made in one place, which leaves Ctrl-C to Python."""

import ast
from pathlib import Path

import placewright
from placewright.solvers.cp_sat import cp_solver

SOURCE = Path(placewright.__file__).parent
HOME = SOURCE / "solvers" / "cp_sat.py"


def makes_a_solver(tree):
    """Whether something named `CpSolver` is called, or given another name."""
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names += [node.name for node in ast.walk(tree) if isinstance(node, ast.alias)]
    return "CpSolver" in names


def test_no_other_file_makes_a_solver():
    makers = [
        file.relative_to(SOURCE)
        for file in sorted(SOURCE.rglob("*.py"))
        if makes_a_solver(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert makers == [HOME.relative_to(SOURCE)]


def test_it_leaves_ctrl_c_to_python():
    solver = cp_solver(workers=3, seed=2**31 + 5, effort=2.0)
    assert not solver.parameters.catch_sigint_signal
    assert (solver.parameters.num_workers, solver.parameters.random_seed) == (3, 5)
    assert solver.parameters.max_deterministic_time == 2.0
