"""The examples that bring their own model: the same weights for any number of workers."""

import pytest

from conftest import BUILD


def last_line(leftovers, lockstep, program, workers, **env):
    path = BUILD / "examples" / f"example-{program}"
    if not path.exists():
        pytest.fail(f"{path} does not exist: build it")
    done = leftovers.run(lockstep, "run", "-n", str(workers), "--", path, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("program", ["own_model", "own_model_cpp"])
def test_same_weights_for_any_number_of_workers(leftovers, lockstep, program):
    alone = last_line(leftovers, lockstep, program, 1)
    assert "weights" in alone
    for workers in (2, 3, 5, 8):
        assert last_line(leftovers, lockstep, program, workers) == alone
    assert last_line(leftovers, lockstep, program, 3, LOCKSTEP_TRANSPORT="tcp") == alone
