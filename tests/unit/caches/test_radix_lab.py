"""The example's numbers say what its text says."""

import runpy
from pathlib import Path

LAB = Path(__file__).parents[3] / "examples" / "radix_lab" / "lab.py"


def test_the_lab(capsys):
    runpy.run_path(str(LAB), run_name="__main__")
    shown = capsys.readouterr().out
    rates = {
        line[2:36].strip(): float(line.split("hit rate")[1].split("%")[0])
        for line in shown.splitlines()
        if "hit rate" in line
    }
    assert (
        rates["1 branch x 128 questions"] > rates["8 branches x 16 questions"] > rates["8 x 16 in vLLM's blocks of 16"]
    )
    assert rates["blocks permuted in every request"] < rates["8 branches x 16 questions"] - 15
    assert rates["unlimited memory"] > rates["4,000 tokens, lpm"] > rates["4,000 tokens, fcfs"] + 20
    assert rates["cache-aware"] > 2 * rates["round-robin"]
    assert "2,580 tokens = 161 full blocks + 4 tokens" in shown
    assert "2,580 tokens without the tree, 84 with it in blocks of 16, 80 in a radix tree" in shown
    assert "[0, 0, 0, 0, 0, 0, 0, 0]" in shown
    assert "[0, 784, 784, 784, 784, 784, 784, 784]" in shown
